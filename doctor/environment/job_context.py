"""Where this process runs: under which launcher and scheduler, with which hosts, as which rank of how many. Pure.

Launchers nest. The innermost that gave this process its rank is its launcher (`doctor.environment.launch`); the
scheduler around it knows the job and its hosts (`doctor.environment.schedulers`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from doctor.engine.bounded_read import ReadFile, read_text_file
from doctor.engine.sanitize import count_noun, printable
from doctor.engine.texts import filled, joined
from doctor.environment.host_list import JobHosts, RunCommand, run_command
from doctor.environment.inventory import USER_VARIABLES, Inventory, InventoryError
from doctor.environment.job_hosts import find_job_hosts
from doctor.environment.launch import find_launch, find_rank_to_be, table_conflicts
from doctor.environment.launcher import LaunchedRank, RankInLaunch
from doctor.environment.launchers import by_hand, read_spawned
from doctor.environment.mounted_rank_table import MountedRankTable, find_mounted_table
from doctor.environment.scheduler import Allocation
from doctor.environment.schedulers import find_allocation
from doctor.environment.unknown_hosts import unknown_hosts
from doctor.environment.variables import EnvironmentVariables, VariableProblem, or_unknown

__all__ = ["JobContext", "Started", "VariableProblem", "detect", "for_spawned"]


class JobContext(RankInLaunch, frozen=True, kw_only=True):
    """This process in its job, by the variables of its launcher and its scheduler. None and empty: not known."""

    kind: str = "alone"
    """The scheduler's name, such as ``slurm``; without one the launcher's kind, such as ``openmpi``, or ``rank-table``;
    without one ``hostfile``, ``hosts``, or ``alone``."""
    description: str = ""
    """For people: ``Slurm job 1234, step 0, task 3 of 8 on n2``."""
    tag: str = ""
    """The same for one word of a line: ``slurm:1234/torchrun``."""
    started: Started = "once"
    identity: str = ""
    """The same text in all processes of this launch, and another one in other jobs and launches."""

    scheduler: str = ""
    """The name of one of `doctor.environment.schedulers`."""
    job_id: str = ""
    scheduler_host_name: str = ""
    """What the scheduler calls this host."""

    launcher: str = ""
    """The one that gave this process its rank: the name of one of `doctor.environment.launchers`."""
    launcher_host_name: str = ""
    """What the launcher calls this host."""
    launch_notes: tuple[str, ...] = ()
    """How the rank was found, where that is not certain: nested launchers, contradicting variables."""

    node_count: int | None = None
    hosts: tuple[str, ...] | None = None
    """All hosts of the job."""
    hosts_source: str = ""
    """The variable or file with the hosts."""
    hosts_error: str = ""
    """Why the job's list of hosts cannot be used."""
    slots: dict[str, int] = {}
    """Ranks by host, where the source states them."""
    hosts_unknown: str = ""
    """Why not all hosts of the job are known; empty: they are, or ``hosts_error`` has the reason."""
    rank_table_path: str = ""
    rank_table_pending: bool = False
    """The table is not complete: see `doctor.environment.mounted_rank_table.wait_for_table`; detect again after it."""

    conflicts: tuple[str, ...] = ()
    """``problems`` in words, and where two sources contradict each other."""
    notes: tuple[str, ...] = ()
    """What cannot be checked from here."""

    @property
    def shares_host(self) -> bool:
        """Whether this host may have other processes of the same launch."""
        return self.started == "ranks" and self.local_world_size != 1

    @property
    def leads_fleet(self) -> bool:
        """Whether this is the one process that checks all hosts; also where no variable identifies it."""
        if self.started in ("once", "prolog"):
            return self.started == "once"
        number = self.rank if self.started == "ranks" else self.node_rank
        return not self.is_scheduler_process and number in (0, None)

    @property
    def leads_ranks(self) -> bool:
        """Whether the ranks of the job meet at this process."""
        return self.is_scheduler_process or (self.rank == 0 and not self.leader_is_scheduler)

    @property
    def leader_location(self) -> str:
        """``MASTER_ADDR=w1``, or that the variable is unset."""
        source, addresses = self.leader_address_source, joined(" or ", self.leader_addresses)
        return f"{source}={addresses}" if addresses else filled("{0} is unset", source)

    def inventory(self) -> Inventory | None:
        """The hosts of the job; None where no source names them. Raises: InventoryError."""
        if self.hosts_error:
            raise InventoryError(self.hosts_error)
        if self.hosts is None:
            return None
        source = filled("{0} from {1}", count_noun(len(self.hosts), "host"), self.hosts_source)
        return Inventory(self.hosts, source, self.slots)


def detect(
    environ: Mapping[str, str],
    read_file: ReadFile = read_text_file,
    *,
    as_rank: bool = False,
    run: RunCommand = run_command,
    ranks_per_host: int = 0,
    devices: int = 0,
) -> JobContext:
    """The context of the process with this environment. Never raises: see `JobContext.conflicts` and ``hosts_error``.

    ``as_rank``: for a program of ranks. The rank is that of the innermost launcher that says how rank 0 is reached, by
    its variables alone: also if it started this process alone, and where a scheduler numbers hosts by these variables.
    ``ranks_per_host``: as the user says; 0: not said. ``devices``: of this host; 0: it has none, or they are not known.

    >>> context = detect({"SLURM_JOB_ID": "12", "RANK": "1", "WORLD_SIZE": "4"}, read_text_file)
    >>> context.description, context.tag, context.rank, context.launcher
    ('Slurm job 12, a loop in a shell, rank 1 of 4', 'slurm:12/shell', 1, 'environment')
    """
    variables = EnvironmentVariables(environ)
    table = find_mounted_table(variables.environ, read_file)
    allocation = find_allocation(variables, table)
    launch = find_rank_to_be(variables) if as_rank else find_launch(variables, allocation, table)
    return _context(variables, read_file, table, allocation, launch, run, ranks_per_host, devices)


def for_spawned(environ: Mapping[str, str], rank: int, world_size: int, *, job_id: str = "") -> JobContext:
    """The context of a process that a program starts by itself, as with ``torch.multiprocessing.spawn``.

    All ranks are on this host. ``job_id``: the same in all processes of the program. Never raises.
    """
    variables = EnvironmentVariables(environ)
    table = find_mounted_table(variables.environ, read_text_file)
    launch = read_spawned(variables.environ, rank, world_size)
    if job_id:
        launch = msgspec.structs.replace(launch, launch_id=f"spawn {job_id}")
    return _context(variables, read_text_file, table, find_allocation(variables, table), launch)


def _context(
    variables: EnvironmentVariables,
    read_file: ReadFile,
    table: MountedRankTable | None,
    allocation: Allocation | None,
    launch: LaunchedRank | None,
    run: RunCommand = run_command,
    ranks_per_host: int = 0,
    devices: int = 0,
) -> JobContext:
    hosts = find_job_hosts(variables.environ, read_file, allocation, table, run)
    is_pending, started = table is not None and table.is_pending, _started(variables, allocation, launch)
    origin = Origin(variables.environ, started, allocation, launch, table is not None, hosts.source)
    unknown = unknown_hosts(variables, allocation, launch, hosts, ranks_per_host, devices)
    context = JobContext(
        kind=kind(origin),
        description=describe(origin),
        tag=tag(origin),
        started=started,
        hosts=hosts.hosts,
        hosts_source=hosts.source,
        hosts_error=hosts.error,
        slots=hosts.slots,
        rank_table_path=table.path if table else "",
        rank_table_pending=is_pending,
        hosts_unknown="" if is_pending else unknown,
        identity=_identity(allocation, launch),
        conflicts=_conflicts(variables, launch, table, hosts),
    )
    if allocation:
        context = _in_allocation(context, allocation)
    if launch:
        context = msgspec.structs.replace(
            context,
            launcher=launch.launcher.name,
            launcher_host_name=launch.host_name,
            launch_notes=(*launch.notes, *launch.contradictions),
            **{name: getattr(launch, name) for name in RankInLaunch.__struct_fields__},
        )
    return msgspec.structs.replace(context, notes=_notes(context))


def _in_allocation(context: JobContext, allocation: Allocation) -> JobContext:
    return msgspec.structs.replace(
        context,
        scheduler=allocation.scheduler.name,
        job_id=allocation.job_id,
        scheduler_host_name=allocation.host_name,
        node_rank=allocation.node_rank,
        node_count=allocation.node_count,
        is_scheduler_process=allocation.is_scheduler_process,
    )


def _started(variables: EnvironmentVariables, allocation: Allocation | None, launch: LaunchedRank | None) -> Started:
    """A script may give this process a device of a rank table, and no rank."""
    if allocation and allocation.daemon_script:
        return "prolog"
    if launch or ("DEVICE_ID" in variables and "RANK_TABLE_FILE" in variables):
        return "ranks"
    return "hosts" if allocation and allocation.starts_every_host else "once"


def _identity(allocation: Allocation | None, launch: LaunchedRank | None) -> str:
    job = (allocation.scheduler.name, allocation.job_id) if allocation else ("", "")
    return " ".join((*job, launch.launch_id if launch else "", allocation.restart if allocation else "")).strip()


def _conflicts(
    variables: EnvironmentVariables, launch: LaunchedRank | None, table: MountedRankTable | None, hosts: JobHosts
) -> tuple[str, ...]:
    if launch is None:
        unusable = (problem.text for problem in variables.problems if problem.value)
        return (*dict.fromkeys(unusable), *hosts.conflicts)
    problems = [problem.text for problem in launch.problems]
    return (*problems, *launch.contradictions, *table_conflicts(launch, table), *hosts.conflicts)


def _notes(context: JobContext) -> tuple[str, ...]:
    if not context.hosts_unknown:
        return ()
    effect = "each host checks itself, nothing between hosts is checked"
    return (filled("{0}: {1}; expected --hostfile FILE, or DOCTOR_HOSTFILE", context.hosts_unknown, effect),)


Scope = Literal["local", "cluster", "follower"]
"""Its own host, the fleet, or nothing, as another process of its host does."""
RequestedScope = Literal["auto", "local", "cluster"]


def choose_scope(context: JobContext, requested: RequestedScope = "auto") -> Scope:
    """What this process checks. ``requested``: the user's choice; ``auto``: by the context.

    Where the rank within the host is not known, no process is a follower by its number:
    `doctor.preflight.host_leader` lets the first process check the host.
    """
    first_of_host = not context.shares_host or context.local_rank in (0, None)
    if requested == "cluster":
        return "cluster" if first_of_host or context.leads_fleet else "follower"
    if requested == "auto" and context.leads_fleet:
        return "cluster"
    return "local" if first_of_host else "follower"


Started = Literal["once", "hosts", "ranks", "prolog"]
"""As a single process; as one on every host; as one for every rank; by a scheduler's daemon before or after a job."""

_LONGEST_TAG = 80


class Origin(NamedTuple):
    """How a process was started: the input of the description."""

    environ: Mapping[str, str]
    started: Started
    allocation: Allocation | None
    launch: LaunchedRank | None
    has_rank_table: bool
    hosts_source: str


def kind(origin: Origin) -> str:
    """The scheduler; without one the launcher; without one the source of the hosts. See `JobContext.kind`."""
    if origin.allocation:
        return origin.allocation.scheduler.name
    if origin.has_rank_table and (origin.launch is None or origin.launch.launcher.by_hand):
        return "rank-table"
    if origin.launch:
        return origin.launch.launcher.kind
    names = {name: name.removeprefix("DOCTOR_").lower() for name in USER_VARIABLES}
    of_user = next((names[name] for name in names if name in origin.environ), "")
    return of_user or ("hostfile" if origin.hosts_source else "alone")


def describe(origin: Origin) -> str:
    """``Slurm job 1234, step 0, task 3 of 8 on n2``."""
    allocation, variables = origin.allocation, EnvironmentVariables(origin.environ)
    parts = [allocation.title] if allocation else []
    if origin.started == "prolog":
        parts.append(allocation.daemon_script if allocation else "prolog")
    elif origin.started == "ranks":
        parts += _as_rank(origin, variables)
    elif origin.started == "hosts":
        parts.append(_as_host(allocation))
    elif allocation:
        parts += allocation.scheduler.describe_single_process(variables)
    elif origin.hosts_source:
        parts.append(origin.hosts_source)
    text = joined(", ", parts) or "this host alone"
    host_name = allocation.host_name if allocation else ""
    return filled("{0} on {1}", text, printable(host_name, 60)) if host_name else text


def _as_host(allocation: Allocation | None) -> str:
    if allocation and allocation.is_scheduler_process:
        return "scheduler"
    node_rank, node_count = (allocation.node_rank, allocation.node_count) if allocation else (None, None)
    return f"host {or_unknown(node_rank)} of {or_unknown(node_count)}"


def _as_rank(origin: Origin, variables: EnvironmentVariables) -> list[str]:
    launch = origin.launch
    launcher = launch.launcher if launch else by_hand()
    if launch and launch.is_scheduler_process:
        return [filled("{0}'s scheduler", launcher.title)]
    rank, world_size = (launch.rank, launch.world_size) if launch else (None, None)
    parts = launcher.describe(filled("{0} of {1}", or_unknown(rank), or_unknown(world_size)), variables)
    alone = launcher.scheduler and (not origin.allocation or launcher.scheduler != origin.allocation.scheduler.name)
    return [launcher.title, *parts] if alone else parts


def tag(origin: Origin) -> str:
    """``slurm:1234/torchrun``: the scheduler, its job, and the launcher unless that is the scheduler's own.

    ``no-job`` outside of any.
    """
    name = kind(origin)
    name = "no-job" if name == "alone" else name
    job_id = origin.allocation.job_id if origin.allocation else ""
    text = f"{name}:{job_id}" if job_id else name
    launcher = origin.launch.launcher if origin.launch and origin.started == "ranks" else None
    if launcher and name not in (launcher.kind, launcher.scheduler, "rank-table"):
        text += f"/{launcher.kind}"
    return re.sub(r"[^A-Za-z0-9._:@+/-]", "_", text)[:_LONGEST_TAG]
