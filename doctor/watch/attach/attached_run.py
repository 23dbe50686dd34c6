"""What was seen of a job that runs, as a run that the ordinary checks evaluate, and that every format shows. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from doctor.engine.errors import InputError
from doctor.engine.fact import Visit
from doctor.engine.grouping import lists_by_key
from doctor.engine.record import HostRecord, Run
from doctor.engine.sanitize import printable, rank_names, strip_control_chars
from doctor.engine.smoke_failures import FAILURE_KINDS, FailureKind
from doctor.engine.smoke_summary import Backend
from doctor.engine.texts import filled, joined, without_start
from doctor.smoke.model import UNKNOWN_HOST, Failure, Layout, RankPlacement, SmokePlan, SmokeRun
from doctor.smoke.results.to_facts import fact_outputs
from doctor.watch.attach.blame import OddRank
from doctor.watch.attach.odd_ranks import JobFinding
from doctor.watch.attach.process_groups import first_rank
from doctor.watch.attach.rank_report import Kind
from doctor.watch.attach.recorded_causes import RecordedCause
from doctor.watch.attach.seen_rank import SeenRank
from doctor.watch.outcome import ended_run

NO_RANK = (
    "no rank of a job runs here: no process has RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID or a device, or is connected "
    "with another that uses torch, MPI or JAX"
)
PASSED = ("smoke-rank-stopped", "smoke-rank-blocked", "smoke-input-stalled")
"""What a job that moves shows."""
COMPLETE = "smoke-rank-left"
"""What it shows where all of its ranks were seen."""
UNDECIDED = (*PASSED, COMPLETE, "smoke-collective-mismatched", "smoke-network-silent")
"""What may be the matter with a job that stands still."""
BY_ARGUMENT = "the ranks are numbered by an argument of the program's own function, which may count those of this host"
MOST_RANKS = 1 << 14
"""Of a job; processes that say they are others are counted."""
MOST_STACKS = 64
MOST_FRAMES = 12
MOST_GROUPS = 12
"""Groups of ranks that do the same, in the notes."""
_KINDS: dict[Kind, FailureKind] = {
    "left": "left", "stopped": "stopped", "traced": "stopped", "frozen": "frozen", "loader": "input", "compute": "busy",
    "collective": "mismatch",
}  # fmt: skip
"""What an odd rank does, as the failure of a smoke run; all else is ``blocked``."""


class _Job(NamedTuple):
    """A job whose ranks have numbers."""

    finding: JobFinding
    ranks: dict[int, SeenRank]
    by_process: dict[tuple[str, int], int]
    """Rank by host and pid."""
    world: int
    notes: tuple[str, ...]

    def number(self, odd_rank: OddRank) -> int:
        rank = odd_rank.rank if odd_rank.rank is not None else 0
        return self.by_process.get((odd_rank.host, odd_rank.pid), rank)


def attached_run(
    jobs: Sequence[JobFinding],
    failed: Mapping[str, str],
    recorded: Sequence[RecordedCause],
    source: str,
    seconds: float,
    notes: Sequence[str],
) -> tuple[Run, tuple[str, ...]]:
    """The run, and the names of the checks that it can be evaluated with.

    Of several jobs it is the first that has an odd rank, else the first that is undecided, else the largest; one
    process that names no rank and is connected with none is the last. The notes say what the others do. ``failed``:
    hosts that say nothing, and why. ``seconds``: how long they were looked at. Raises: InputError, where no rank was
    seen.
    """
    if not jobs:
        silent = [filled("{0}: {1}", printable(host, 80), reason) for host, reason in failed.items()]
        raise InputError(joined("; ", [NO_RANK, *[*notes, *silent][:4]]))
    main = main_job(jobs)
    others = [filled("another job, {0}: {1}", job.job, job.text) for job in jobs if job is not main]
    job = _numbered(main)
    failures, hints = _failures(job, [cause for cause in recorded if _concerns(cause, main, jobs)], seconds)
    undecided = main.text if main.result in ("undecided", "nothing") and (main.odd_ranks or not failures) else ""
    behind = [cause.text for cause in recorded if cause.text in hints and cause.is_sure and not cause.may_pass]
    if behind and not (failures or undecided):
        undecided = filled("{0} It runs meanwhile: look again.", behind[0])
    sentences = [*job.notes, *main.notes, *hints, *_groups(job, failures), *others, *notes]
    count_text = "{0}: {1} processes seen" if len(main.ranks) != 1 else "{0}: 1 process seen"
    texts = (filled(count_text, main.job, len(main.ranks)), main.text, *sentences)
    run = SmokeRun(
        plan=_plan(job),
        failures=failures,
        reached={} if failures else {"training": round(seconds, 3)},
        seconds=round(seconds, 3),
        notes=tuple(strip_control_chars(note, 400) for note in texts),
        watched=True,
        undecided=undecided,
    )
    saved = ended_run(source, seconds, _records(run, failed), smoke=msgspec.to_builtins(run, str_keys=True))
    return saved, _checks(job, failures, undecided)


def _concerns(cause: RecordedCause, main: JobFinding, jobs: Sequence[JobFinding]) -> bool:
    """Whether what RAS says may be of this job: it names no process of another one (NCCL's RAS of a host answers for
    the job that came first).
    """
    of_jobs = {job.job: cause.named & {entry.report.pid for entry in job.ranks} for job in jobs}
    return bool(of_jobs[main.job]) or not any(of_jobs.values())


def _plan(job: _Job) -> SmokePlan:
    return SmokePlan(
        backend=_backend(job.ranks.values()),
        places=tuple(_placement(rank, job) for rank in range(job.world)),
        layouts=(Layout(dp=job.world),),
        stages=("training",),
        steps=1,
    )


def _records(run: SmokeRun, failed: Mapping[str, str]) -> dict[str, HostRecord]:
    """Of each host of the run, and of those that gave no answer."""
    now = time.time()
    records = {
        host: HostRecord(Visit(sent=now, received=now, name=host), fact_outputs(run, host, ()))
        for host in run.plan.ranks_by_host
        if host != UNKNOWN_HOST
    }
    records.update((host, HostRecord(Visit(failure="error", text=text))) for host, text in failed.items())
    return records


def main_job(jobs: Sequence[JobFinding]) -> JobFinding:
    """The job that is reported: the first that has an odd rank, else that is undecided, else the largest."""
    return min(jobs, key=_order)


def _order(job: JobFinding) -> tuple[bool, int]:
    """The first is reported. A lone process whose links lead to no rank seen is a job only where there is no other, or
    where it holds up what it was asked.
    """
    first = job.ranks[0].report
    is_lone = len(job.ranks) == 1 and first.rank is None and not first.devices
    return is_lone and not (first.requests and job.result == "odd"), {"odd": 0, "undecided": 1}.get(job.result, 2)


def _checks(job: _Job, failures: Sequence[Failure], undecided: str) -> tuple[str, ...]:
    checks = [FAILURE_KINDS[failure.kind].check for failure in failures]
    if failures or undecided:
        return tuple(dict.fromkeys([*checks, *(UNDECIDED if undecided else ())]))
    return (*PASSED, *([COMPLETE] if job.finding.is_complete else []))


def _numbered(finding: JobFinding) -> _Job:
    """With the processes' own ranks, where these tell them apart; else counted."""
    arguments = [entry.report.argument for entry in finding.ranks]
    places = {(entry.host, entry.report.pid): entry for entry in finding.ranks}
    first = first_rank({place: entry.report for place, entry in places.items()})
    if first and places[first].does.role not in {entry.does.role for place, entry in places.items() if place != first}:
        first = None  # it does other work than all the others
    by_argument = set(arguments) == set(range(len(arguments))) and not (first and places[first].report.argument)
    reported = arguments if by_argument else [entry.report.rank for entry in finding.ranks]
    numbers = [rank for rank in reported if rank is not None and rank < MOST_RANKS]
    absent = [entry.rank for entry in finding.odd_ranks if not entry.pid and entry.rank is not None]
    if len(set(numbers)) == len(finding.ranks) and max(absent, default=0) < MOST_RANKS:
        ranks = dict(zip(numbers, finding.ranks, strict=True))
        notes: tuple[str, ...] = (BY_ARGUMENT,) if by_argument else ()
        world = min(max(finding.world, max([*numbers, *absent]) + 1), MOST_RANKS)
    else:
        # The last are those that rest, and that no rank waits for: the drivers of the others.
        blamed = {(entry.host, entry.pid) for entry in finding.odd_ranks}
        rests = {place for place, entry in places.items() if entry.does.kind == "idle"} - blamed
        keys = {place: (place != first and place in rests, place != first, place) for place in places}
        ordered = [places[place] for place in sorted(places, key=keys.__getitem__)][:MOST_RANKS]
        ranks, world = dict(enumerate(ordered)), len(ordered)
        listed = ", ".join(
            filled("rank {0} is pid {1} on {2}", rank, entry.report.pid, entry.host)
            for rank, entry in list(ranks.items())[:8]
        )
        template = "the processes do not say which ranks they are, so they are counted: {0}"
        if first:
            template = (
                "rank 0 is the process that serves the job's store; the others do not say which ranks they are, "
                "so they are counted: {0}"
            )
        notes = (filled(template, listed),)
    by_process = {(entry.host, entry.report.pid): rank for rank, entry in ranks.items()}
    return _Job(finding, dict(sorted(ranks.items())), by_process, world, notes)


def _backend(ranks: Iterable[SeenRank]) -> Backend:
    devices = [path for entry in ranks for path in entry.report.devices]
    if any("davinci" in path for path in devices):
        return "hccl"
    return "nccl" if any("nvidia" in path for path in devices) else "gloo"


def _placement(rank: int, job: _Job) -> RankPlacement:
    entry = job.ranks.get(rank)
    if entry is None:
        host = next((odd_rank.host for odd_rank in job.finding.odd_ranks if odd_rank.rank == rank), UNKNOWN_HOST)
        return RankPlacement(rank, host)
    numbers = [int(number) for path in entry.report.devices for number in re.findall(r"(\d{1,4})$", path)]
    return RankPlacement(rank, entry.host, device=numbers[0] if len(numbers) == 1 else -1)


def _failures(
    job: _Job, recorded: Sequence[RecordedCause], seconds: float
) -> tuple[tuple[Failure, ...], tuple[str, ...]]:
    """What the odd ranks come to, one failure for each kind, and what the recorders add as notes."""
    by_kind = lists_by_key((_KINDS.get(odd_rank.kind, "blocked"), odd_rank) for odd_rank in job.finding.odd_ranks)
    failures = [_failure(job, kind, odd_ranks, seconds) for kind, odd_ranks in by_kind.items()]
    hints: list[str] = []
    moves = job.finding.result == "moves"
    for cause in recorded:
        ranks = tuple(rank for rank in sorted({*cause.ranks, *_ranks_of(job, cause)}) if rank < job.world)
        same = [index for index, failure in enumerate(failures) if set(ranks) & set(failure.culprit_ranks)]
        if same:
            failure = failures[same[0]]
            failures[same[0]] = msgspec.structs.replace(failure, evidence=(*failure.evidence, cause.text))
        elif failures or not cause.is_sure or (cause.may_pass and moves) or _may_end(job, ranks):
            hints.append(cause.text)
        else:
            waiting = tuple(rank for rank in job.ranks if rank not in ranks)
            states = {rank: filled("it {0}", job.ranks[rank].does.text) for rank in ranks if rank in job.ranks}
            failure = Failure("blocked", ranks, waiting, certainty="evidence", stage="training", text=cause.text)
            stacks = _stacks(job, (*ranks, *waiting))
            failures.append(msgspec.structs.replace(failure, states=states, stacks=stacks))
    return tuple(failures), tuple(hints)


def _may_end(job: _Job, ranks: Sequence[int]) -> bool:
    """Whether what these ranks do may come to an end, as an evaluation: that they are behind is no cause then."""
    views = [job.ranks[rank] for rank in ranks if rank in job.ranks]
    moves = job.finding.result == "moves"
    may_end = [view in job.finding.may_go_on or (moves and not view.does.unmoved) for view in views]
    return len(may_end) == len(ranks) > 0 and all(may_end)


def _ranks_of(job: _Job, cause: RecordedCause) -> set[int]:
    """The ranks at the places that a recorder names: a process, or a device of a host."""
    ranks = {rank for (_, pid), rank in job.by_process.items() if pid in cause.pids}
    for host, device in cause.places:
        here = [rank for rank in job.ranks if _placement(rank, job).device == device]
        named = [rank for rank in here if job.ranks[rank].host == host]
        ranks.update(named or (here if len(here) == 1 else []))
    return ranks


def _failure(job: _Job, kind: FailureKind, odd_ranks: Sequence[OddRank], seconds: float) -> Failure:
    culprits = tuple(sorted(job.number(odd_rank) for odd_rank in odd_ranks))
    # The check of stopped ranks says "is" itself.
    texts = {}
    for odd_rank in odd_ranks:
        paused = kind in ("stopped", "frozen")
        does = without_start(odd_rank.text, "is ") if paused else filled("it {0}", odd_rank.text)
        process = filled(" (pid {0})", odd_rank.pid) if odd_rank.pid else ""
        texts[job.number(odd_rank)] = joined("", (does, process))
    waiting = tuple(rank for rank, entry in job.ranks.items() if entry.waits and rank not in culprits)
    called = (*waiting, *culprits) if kind == "mismatch" else waiting
    calls = {rank: without_start(job.ranks[rank].does.text, "waits in ") for rank in called}
    distinct = list(dict.fromkeys(texts[rank] for rank in culprits))
    rows = (filled("rank {0}: {1}", rank, texts[rank]) for rank in culprits[:4])
    text = joined("; ", rows) if len(distinct) > 1 else distinct[0]
    if kind == "left":
        text = joined("", (text, "; how it ended is in its own output, and in dmesg if the kernel ended it"))
    return Failure(
        kind,
        culprits,
        waiting,
        certainty="likely" if job.finding.result == "undecided" else "evidence",
        stage="training",
        text=strip_control_chars(text, 400),
        calls=calls,
        states=texts,
        seconds=round(seconds, 3),
        stacks=_stacks(job, (*culprits, *waiting)),
    )


def _stacks(job: _Job, ranks: Sequence[int]) -> dict[int, str]:
    """The stacks of these ranks, as far as they were shown, as faulthandler writes them."""
    stacks = {rank: job.ranks[rank].report.frames[:MOST_FRAMES] for rank in ranks if rank in job.ranks}
    shown = [(rank, stack) for rank, stack in stacks.items() if stack][:MOST_STACKS]
    return {rank: "\n".join(f'File "{file}", line {line} in {name}' for name, file, line in it) for rank, it in shown}


def _groups(job: _Job, failures: Sequence[Failure]) -> list[str]:
    """What the ranks do that no failure speaks of, those that do the same together, the largest group first."""
    reported = {rank for failure in failures for rank in (*failure.culprit_ranks, *failure.calls)}
    members = lists_by_key((entry.does.text, rank) for rank, entry in job.ranks.items() if rank not in reported)
    ordered = sorted(members.items(), key=lambda item: -len(item[1]))
    lines = [filled("{0}: {1}", rank_names(ranks), text) for text, ranks in ordered[:MOST_GROUPS]]
    more = len(ordered) - MOST_GROUPS
    return [*lines, *([filled("{0} more groups of ranks", more)] if more > 0 else [])]
