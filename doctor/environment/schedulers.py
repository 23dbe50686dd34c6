"""The table of schedulers and platforms, and the job of a process by it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

import msgspec

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled, joined
from doctor.engine.toml_compat import read_table
from doctor.environment.host_list import HostList, in_files
from doctor.environment.launchers import launchers
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed
from doctor.hosts.hostfile import HostLine, parse_hostfile
from doctor.hosts.nodeset import SLURM_COMPONENTS, InventoryError

Hook = Callable[[JobScheduler, EnvironmentVariables, MountedRankTable | None], Allocation | None]
"""The job of this process; None where it is no job of the scheduler. Never raises."""

_MOST_COMPONENTS = 1000
_MOST_TASKS = 10_000
_DAEMON_SCRIPTS = {"prolog_slurmd": "prolog", "epilog_slurmd": "epilog"}


def slurm(row: JobScheduler, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
    """Jobs, steps and daemon scripts of Slurm."""
    job = variables.text(variables.first_set("SLURM_JOB_ID", "SLURM_JOBID"))
    daemon_script = _DAEMON_SCRIPTS.get(variables.text("SLURM_SCRIPT_CONTEXT"), "")
    lists = [name for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST") if name in variables]
    if not (job or daemon_script or lists):
        return None
    in_step = _is_step_of_ranks(variables)
    components = () if in_step else _components(variables)
    names = ["SLURM_STEP_NODELIST"] if in_step else lists
    count = f"{'SLURM_STEP_NUM_NODES' if in_step else 'SLURM_JOB_NUM_NODES'} SLURM_NNODES"
    return Allocation(
        scheduler=row,
        job_id=printable(job, 40),
        host_lists=components or tuple(HostList(name, text=variables.text(name)) for name in names),
        host_name=variables.text(row.host_name),
        node_rank=variables.number_of("SLURM_NODEID"),
        node_count=None if components else variables.number_of(count, minimum=1),
        daemon_script=daemon_script,
        restart=variables.text("SLURM_RESTART_COUNT"),
    )


def _components(variables: EnvironmentVariables) -> tuple[HostList, ...]:
    """One list of the nodes of all components of a heterogeneous job; empty where the job is none."""
    for size_variable, lists in SLURM_COMPONENTS.items():
        size = variables.number(size_variable, minimum=1, maximum=_MOST_COMPONENTS, required=False)
        if size is None:
            continue
        names = [f"{lists}{number}" for number in range(size)]
        absent = [name for name in names if name not in variables]
        source = filled("{0} to {1}", names[0], size - 1) if size > 1 else names[0]
        if absent:
            return (HostList(source, parse=partial(_refuse_absent, absent[0])),)
        return (HostList(source, text=",".join(map(variables.text, names)), parse=_union),)
    return ()


def _union(text: str, place: str) -> list[HostLine]:
    """Components may share a node, so a node counts once."""
    return [msgspec.structs.replace(line, slots=None) for line in listed.node_set_of_slots(text, place)]


def _refuse_absent(name: str, text: str, place: str) -> list[HostLine]:
    """Raises: InventoryError. A component whose nodes are not known is not left out in silence."""
    raise InventoryError(
        filled("{0} is not set, although the job is heterogeneous; expected the nodes of every component", name)
    )


def _is_step_of_ranks(variables: EnvironmentVariables) -> bool:
    """Whether the step's hosts are those of the ranks. The step of mpirun's daemons leaves out mpirun's own host."""
    tasks = variables.number("SLURM_STEP_NUM_TASKS", required=False)
    of_daemons = any(launcher.daemon_marker in variables for launcher in launchers())
    return "SLURM_STEP_NODELIST" in variables and (tasks or 0) > 1 and not of_daemons


_IN_A_POD = "KUBERNETES_SERVICE_HOST"
_POD = re.compile(r"-(master|worker)-([0-9]{1,5})\Z", re.ASCII)


def kubeflow(row: JobScheduler, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
    """Pods of a PyTorchJob, by the PET_ variables or, of older releases, by the names of pods."""
    if "PET_NNODES" in variables and "PET_NODE_RANK" in variables:
        node_rank, node_count = variables.number_of("PET_NODE_RANK"), variables.number_of("PET_NNODES", minimum=1)
    elif _is_elastic(variables):
        node_rank = int(_POD.search(variables.text("HOSTNAME"))[2])  # type: ignore[index] # by _is_elastic
        node_count = int(variables.text("PET_NNODES").partition(":")[0])
    elif _is_of_older_operator(variables):
        node_rank, node_count = variables.number_of("RANK"), variables.number_of("WORLD_SIZE", minimum=1)
    else:
        return None
    is_rank = "TORCHELASTIC_RUN_ID" in variables or "LOCAL_RANK" in variables
    return Allocation(
        scheduler=row,
        node_rank=node_rank,
        node_count=node_count,
        starts_every_host=node_count != 1,
        host_variables=() if is_rank else ("RANK", "WORLD_SIZE"),
    )


def _is_elastic(variables: EnvironmentVariables) -> bool:
    pod, count = _POD.search(variables.text("HOSTNAME")), variables.text("PET_NNODES")
    has_endpoint = _IN_A_POD in variables and "PET_RDZV_ENDPOINT" in variables
    return bool(has_endpoint and pod and re.fullmatch(r"[1-9][0-9]{0,4}(:[0-9]{1,5})?", count, re.ASCII))


def _is_of_older_operator(variables: EnvironmentVariables) -> bool:
    names = (_IN_A_POD, "PYTHONUNBUFFERED", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
    launched = any(name in variables for name in ("TORCHELASTIC_RUN_ID", "LOCAL_RANK", "DEVICE_ID"))
    if launched or not all(name in variables for name in names):
        return False
    master = variables.text("MASTER_ADDR")
    pod = _POD.search(variables.text("HOSTNAME") if master == "localhost" else master)
    return bool(pod and pod[0] == "-master-0")


_POD_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MS_ROLE", "MS_WORKER_NUM", "MS_SCHED_HOST")
_SET_BY_LAUNCHERS = ("TORCHELASTIC_RUN_ID", "MS_NODE_ID", "RANK_ID")
"""Variables that a launcher inside of the pod sets, and the operator does not."""


def mindcluster(
    row: JobScheduler, variables: EnvironmentVariables, table: MountedRankTable | None
) -> Allocation | None:
    """Pods of a MindCluster job, by its variables or its mounted rank table."""
    torch = "," in variables.text("LOCAL_RANK")
    mindspore = "MS_LOCAL_WORKER" in variables and "MS_NODE_RANK" in variables
    mounted = table is not None and not table.variable
    if not (torch or mindspore or mounted or "MINDX_TASK_ID" in variables):
        return None
    is_pod = (torch or mindspore) and not any(name in variables for name in _SET_BY_LAUNCHERS)
    world_size = variables.number_of("MS_WORKER_NUM" if mindspore else "WORLD_SIZE")
    per_host = variables.number_of("MS_LOCAL_WORKER" if mindspore else "LOCAL_WORLD_SIZE")
    node_count = world_size // per_host if world_size and per_host and not world_size % per_host else None
    return msgspec.structs.replace(
        row.read(variables),
        node_rank=variables.number_of("MS_NODE_RANK" if mindspore else "RANK") if is_pod else None,
        node_count=node_count,
        starts_every_host=is_pod and node_count != 1,
        is_scheduler_process=is_pod and variables.text("MS_ROLE") == "MS_SCHED" and variables.text("NPU_POD") != "true",
        host_variables=_POD_VARIABLES if is_pod else (),
    )


def mpijob(row: JobScheduler, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
    """The launcher of an MPIJob, which has a hostfile, and its workers, which have none."""
    role = variables.text("K_MPI_JOB_ROLE")
    if role != "launcher":
        return Allocation(scheduler=row) if role == "worker" else None
    mpi = {launcher.name: launcher.hostfiles for launcher in launchers()}
    named = in_files(variables, *mpi["mpirun"], *mpi["mpiexec"], ranks=True)
    mounted = HostList("the MPIJob's hostfile", path="/etc/mpi/hostfile", parse=parse_hostfile, ranks=True)
    return Allocation(scheduler=row, host_lists=(*named, mounted))


def volcano(row: JobScheduler, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
    """Pods of a Volcano job: the hosts of all kinds of task, the master's first."""
    names = [name for name in variables.environ if re.fullmatch(r"VC_[A-Z0-9_]+_HOSTS", name)]
    if "VC_TASK_INDEX" not in variables and not names:
        return None
    names.sort(key=lambda name: (name != "VC_MASTER_HOSTS", name))
    hosts = [host for name in names for host in variables.text(name).split(",") if host]
    short_names = [host.partition(".")[0] for host in hosts]
    hostname = variables.text("HOSTNAME").partition(".")[0]
    node_rank = short_names.index(hostname) if hostname in short_names else None
    if node_rank is None and len(names) == 1:
        node_rank = variables.number_of(row.node_rank)
    return Allocation(
        scheduler=row,
        host_lists=(HostList(joined(" and ", names), text=",".join(hosts)),) if hosts else (),
        node_rank=node_rank,
        node_count=len(hosts) or None,
        starts_every_host=len(hosts) != 1,
    )


_ROLES = ("CHIEF", "WORKER", "PS", "SERVER", "SCHEDULER", "EVALUATOR")
_MOST_NODES = 10_000


def volcengine(row: JobScheduler, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
    """Nodes of a Volcengine task: those of its roles in turn."""
    if not row.is_present(variables):
        return None
    roles = [role for role in _ROLES if f"MLP_{role}_NUM" in variables]
    counts = {role: variables.number(f"MLP_{role}_NUM", maximum=_MOST_NODES, required=False) or 0 for role in roles}
    names = {role: _names(variables, role, count) for role, count in counts.items()}
    complete = bool(names) and all(names[role] or not counts[role] for role in roles)
    text = ",".join(variables.text(name) for role in roles for name in names[role])
    source = joined(" and ", (name for role in roles for name in names[role][:1]))
    node_count = sum(counts.values()) or None
    return msgspec.structs.replace(
        row.read(variables),
        host_lists=(HostList(source, text=text, parse=listed.words),) if complete and text else (),
        node_rank=_node_rank(variables, counts),
        node_count=node_count,
        starts_every_host=node_count != 1,
    )


def _names(variables: EnvironmentVariables, role: str, count: int) -> list[str]:
    """The variables with the hosts of a role; empty where not all are set."""
    if f"MLP_{role}_ALL_HOSTS" in variables:
        return [f"MLP_{role}_ALL_HOSTS"]
    names = [f"MLP_{role}_{index}_HOST" for index in range(count)]
    return names if all(name in variables for name in names) else []


def _node_rank(variables: EnvironmentVariables, counts: dict[str, int]) -> int | None:
    """The place among the nodes of all roles."""
    role = variables.text("MLP_ROLE", "WORKER").upper()
    index = variables.number_of("MLP_ROLE_INDEX")
    if index is None or role not in counts:
        return index
    roles = list(counts)
    return sum(counts[before] for before in roles[: roles.index(role)]) + index


def ray(row: JobScheduler, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
    """Processes that belong to a Ray cluster; ``RAY_ADDRESS=local`` is none."""
    outside = EnvironmentVariables({name: text for name, text in variables.environ.items() if text != "local"})
    return row.read(variables) if row.is_present(outside) else None


def openpai(row: JobScheduler, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
    """A task of OpenPAI: the names of its variables hold the names of the job's task roles."""
    own = variables.text("PAI_CURRENT_TASK_ROLE_NAME")
    if not own:
        return None
    roles = list(dict.fromkeys(filter(None, variables.text("PAI_TASK_ROLE_LIST").split(",")))) or [own]
    counts = [
        variables.number(f"PAI_TASK_ROLE_TASK_COUNT_{role}", 1, _MOST_TASKS, required=False)
        for role in roles[:_MOST_COMPONENTS]
    ]
    names = [
        f"PAI_HOST_IP_{role}_{index}" for role, count in zip(roles, counts, strict=False) for index in range(count or 0)
    ]
    is_whole = all(counts) and len(counts) == len(roles) and all(name in variables for name in names)
    index = variables.number_of(row.node_rank)
    before = sum(count or 0 for count in counts[: roles.index(own) if own in roles else 0])
    tasks = len(set(map(variables.text, names))) if is_whole else len(names)  # tasks may share a host
    return Allocation(
        scheduler=row,
        job_id=printable(variables.text("PAI_JOB_NAME"), 40),
        host_lists=(HostList("PAI_HOST_IP_*", text=",".join(map(variables.text, names)), parse=_union),)
        if is_whole
        else (),
        node_rank=None if index is None else before + index,
        node_count=tasks or None,
        starts_every_host=tasks != 1,
    )


HOOKS: Mapping[str, Hook] = {
    "kubeflow": kubeflow,
    "mindcluster": mindcluster,
    "mpijob": mpijob,
    "openpai": openpai,
    "ray": ray,
    "slurm": slurm,
    "volcano": volcano,
    "volcengine": volcengine,
}
"""By the name of the row, whose columns the hook reads where they fit."""


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    scheduler: tuple[JobScheduler, ...]


@cache
def schedulers() -> tuple[JobScheduler, ...]:
    """All schedulers; where several are recognised, the first is taken."""
    return read_table(Path(__file__).with_suffix(".toml"), _Table).scheduler


def find_allocation(
    variables: EnvironmentVariables, table: MountedRankTable | None, reaches_hosts: bool = False
) -> Allocation | None:
    """The job that this process is part of, by the first scheduler that recognises it.

    ``reaches_hosts``: only by those from whose batch scripts a command reaches all hosts.
    """
    for row in schedulers():
        if reaches_hosts and not row.reaches_hosts:
            continue
        hook = HOOKS.get(row.name)
        allocation = hook(row, variables, table) if hook else row.read(variables) if row.is_present(variables) else None
        if allocation:
            return allocation
    return None


def batch_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """The job around this process whose hosts a command reaches from it; None where there is none."""
    return find_allocation(EnvironmentVariables(environ), None, reaches_hosts=True)


def scheduler_host_name(environ: Mapping[str, str]) -> str:
    """The scheduler's name of this host; empty if no variable has it."""
    return next((environ[row.host_name] for row in schedulers() if environ.get(row.host_name)), "")
