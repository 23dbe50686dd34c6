"""Kubeflow's MPI operator: the launcher and the workers of an MPIJob.

Source: kubeflow/mpi-operator, pkg/controller/mpi_job_controller.go, version 2: K_MPI_JOB_ROLE is ``launcher`` or
``worker``; the launcher has OMPI_MCA_orte_default_hostfile, I_MPI_HYDRA_HOST_FILE or HYDRA_HOST_FILE, which name
/etc/mpi/hostfile with ``host slots=N`` or ``host:N``.
"""

from __future__ import annotations

from doctor.environment.host_list import HostList, in_files
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts.hostfile import parse_hostfile

_VARIABLES = (
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
    "I_MPI_HYDRA_HOST_FILE",
    "HYDRA_HOST_FILE",
)
_MOUNTED = "/etc/mpi/hostfile"


class MpiJobScheduler(JobScheduler):
    """Pods of an MPIJob."""

    name = "mpijob"
    title = "MPIJob"
    priority = 35
    reaches_hosts = True

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        role = variables.text("K_MPI_JOB_ROLE")
        if role != "launcher":
            return Allocation(scheduler=self) if role == "worker" else None
        mounted = HostList("the MPIJob's hostfile", path=_MOUNTED, parse=parse_hostfile, ranks=True)
        return Allocation(scheduler=self, host_lists=(*in_files(variables, *_VARIABLES, ranks=True), mounted))


SCHEDULER = MpiJobScheduler()
