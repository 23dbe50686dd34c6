"""What launchers and schedulers report of the ranks that they started: how each ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from doctor.diagnose.attempts import TORCHRUN_HEADING, TORCHRUN_ROW, newest_attempt
from doctor.diagnose.events import Event, small_number
from doctor.diagnose.process import Process, name_of_local_rank
from doctor.diagnose.read.stamps import read_stamp
from doctor.diagnose.signature import ERROR_ROLES, Signature
from doctor.engine.addresses import means_own_host
from doctor.engine.grouping import lists_by_key
from doctor.engine.texts import filled

Catalog = Mapping[str, Signature]
MSRUN_ROW = "ms-msrun-worker-exit"
_AGENT_LABEL = re.compile(r"\s{0,8}\d{1,6}: (?!\[rank)")


def split(events: list[Event], catalog: Catalog, restarted: bool) -> tuple[list[Event], list[Event]]:
    """The events of the newest attempt in the file; those about other ranks apart. ``restarted``: `newest_attempt`."""
    newest = newest_attempt(events, catalog, restarted=restarted)
    newest = [_without_label(event) if "ends-all" in catalog[event.signature].traits else event for event in newest]
    about_others = [event for event in newest if _is_about_others(event, catalog[event.signature])]
    lines = {event.line for event in about_others}
    of_agent = [event for event in newest if catalog[event.signature].about_others_if and event.line in lines]
    about_others += [event for event in of_agent if event not in about_others]
    agents = {event.rank for event in about_others if event.signature in (TORCHRUN_ROW, TORCHRUN_HEADING)}
    newest = [event for event in newest if event not in about_others]
    return [_of_any_worker(event) if event.rank in agents else event for event in newest], about_others


def _of_any_worker(event: Event) -> Event:
    """Srun's label before the lines of torchrun and its workers is that of a node's agent, and no rank."""
    return msgspec.structs.replace(event, rank=None) if _AGENT_LABEL.match(event.text) else event


def _is_about_others(event: Event, signature: Signature) -> bool:
    """A launcher's line about a rank; torchrun repeats exit codes and signals in words of its own."""
    is_report = signature.reports or signature.field_of or "about-others" in signature.traits
    return bool(is_report) or any(word in event.text for word in signature.about_others_if)


def _without_label(event: Event) -> Event:
    """A label before the line that ends a whole job or step is not that of a rank at fault."""
    return msgspec.structs.replace(event, rank=None, local_rank=None, pid="")


class FailureBlock(msgspec.Struct):
    """One worker in torchrun's list of failures."""

    event: Event
    rank: int | None = None
    local_rank: int | None = None
    host: str = ""
    exit_code: int | None = None
    pid: str = ""
    first: bool = False
    """The launcher saw it fail before it ended the others."""
    ended_at: str = ""
    """When the launcher saw it end, as it prints it."""

    @property
    def is_placed(self) -> bool:
        """Its host is known by a name that tells it from others."""
        return bool(self.host) and not means_own_host(self.host)

    @property
    def seconds(self) -> float:
        """That time in seconds; 0 where it is not known."""
        return read_stamp(self.ended_at, 1970).time or 0.0


AGENT_PATIENCE_S = 25
"""Seconds, a few less than torchrun waits between SIGTERM and SIGKILL: 30 (torch elastic, PContext.close)."""


def name_of_block(block: FailureBlock) -> str:
    """``rank 3 (host n1)``, or the local rank or process id of a worker where only that is known."""
    if block.rank is not None:
        place = filled("host {0}", block.host) if block.is_placed else ""
        return filled("rank {0} ({1})", block.rank, place) if place else f"rank {block.rank}"
    if block.local_rank is not None:
        return name_of_local_rank(block.local_rank)
    return f"pid {block.pid}" if block.pid else ""


def failure_blocks(reports: Sequence[Event]) -> list[FailureBlock]:
    """The workers that torchrun lists as failed: consecutive lines of one file make one block; and those of msrun."""
    blocks: list[FailureBlock] = []
    first_lines = lists_by_key((event.file, event.line) for event in reports if event.signature == TORCHRUN_HEADING)
    rows = (event for event in reports if event.signature == TORCHRUN_ROW)
    lines = sorted(rows, key=lambda event: (event.file, event.line))
    for event in lines:
        values = event.values
        starts = "time" in values or ("exit_code" in values and "local_rank" in values)
        last = blocks[-1] if blocks else None
        if starts or last is None or last.event.file != event.file or event.line - last.event.line > 8:
            last = FailureBlock(event)
            last.first = any(0 < event.line - line <= 3 for line in first_lines.get(event.file, ()))
            blocks.append(last)
        number = small_number(values.get("rank", ""))  # srun's label before it is of the agent
        last.rank = number if number is not None else last.rank
        last.local_rank = event.local_rank if event.local_rank is not None else last.local_rank
        last.host = event.host or last.host
        last.ended_at = values.get("time") or last.ended_at
        last.pid = event.pid or last.pid
        code = values.get("exit_code", "")
        if small_number(code) is not None:
            last.exit_code, last.event = small_number(code), event if not starts else last.event
    listed = {(block.event.file, block.pid) for block in blocks if block.pid and block.rank is not None}
    blocks = [b for b in blocks if b.rank is not None or (b.event.file, b.pid) not in listed]  # said by the agent, too
    return [*blocks, *_blocks_of_msrun(reports)]


def ranked_blocks(reports: Sequence[Event], processes: Sequence[Process]) -> list[FailureBlock]:
    """The blocks with the ranks of the processes whose ids they name."""
    counts = Counter(process.pid for process in processes)
    ranks = {process.pid: process.rank for process in processes if process.pid and counts[process.pid] == 1}
    blocks = failure_blocks(reports)
    for block in blocks:
        block.rank = ranks.get(block.pid) if block.rank is None else block.rank
    return blocks


def _blocks_of_msrun(reports: Sequence[Event]) -> Iterator[FailureBlock]:
    """A block for each worker that msrun saw end, the first of each file marked so."""
    workers = (event for event in reports if event.signature == MSRUN_ROW and event.values.get("who") == "Worker")
    files: set[int] = set()
    for event in sorted(workers, key=lambda item: (item.file, item.line)):
        signal, code = event.values.get("signal"), event.values.get("exit_code", "")
        exit_code = small_number(f"-{signal}" if signal else code)
        yield FailureBlock(event, exit_code=exit_code, pid=event.pid, first=event.file not in files)
        files.add(event.file)


def ended_by_launcher(block: FailureBlock, blocks: Sequence[FailureBlock]) -> bool:
    """Whether the launcher itself ended this worker with SIGKILL: another had failed. msrun does so at once, torchrun
    where SIGTERM had not been enough.
    """
    if block.event.signature == MSRUN_ROW:
        return not block.first
    if block.exit_code != -9 or block.first or not block.ended_at:
        return False
    first = [item for item in blocks if item.first and item.ended_at and item.event.file == block.event.file]
    return any(block.seconds - item.seconds >= AGENT_PATIENCE_S for item in first)


def may_have_failed(rank: int | None, pid: str, blocks: Sequence[FailureBlock]) -> bool:
    """Whether a launcher that says that one failed, with these blocks, may mean this process."""
    ends = [block for block in blocks if block.exit_code != -15]
    unknown = not blocks or (rank is None and not pid)
    return unknown or any((rank is not None and block.rank == rank) or (pid and block.pid == pid) for block in ends)


def ended_itself(code: int | None) -> bool:
    """Whether a process that ends so does so itself, and may say why: by an exit code, or by abort() (SIGABRT)."""
    return code == -6 or (code or 0) > 0


def may_have_given_up(block: FailureBlock) -> bool:
    """Whether this is how a worker of MindSpore ends that lost others, too: the silent one is another then."""
    return block.event.signature == MSRUN_ROW and block.exit_code in (1, 255)


def lone_failure(reports: Sequence[Event], file: int) -> int | None:
    """The only rank that the launcher of this log saw end with an exit code of its own; the others it ended itself.

    None where several did, where the log does not show ranks, or where a signal of others ended one.
    """
    of_file = [event for event in reports if event.file == file]
    blocks = [block for block in failure_blocks(of_file) if block.rank is not None]
    failed = {block.rank for block in blocks if block.exit_code and block.exit_code != -15}
    if blocks:
        codes = {block.exit_code for block in blocks if block.rank in failed}
        return failed.pop() if len(failed) == 1 and all(map(ended_itself, codes)) else None
    ranks = {small_number(event.values.get("first_rank", "")) for event in of_file} - {None}
    for event in of_file:
        if event.signature == "slurm-task-exited" and event.values.get("exit_code"):
            ranks.add(small_number(event.values.get("ended_ranks", "")))
    return ranks.pop() if len(ranks) == 1 else None


def lone_local_failure(reports: Sequence[Event], file: int | None = None) -> FailureBlock | None:
    """The only worker that ended with an exit code of its own, where torchrun reports it by its local rank alone.

    ``file``: by the launcher of this log. None where a list shows ranks, or several workers failed.
    """
    blocks = failure_blocks([event for event in reports if file in (None, event.file)])
    if any(block.rank is not None for block in blocks) or len(blocks) != 1 or blocks[0].local_rank is None:
        return None
    return blocks[0] if ended_itself(blocks[0].exit_code) else None


def task_failed(event: Event) -> bool:
    """Slurm's report of a task that ended badly by itself; "Killed" and "Terminated" is how Slurm ends the others."""
    if event.signature == "slurm-task-ended":
        return event.values.get("condition") != "Killed"
    return event.signature == "slurm-task-exited" and event.values.get("exit_code", "0") != "0"


def is_aftermath(cancelled: Event, reports: Sequence[Event], launches: Sequence[Event]) -> bool:
    """Whether a step was cancelled because a task of it had ended badly: srun does so, as if a person had done it.

    ``launches``: what says that tasks could not be started, after which srun ends those that it had started.
    """
    earlier = [e for e in reports if e.signature == "slurm-task-ended" and e.file == cancelled.file]
    earlier += [event for event in launches if event.file == cancelled.file]
    return any(task_failed(event) for event in reports) or any(event.line < cancelled.line for event in earlier)


def terminated_ranks(reports: Sequence[Event]) -> set[int]:
    """The ranks that SIGTERM ended after another had failed: that is how launchers end the others."""
    blocks = failure_blocks(reports)
    return {block.rank for block in blocks if block.rank is not None and block.exit_code == -15 and not block.first}


def ended_by_agent(reports: Sequence[Event], file: int) -> set[str]:
    """The pids of the workers that torchrun's agent says, in this file, that it ended with SIGTERM."""
    lines = (event for event in reports if event.file == file and event.signature == "torchrun-sigterm")
    return {event.pid for event in lines if "closing signal" in event.text} - {""}


def ended_well_ranks(reports: Sequence[Event]) -> dict[int, FailureBlock]:
    """Ranks that are absent from torchrun's list of failures between two that it lists: they ended with code 0."""
    blocks = [block for block in failure_blocks(reports) if block.rank is not None]
    listed = {block.rank for block in blocks}
    hosts = {block.host for block in blocks}
    if not blocks or len(hosts) > 1 or len({block.event.file for block in blocks}) > 1:
        return {}
    locals_ = {block.local_rank for block in blocks if block.local_rank is not None}
    first = min((block.rank or 0) - (block.local_rank or 0) for block in blocks)
    return {rank: blocks[0] for rank in range(first, first + max(locals_, default=0)) if rank not in listed}


def place_local_ranks(processes: list[Process], reports: list[Event]) -> None:
    """Gives processes that only their pid tells apart the rank that the launcher's report shows for it.

    Of several with one pid, as those of containers often have, the one of its host: else it is not known.
    """
    by_pid = lists_by_key((block.pid, block) for block in failure_blocks(reports) if block.rank is not None)
    for process in processes:
        listed = by_pid.get(process.pid, []) if process.pid and process.rank is None else []
        ranks = {block.rank for block in [block for block in listed if block.host == process.host] or listed}
        if len(ranks) == 1:
            process.rank = ranks.pop()


def place_on_hosts(processes: Sequence[Process], reports: Sequence[Event], catalog: Catalog) -> None:
    """Gives failed processes without a host the one that torchrun's list shows: for their rank or pid; and for what
    one agent alone wrote, as it prints only what workers of its own host print.
    """
    headings = Counter(event.file for event in reports if event.signature == TORCHRUN_HEADING)
    named = (block for block in failure_blocks(reports) if block.is_placed)
    by_file = lists_by_key((block.event.file, block) for block in named)
    for process in processes:
        failed = any(catalog[event.signature].role in ERROR_ROLES for event in process.events)
        if not failed or process.host or process.origin:
            continue
        blocks = [block for file in process.files for block in by_file.get(file, ())]
        hosts = {block.host for block in blocks if _is_of(block, process)}
        if process.rank is None and not process.pid and sum(headings[file] for file in process.files) == 1:
            hosts = {block.host for block in blocks}
        if len(hosts) == 1:
            (process.host,) = hosts


def _is_of(block: FailureBlock, process: Process) -> bool:
    """By its rank, else by its process id."""
    if block.rank is not None and process.rank is not None:
        return block.rank == process.rank
    return bool(block.pid) and block.pid == process.pid


def place_lone_failure(processes: list[Process], reports: list[Event], catalog: Mapping[str, Signature]) -> None:
    """Gives lines without a rank the rank that the launcher of the same log saw fail, where it saw only that."""
    placed = {process.rank for process in processes if process.rank is not None and process.events}
    for process in list(processes):
        errors = [event for event in process.events if catalog[event.signature].role in ERROR_ROLES]
        meanings = [(event, catalog[event.signature]) for event in errors]
        errors = [event for event, row in meanings if not row.about_others_if and "ends-all" not in row.traits]
        lines = {event.line for event in errors if not event.text.startswith(" ")}  # a launcher quotes with an indent
        if process.rank is not None or process.pid or len(process.files) != 1 or len({e.text for e in errors}) != 1:
            continue
        (file,) = process.files
        rank = lone_failure(reports, file)
        if not placed and (alike := _of_each_worker(process, errors, reports, file)):
            processes.remove(process)
            processes += alike
        elif len(lines) > 1:
            continue  # each may be of another rank: the launcher ended those that it does not list
        elif rank is not None and rank not in placed:
            process.rank = rank
        elif process.local_rank is None and not placed and (block := lone_local_failure(reports, file)):
            process.local_rank = block.local_rank


def _of_each_worker(process: Process, errors: Sequence[Event], reports: Sequence[Event], file: int) -> list[Process]:
    """A process for each worker of the launcher's list, where one error stands there as often as workers are listed.

    Twice shows nothing where the launcher ended one of two: a program may print its error before it ends by it.
    """
    blocks = failure_blocks([event for event in reports if event.file == file])
    codes = {block.rank: block.exit_code for block in blocks if block.rank is not None}
    lines = sorted({event.line for event in errors})
    count = len(lines)
    if count != len(codes) or count < 2 or (count == 2 and not all(map(ended_itself, codes.values()))):
        return []
    parts = zip(
        sorted(codes), [0, *lines[:-1]], [*lines[:-1], max(event.line for event in process.events)], strict=True
    )
    split_processes = []
    for rank, first, last in parts:
        events = [event for event in process.events if first < event.line <= last]
        split_processes.append(msgspec.structs.replace(process, rank=rank, events=events))
    return split_processes
