"""Slurm.

Source: srun(1) and sbatch(1), "OUTPUT ENVIRONMENT VARIABLES", where SLURM_JOBID and SLURM_NODELIST are the older
names that Slurm still sets; Slurm, "Heterogeneous Job Support" (SLURM_HET_SIZE, SLURM_JOB_NODELIST_HET_GROUP_<n>, and
PACK for HET before Slurm 20.02); Slurm's "Prolog and Epilog Guide" (SLURM_SCRIPT_CONTEXT); and the variables that
Slurm 22.05 sets.
"""

from __future__ import annotations

from functools import partial

import msgspec

from doctor.engine.sanitize import printable
from doctor.environment.host_list import HostList, in_variables
from doctor.environment.launchers import LAUNCHERS
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed
from doctor.hosts.hostfile import HostLine
from doctor.hosts.nodeset import InventoryError

_MOST_COMPONENTS = 1000
_DAEMON_SCRIPTS = {"prolog_slurmd": "prolog", "epilog_slurmd": "epilog"}


class SlurmScheduler(JobScheduler):
    """Jobs, steps and daemon scripts of Slurm."""

    name = "slurm"
    title = "Slurm"
    priority = 10
    reaches_hosts = True
    host_name_variable = "SLURMD_NODENAME"

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        job = variables.text(variables.first_set("SLURM_JOB_ID", "SLURM_JOBID"))
        daemon_script = _DAEMON_SCRIPTS.get(variables.text("SLURM_SCRIPT_CONTEXT"))
        nodes = any(name in variables for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST"))
        if not job and not daemon_script and not nodes:
            return None
        in_step = _is_step_of_ranks(variables)
        components = () if in_step else _components(variables)
        count = variables.first_set("SLURM_STEP_NUM_NODES" if in_step else "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
        node_count = None if components else variables.number(count, minimum=1, required=False)
        return Allocation(
            scheduler=self,
            job_id=printable(job, 40),
            host_lists=components or _host_lists(variables, in_step),
            host_name=variables.text(self.host_name_variable),
            node_rank=variables.number("SLURM_NODEID", required=False),
            node_count=node_count,
            daemon_script=daemon_script or "",
            restart=variables.text("SLURM_RESTART_COUNT"),
        )

    def describe_single_process(self, variables: EnvironmentVariables) -> list[str]:
        """See `JobScheduler.describe_single_process`."""
        step = variables.text("SLURM_STEP_ID")
        if step:
            return [f"step {printable(step, 20)}"]
        return ["batch script"] if "SLURM_PROCID" in variables else []


def _host_lists(variables: EnvironmentVariables, in_step: bool) -> tuple[HostList, ...]:
    """The step's nodes in a step of ranks, else the job's."""
    names = ("SLURM_STEP_NODELIST",) if in_step else ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
    return tuple(in_variables(variables, *names))


def _components(variables: EnvironmentVariables) -> tuple[HostList, ...]:
    """One list of the nodes of all components of a heterogeneous job; empty where the job is none."""
    for size_variable, group in (("SLURM_HET_SIZE", "HET_GROUP"), ("SLURM_PACK_SIZE", "PACK_GROUP")):
        size = variables.number(size_variable, minimum=1, maximum=_MOST_COMPONENTS, required=False)
        if size is None:
            continue
        names = [f"SLURM_JOB_NODELIST_{group}_{number}" for number in range(size)]
        absent = [name for name in names if name not in variables]
        source = f"{names[0]} to {size - 1}" if size > 1 else names[0]
        if absent:
            return (HostList(source, parse=partial(_refuse_absent, absent[0])),)
        return (HostList(source, text=",".join(map(variables.text, names)), parse=_union),)
    return ()


def _union(text: str, place: str) -> list[HostLine]:
    """Components may share a node, so a node counts once."""
    return [msgspec.structs.replace(line, slots=None) for line in listed.node_set_of_slots(text, place)]


def _refuse_absent(name: str, text: str, place: str) -> list[HostLine]:
    """Raises: InventoryError. A component whose nodes are not known is not left out in silence."""
    raise InventoryError(f"{name} is not set, although the job is heterogeneous; expected the nodes of every component")


def _is_step_of_ranks(variables: EnvironmentVariables) -> bool:
    """Whether the step's hosts are those of the ranks. The step of mpirun's daemons leaves out mpirun's own host."""
    tasks = variables.number("SLURM_STEP_NUM_TASKS", required=False)
    of_daemons = any(launcher.daemon_marker in variables for launcher in LAUNCHERS if launcher.daemon_marker)
    return "SLURM_STEP_NODELIST" in variables and (tasks or 0) > 1 and not of_daemons


SCHEDULER = SlurmScheduler()
