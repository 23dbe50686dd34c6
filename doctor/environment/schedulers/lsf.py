"""IBM Spectrum LSF.

Source: LSF, "Environment variables set for job execution": LSB_DJOB_HOSTFILE names a file with a host for each slot,
LSB_MCPU_HOSTS is ``hosta 2 hostb 4``, LSB_HOSTS repeats a host for each slot and is not set for long lists.
LSB_BATCH_JID and LSB_JOBINDEX tell the members of a job array apart. The first host runs the job's script, and is one
of the hosts with slots. With IBM Cluster Systems Manager (CSM_ALLOCATION_ID) it is a launch node, from which jsrun
starts the ranks, and has none of them: LSF, ``bsub -nnodes`` and ``-ln_slots``; PRRTE, src/mca/plm/lsf, tells these
systems by the same variable; PyTorch Lightning, ``LSFEnvironment``, leaves out the first host.
"""

from __future__ import annotations

import msgspec

from doctor.engine.sanitize import printable
from doctor.environment.host_list import Parse, in_files, in_variables
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed
from doctor.hosts.hostfile import HostLine


class LsfScheduler(JobScheduler):
    """Jobs of LSF."""

    name = "lsf"
    title = "LSF"
    priority = 12
    reaches_hosts = True

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        lists = (
            *in_files(variables, "LSB_DJOB_HOSTFILE"),
            *in_variables(variables, "LSB_MCPU_HOSTS", parse=listed.pairs),
            *in_variables(variables, "LSB_HOSTS", parse=listed.words),
        )
        if not lists and "LSB_JOBID" not in variables:
            return None
        if "CSM_ALLOCATION_ID" in variables:
            lists = tuple(msgspec.structs.replace(one, parse=_without_launch_node(one.parse)) for one in lists)
        return Allocation(scheduler=self, job_id=printable(variables.text("LSB_JOBID"), 40), host_lists=lists)


def _without_launch_node(parse: Parse) -> Parse:
    def compute_nodes(text: str, place: str) -> list[HostLine]:
        lines = parse(text, place)
        return lines[1:] or lines

    return compute_nodes


SCHEDULER = LsfScheduler()
