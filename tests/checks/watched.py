"""A watched program's losses, for the tests of their checks."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from doctor.engine.catalog import load_checks
from doctor.engine.record import SCHEMA, Run
from doctor.engine.result import Outcome
from doctor.engine.watch_summary import WatchResult
from doctor.session.replay import replay
from doctor.watch.loss.log_watch import LogWatch


def losses(value: Callable[[int, int], float], steps: int = 400, ranks: int = 1, waited: float = 0.0) -> WatchResult:
    """What the losses of a job come to; ``value`` of a step and a rank. ``waited``: seconds after the last."""
    watch = LogWatch()
    watch.live(0.0)
    for step in range(steps):
        for rank in range(ranks):
            watch.add_line(b"step %d loss: %.4f" % (step, value(step, rank)), rank if ranks > 1 else None, step / 10)
    hosts = {rank: f"w{rank}" for rank in range(ranks)} if ranks > 1 else {}
    return WatchResult(watch.curves(), tuple(watch.verdicts(steps / 10 + waited)), "logs", hosts=hosts)


def run_check(name: str, result: WatchResult) -> Outcome:
    """The outcome of one check."""
    run = Run(SCHEMA, "job", "2026-01-01T00:00:00Z", 1.0, {}, watch=msgspec.to_builtins(result, str_keys=True))
    (outcome,) = replay(run, [check for check in load_checks() if check.name == name]).outcomes
    return outcome


def falling(step: int, rank: int = 0) -> float:
    """A healthy loss."""
    return 2 + 8 / (1 + step / 20) + 0.01 * ((step * 7919) % 13) / 13


def is_silent_about_health(name: str) -> bool:
    """A healthy loss passes, and too few losses are unknown."""
    healthy, few = run_check(name, losses(falling)), run_check(name, losses(falling, steps=20))
    return healthy.status.value == "passed" and few.status.value == "unknown"
