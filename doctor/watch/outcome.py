"""A watched training as a run that the ordinary checks evaluate, and that every report format shows."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Literal, get_args

import msgspec

from doctor import __version__
from doctor.analysis.outliers.peers import MIN_TIMES, OwnWork
from doctor.engine.fact import Visit
from doctor.engine.record import SCHEMA, HostRecord, Run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.smoke_failures import FAILURE_KINDS
from doctor.engine.smoke_summary import Backend
from doctor.engine.utc_time import utc_text
from doctor.facts.smoke.further_stages import PaceTimes
from doctor.smoke.hang.standstill import main_thread_stack
from doctor.smoke.model import UNKNOWN_HOST, Failure, Layout, RankPlacement, SmokePlan, SmokeRun
from doctor.smoke.protocol import RankEvent, StageFinished
from doctor.smoke.results.to_facts import fact_outputs

CHECKS = (
    "smoke-rank-never-joined", "smoke-collective-mismatched", "smoke-collective-order", "smoke-rank-died",
    "smoke-rank-left", "smoke-rank-stopped", "smoke-rank-blocked", "smoke-input-stalled", "smoke-network-silent",
    "smoke-budget-spent",
)  # fmt: skip
"""What can be said of any program."""
PACE_CHECKS = ("smoke-rank-slow", "smoke-input-slow")
"""What can be said of one that went through enough steps."""
MOST_STACKS = 64
END: Mapping[bool, Literal["complete", "interrupted"]] = {True: "complete", False: "interrupted"}
"""Of a run without a failure, by whether its ranks came far enough to be judged."""


def with_stacks(failure: Failure, stacks: Mapping[int, str]) -> Failure:
    """The failure with the Python stacks of its ranks, those that cause it first."""
    order = dict.fromkeys([*failure.culprit_ranks, *failure.waiting_ranks, *sorted(stacks)])
    stack_texts = {rank: main_thread_stack(stacks[rank]) for rank in order if 'File "' in stacks.get(rank, "")}
    return msgspec.structs.replace(failure, stacks=dict(list(stack_texts.items())[:MOST_STACKS]))


def output_only_run(source: str, seconds: float, notes: Sequence[str]) -> Run:
    """A run without any rank that was seen: only what it printed is known."""
    return ended_run(source, seconds, {}, notes=tuple(strip_control_chars(note, 400) for note in notes))


def ended_run(source: str, seconds: float, records: dict[str, HostRecord], **more: Any) -> Run:
    """A run that has ended now, and took so many seconds. ``more``: further fields of `doctor.engine.record.Run`."""
    started = utc_text(datetime.fromtimestamp(time.time() - seconds, timezone.utc))
    return Run(SCHEMA, source, started, round(seconds, 3), records, version=__version__, **more)


def watched_run(
    source: str,
    hosts: Mapping[int, str],
    world: int,
    backend: str,
    library: Literal["torch", "mindspore"],
    failure: Failure | None,
    work: Mapping[int, OwnWork],
    steps: int,
    seconds: float,
    judged: bool,
    notes: tuple[str, ...],
) -> tuple[Run, tuple[str, ...]]:
    """The run, and the names of the checks that it can be evaluated with: of a failure, the one that reports it.

    ``hosts``: of each rank whose host is known; ``work``: each rank's own, in each step; ``judged``: as in `END`.
    """
    paced = {rank: own for rank, own in work.items() if len(own.compute) >= MIN_TIMES}
    plan = SmokePlan(
        backend=next((name for name in get_args(Backend) if name in backend), "gloo"),
        library=library,
        places=tuple(RankPlacement(rank, hosts.get(rank, UNKNOWN_HOST)) for rank in range(world)),
        layouts=(Layout(dp=world),),
        stages=("training", "pace") if paced else ("training",),
        steps=max(steps, 1),
    )
    run = SmokeRun(
        plan=plan,
        failures=(failure,) if failure else (),
        ended=("interrupted" if failure.certainty == "likely" else "trouble") if failure else END[judged],
        reached={} if failure or not judged else dict.fromkeys(plan.stages, round(seconds, 3)),
        seconds=round(seconds, 3),
        notes=tuple(strip_control_chars(note, 400) for note in notes),
        watched=True,
    )
    records = _records(run, paced, seconds)
    saved = ended_run(source, seconds, records, smoke=msgspec.to_builtins(run, str_keys=True))
    if failure is not None:
        return saved, (FAILURE_KINDS[failure.kind].check,)
    return saved, CHECKS + (PACE_CHECKS if paced else ())


def _records(run: SmokeRun, paced: Mapping[int, OwnWork], seconds: float) -> dict[str, HostRecord]:
    """What each host whose name is known would have answered. ``paced``: the ranks' own work."""
    records, here = {}, os.uname().nodename
    for host, ranks in run.plan.ranks_by_host.items():
        if host == UNKNOWN_HOST:
            continue
        events: list[RankEvent] = []
        for rank in ranks:
            if rank in paced:
                own = paced[rank]
                events += [
                    PaceTimes(rank, own.input, own.compute, starved=own.starved),
                    StageFinished(rank, "pace", seconds),
                ]
        now = time.time()
        visit = Visit(sent=now, received=now, began=now, ended=now, name=host, local=host == here)
        records[host] = HostRecord(visit, fact_outputs(run, host, events))
    return records
