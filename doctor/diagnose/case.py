"""The processes of a job, put together from the events of all files: the input of the rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from doctor.diagnose.attempts import (
    not_ended_well,
    note_left_out,
    note_overcome,
    older_attempts,
    outlived,
    overcome,
    overcome_beside,
    since_hosts_started,
)
from doctor.diagnose.events import Event, FileReading, FileSummary, first_of_each, shown_timeouts, small_number
from doctor.diagnose.launcher_reports import (
    FailureBlock,
    may_have_failed,
    place_local_ranks,
    place_lone_failure,
    place_on_hosts,
    ranked_blocks,
    split,
)
from doctor.diagnose.process import Process, corrected, holds_two_processes
from doctor.diagnose.read.file_names import NameHints, host_of, own_logs, read_case_names
from doctor.diagnose.signature import Role, Signature, Trait
from doctor.engine.grouping import lists_by_key

_SPAWNED = "spawned-process-failed"
"""The lines behind it are those of its rank."""
_ESTABLISHED = "hccl-communicator-ready"
"""All ranks of a communicator print it at one moment, by which their clocks are compared."""
CONNECT_TIMEOUT_S = 120.0
"""Seconds. HCCL's default for HCCL_CONNECT_TIMEOUT; it really waits 20 s longer."""


class Case(msgspec.Struct, dict=True):
    """All that the rules look at."""

    signatures: Mapping[str, Signature]
    files: Sequence[FileSummary]
    processes: list[Process]
    reports: list[Event]
    """What launchers and schedulers say of ranks."""
    world_size: int | None = None
    timeouts: dict[str, float] = {}
    """Seconds, by variable: those that the logs show."""
    labels: frozenset[int] = frozenset()
    """Ranks that a launcher's labels before all lines of its output show."""
    host_aliases: dict[str, str] = {}
    """The name of a host in file names, by its address in lines."""
    clocks_comparable: bool = True
    """False where the clocks of hosts differ by more than the gaps that the rules compare."""
    unread: Sequence[str] = ()
    """Logs that could not be read: that a rank has no log, or that a log shows no error, then means nothing."""

    def is_incomplete(self, process: Process) -> bool:
        """Some of the process's logs were not read."""
        return any(self.files[index].incomplete for index in process.files)

    def role(self, event: Event) -> Role:
        return self.signatures[event.signature].role

    def has_trait(self, event: Event, trait: Trait) -> bool:
        return trait in self.signatures[event.signature].traits

    def with_role(self, process: Process, *roles: Role) -> list[Event]:
        return [event for event in process.events if self.role(event) in roles]

    def waits(self, process: Process) -> list[Event]:
        """The errors with which a process says that it waited for another, or lost it."""
        return self.with_role(process, "victim", "ambiguous", "link")

    @cached_property
    def first_waits(self) -> list[Event]:
        """The first wait of all processes, by signature, and of those without a time one of each of two files."""
        return first_of_each(event for process in self.processes for event in self.waits(process))

    @cached_property
    def shows_failed_process(self) -> bool:
        """A launcher reports that a process failed."""
        return bool(self.failure_blocks) or any(self.has_trait(item, "failure-report") for item in self.reports)

    def of_outlived(self) -> Case:
        """The same processes with nothing but the faults behind which they show progress."""
        processes = [msgspec.structs.replace(item, events=item.outlived) for item in self.processes]
        return msgspec.structs.replace(self, processes=processes)

    @property
    def events(self) -> list[Event]:
        return [event for process in self.processes for event in process.events]

    def events_of(self, signature: str) -> list[Event]:
        return [event for event in self.events if event.signature == signature]

    def has_report(self, *signatures: str) -> bool:
        """Whether a launcher or scheduler says one of these."""
        return not self._reported.isdisjoint(signatures)

    @cached_property
    def _reported(self) -> frozenset[str]:
        return frozenset(event.signature for event in self.reports)

    @cached_property
    def host_reports(self) -> frozenset[str]:
        """Signatures of what launchers and schedulers say of a host that they name."""
        return frozenset(event.signature for event in self.reports if event.values.get("culprit_host"))

    @cached_property
    def failure_blocks(self) -> tuple[FailureBlock, ...]:
        """The workers that torchrun or msrun list as failed."""
        return tuple(ranked_blocks(self.reports, self.processes))

    @cached_property
    def aborts_on_others(self) -> bool:
        """A rank may have aborted itself over another: gloo on a wrong size, the watchdog of NCCL on a timeout."""
        waiting = [event for process in self.processes for event in self.waits(process)]
        names = {event.signature for event in waiting if not self.has_trait(event, "peer-ended")}
        return bool(names - {"gloo-timeout", "slurm-task-exited", "torchrun-sigterm"})

    def went_on(self, report: Event) -> bool:
        """Whether the job shows progress behind the report in its file: what ended was started again, or not needed."""
        return any(
            event.file == report.file and event.line > report.line and self.has_trait(event, "progress")
            for event in self.events
        )

    @cached_property
    def launch_failures(self) -> list[Event]:
        """Why a launcher could not start ranks, where it did not start them in the end."""
        reports = (event for event in self.reports if self.signatures[event.signature].is_of_launch)
        return [event for event in reports if not self.went_on(event)]

    @property
    def connect_timeout(self) -> float:
        """Seconds that HCCL waits for a connection: the setting and 20 s."""
        return self.timeouts.get("HCCL_CONNECT_TIMEOUT", CONNECT_TIMEOUT_S) + 20

    def process_of_rank(self, rank: int) -> Process | None:
        return next((process for process in self.processes if process.rank == rank), None)

    def process_at(self, host: str, device: int | None) -> Process | None:
        """The process on this device of this host; where the host is in no log, None."""
        host = self.host_aliases.get(host, host)
        return next(
            (item for item in self.processes if item.host == host and (device is None or item.device == device)), None
        )


def _read_processes(
    readings: Sequence[FileReading], signatures: Mapping[str, Signature]
) -> tuple[list[Process], list[Event]]:
    """The processes of each file, and events that tell of others."""
    processes: list[Process] = []
    reports: list[Event] = []
    summaries = [reading.summary for reading in readings]
    names = read_case_names(readings)
    old = older_attempts([summary.name for summary in summaries])
    host_files = own_logs(summaries, names)
    since_start = since_hosts_started(readings, signatures)
    for index, (reading, named, hints) in enumerate(zip(readings, summaries, names, strict=True)):
        named.rank, named.device, named.host, named.pid = hints.rank, hints.device, hints.host, hints.pid
        hints = hints if index in host_files or named.kernel else msgspec.structs.replace(hints, host="")
        kept = [] if old[index] else overcome(since_start[index], signatures)
        note_overcome(named, [] if old[index] else since_start[index], kept, signatures)
        events, about_others = split(kept, signatures, any(old))
        reports += about_others
        if named.accounting:
            reports += events
            continue
        written = _processes_of_file(index, reading, events, hints, signatures)
        for process in written if reading.recording else ():
            process.recording, process.recording_file = reading.recording, index
        processes += written
    return processes, reports


def _placed(
    processes: list[Process], reports: list[Event], signatures: Mapping[str, Signature], aliases: Mapping[str, str]
) -> list[Process]:
    """The processes with hosts and ranks, those of several files as one."""
    _place_by_folder(processes)
    _drop_contradicted_ranks(processes)
    for process in processes:
        process.host = aliases.get(process.host, process.host)
    processes = _merge(processes)
    for process in processes:
        _identify(process, signatures)
    processes = _merge(processes)
    place_local_ranks(processes, reports)
    place_lone_failure(processes, reports, signatures)
    place_on_hosts(processes, reports, signatures)
    return _merge(processes)


def build_case(
    readings: Sequence[FileReading], signatures: Mapping[str, Signature], unread: Sequence[str] = ()
) -> Case:
    """Puts the events of all files together. The order of the files makes no difference."""
    summaries = [reading.summary for reading in readings]
    processes, reports = _read_processes(readings, signatures)
    aliases = _host_aliases(readings, signatures)
    processes = _placed(processes, reports, signatures, aliases)
    files = {index: summary.name for index, summary in enumerate(summaries)}
    failed = any("failure-report" in signatures[event.signature].traits for event in reports)
    blocks = ranked_blocks(reports, processes)
    of_ranks = [item for item in reports if not signatures[item.signature].is_about_launch]
    shared = _shared_files(processes, of_ranks, summaries)
    for process in processes:
        if not failed:
            process.events = overcome_beside(files, process.events, signatures)
        process.events = corrected(sorted(process.events, key=_order), signatures)
        blamed = failed and may_have_failed(process.rank, process.pid, blocks)
        process.outlived = outlived(process.events, signatures, shared, blamed)
        process.events = [event for event in process.events if event not in process.outlived]
        process.outlived = not_ended_well(process.outlived, process.events, summaries, signatures)
    processes.sort(key=lambda item: (item.rank is None, item.rank or 0, item.host, item.device or 0, item.pid))
    every = [event for process in processes for event in process.events]
    case = Case(
        signatures=signatures,
        files=summaries,
        processes=processes,
        reports=sorted(reports, key=_order),
        world_size=_world_size(processes, every),
        timeouts=shown_timeouts(every),
        labels=frozenset(rank for reading in readings for rank in reading.summary.labels),
        host_aliases=aliases,
        unread=[*unread, *note_left_out(readings, signatures)],
    )
    case.clocks_comparable = _clocks_comparable(case)
    return case


def _shared_files(processes: list[Process], reports: list[Event], summaries: Sequence[FileSummary]) -> set[int]:
    """The files that hold lines of several processes, or of a launcher."""
    counts = Counter(index for process in processes for index in process.files)
    labelled = (index for index, summary in enumerate(summaries) if len(summary.labels) > 1)
    return {index for index, count in counts.items() if count > 1} | {e.file for e in reports} | {*labelled}


def _drop_contradicted_ranks(processes: list[Process]) -> None:
    """A rank that lines give to processes of several hosts is not known of them; the name of a log outranks a line."""
    by_rank = lists_by_key(
        (process.rank, process) for process in processes if process.rank is not None and process.origin
    )
    for rank, members in by_rank.items():
        if len({process.origin for process in members}) < 2:
            continue
        named = {process.origin for process in members if process.named_rank == rank}
        for process in members:
            if named != {process.origin}:
                process.rank = process.named_rank if process.named_rank != rank else None


def _host_aliases(readings: Sequence[FileReading], signatures: Mapping[str, Signature]) -> dict[str, str]:
    """Hosts that lines name by address and file names by name, as far as the one always stands for the other."""
    pairs = {
        (event.host, reading.summary.host)
        for reading in readings
        for event in reading.events
        if _is_scoped(event, signatures) and event.host and reading.summary.host
    }
    addresses, names = Counter(address for address, _ in pairs), Counter(name for _, name in pairs)
    return {address: name for address, name in pairs if addresses[address] == names[name] == 1}


def _order(event: Event) -> tuple[float, int, int]:
    return (event.time if event.time is not None else float("inf"), event.file, event.line)


def _processes_of_file(
    index: int, reading: FileReading, events: list[Event], hints: NameHints, signatures: Mapping[str, Signature]
) -> list[Process]:
    """The processes whose events one file holds: told apart by rank, else by process id."""
    hosts = {event.host for event in events if not event.pid and event.rank is None} - {""}
    pids, ranks = {event.pid for event in events} - {""}, {event.rank for event in events} - {None}
    mixed = hints.rank is None and holds_two_processes(events, signatures)
    if len(pids) <= 1 and len(ranks) <= 1 and len(hosts) <= 1 and not mixed:
        rank = next(
            (event.rank for event in events if event.rank is not None and not _is_scoped(event, signatures)), None
        )
        return [_process(index, reading.summary, hints, ("file", index) if rank is None else ("rank", rank), events)]
    rank_of_pid = {event.pid: event.rank for event in events if event.pid and event.rank is not None}
    last_spawned: int | None = None
    streams: dict[tuple[str, object], list[Event]] = defaultdict(list)
    for event in events:
        if event.signature == _SPAWNED:
            last_spawned = event.rank
            continue
        rank = event.rank if event.rank is not None else rank_of_pid.get(event.pid)
        if rank is None and last_spawned is not None and not event.pid:
            rank = last_spawned
        if rank is not None and not _is_scoped(event, signatures):
            streams["rank", rank].append(event)
        elif event.pid:
            streams["pid", event.pid].append(event)
        elif event.host and len(hosts) > 1:
            streams["host", event.host].append(event)
        else:
            streams["file", index].append(event)
    if not streams and not hints.launcher:
        streams["file", index] = []
    return [_process(index, reading.summary, hints, key, matches) for key, matches in streams.items()]


def _is_scoped(event: Event, signatures: Mapping[str, Signature]) -> bool:
    """The event's rank is that in a communicator."""
    return "group-rank" in signatures[event.signature].traits


def _process(
    index: int, summary: FileSummary, hints: NameHints, key: tuple[str, object], events: list[Event]
) -> Process:
    kind, value = key
    alone = kind == "file"
    rank = value if kind == "rank" else hints.rank
    return Process(
        rank=rank if isinstance(rank, int) else None,
        device=next((event.device for event in events if event.device is not None), hints.device),
        host=host_of(hints.host and summary.origin, hints, events),
        pid=str(value)
        if kind == "pid"
        else next((event.pid for event in events if event.pid), hints.pid if alone else ""),
        local_rank=hints.local_rank,
        folder=hints.folder,
        log=summary.name,
        files={index},
        events=list(events),
        last_time=summary.last_time,
        origin=hints.host and summary.origin,
        named_rank=hints.rank,
        group_ranks={},
        group_sizes={},
        listeners={},
    )


def _identify(process: Process, signatures: Mapping[str, Signature]) -> None:
    """Rank, device and address, from the lines with which the library names them."""
    for event in process.events:
        values = event.values
        if "listener" in values:
            process.listeners[values["listener"]] = small_number(values["listener_device"]) or 0
        if not _is_scoped(event, signatures):
            continue
        group, size = values.get("group", ""), values.get("world_size", "")
        if event.rank is not None and small_number(size) is not None:
            process.group_ranks[group] = event.rank
            process.group_sizes[group] = small_number(size) or 0
        if values.get("address"):
            process.address = values["address"]
    faults = {event.device for event in process.events if signatures[event.signature].role == "root"} - {None}
    process.device = (faults.pop() if len(faults) == 1 else None) if faults else process.device
    if process.group_sizes and process.rank is None:
        largest = max(process.group_sizes, key=lambda group: (process.group_sizes[group], group))
        process.rank = process.group_ranks[largest]


def _merge(processes: list[Process]) -> list[Process]:
    """Joins what several files show of one process: the same rank, or the same process id on one host."""
    merged = _merge_by(processes, lambda item: ("pid", item.host, item.pid) if item.pid else None)
    merged = _merge_by(merged, lambda item: ("rank", item.rank) if item.rank is not None else None)
    return _merge_by(
        merged, lambda item: ("device", item.host, item.device) if item.host and item.device is not None else None
    )


def _merge_by(processes: list[Process], key_of: Callable[[Process], object]) -> list[Process]:
    groups: dict[object, list[Process]] = defaultdict(list)
    alone: list[Process] = []
    for process in processes:
        key = key_of(process)
        if key is None:
            alone.append(process)
        else:
            groups[key].append(process)
    for members in groups.values():
        ranks = {member.rank for member in members if member.rank is not None}
        devices = {member.device for member in members if member.device is not None}
        if len(ranks) > 1 or (len(devices) > 1 and not ranks):
            alone += members
        else:
            alone.append(_joined(members))
    return alone


def _joined(members: list[Process]) -> Process:
    first = members[0]
    for other in members[1:]:
        first.rank = first.rank if first.rank is not None else other.rank
        first.device = first.device if first.device is not None else other.device
        first.host, first.pid = first.host or other.host, first.pid or other.pid
        first.address = first.address or other.address
        first.files |= other.files
        first.events += other.events
        first.group_ranks.update(other.group_ranks)
        first.group_sizes.update(other.group_sizes)
        first.listeners.update(other.listeners)
        times = [time for time in (first.last_time, other.last_time) if time is not None]
        first.last_time = max(times, default=None)
        if first.recording is None:
            first.recording, first.recording_file = other.recording, other.recording_file
    return first


def _place_by_folder(processes: list[Process]) -> None:
    """Gives processes their rank where only the local rank is known: each host's ranks are consecutive."""
    folders = {process.folder for process in processes if process.folder}
    for folder in folders:
        members = [process for process in processes if process.folder == folder]
        offsets = {item.rank - (item.local_rank or 0) for item in members if item.rank is not None}
        if len(offsets) == 1 or (not offsets and len(folders) == 1):
            first = offsets.pop() if offsets else 0
            for process in members:
                process.rank = first + (process.local_rank or 0)


def _world_size(processes: list[Process], events: Iterable[Event]) -> int | None:
    sizes = [size for process in processes for size in process.group_sizes.values()]
    sizes += [small_number(event.values.get("world_size", "")) or 0 for event in events]
    groups = (group for process in processes if process.recording for group in process.recording.groups)
    sizes += [max(group.ranks, default=-1) + 1 for group in groups]
    return max((size for size in sizes if 0 < size < 1_000_000), default=None)


def _clocks_comparable(case: Case) -> bool:
    """Whether hosts agree on the time of an event that is the same for all: a communicator that is established."""
    times: dict[tuple[str, str], float] = {}
    for process in case.processes:
        for event in process.events:
            if event.signature == _ESTABLISHED and event.time is not None:
                times[event.values.get("group", ""), process.host] = event.time
    by_group = lists_by_key((group, time) for (group, _), time in times.items())
    return all(max(matches) - min(matches) < MAX_CLOCK_SKEW_S for matches in by_group.values())


MAX_CLOCK_SKEW_S = 60.0
"""Seconds between the same event on two hosts above which times of different hosts are not compared."""
