"""A run that is slower than the baseline is measured once more: what keeps hosts busy for a moment is soon over."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from doctor.engine.evaluate import FactCache
from doctor.facts.smoke.collectives import SmokeCollectives
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.facts.smoke.further_stages import SmokePairs
from doctor.smoke.model import SmokeResult, SpeedKey
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.results.figures import collective_speeds, pair_speeds, rank_environments
from doctor.smoke.run.environment_trial import CannotRepeat
from doctor.smoke.speed.baseline import compare, run_speeds

STAGES = ("start", "rendezvous", "collectives", "pairs", "teardown")
BUDGET = 60.0
"""Seconds of the second run."""


def measure_again(
    result: SmokeResult, options: SmokeOptions, repeat: Callable[[SmokeOptions], SmokeResult]
) -> SmokeResult:
    """The result with the speeds of a second run, where it is slower than the baseline, or with why none compares."""
    if options.baseline is None or result.stopped or result.run.ended != "complete":
        return result
    comparison = compare(options.baseline, speeds_of_result(result))
    if comparison.why_not:
        notes = (*result.run.notes, comparison.why_not)
        return msgspec.structs.replace(result, run=msgspec.structs.replace(result.run, notes=notes))
    if not comparison.is_slow:
        return result
    short = {"stages": STAGES, "budget": min(options.budget, BUDGET), "soak": 0.0, "device_seconds": 0.0}
    try:
        repeated = repeat(msgspec.structs.replace(options, baseline=None, native=False, **short))
    except (CannotRepeat, ValueError):
        return result
    except (KeyboardInterrupt, SystemExit) as stop:
        return msgspec.structs.replace(result, stopped=stop)
    if repeated.stopped or repeated.run.ended != "complete":
        return msgspec.structs.replace(result, stopped=repeated.stopped)
    again = {key.size_text: value for key, value in speeds_of_result(repeated).items()}
    return msgspec.structs.replace(result, run=msgspec.structs.replace(result.run, speeds_again=again))


def speeds_of_result(result: SmokeResult) -> dict[SpeedKey, float]:
    """As a baseline has them."""
    run, book = result.run, FactCache(result.records)
    return run_speeds(
        run.plan.backend,
        len(run.plan.ranks_by_host),
        rank_environments(dict(book.fleet(SmokeStart)).values()),
        collective_speeds(run, dict(book.fleet(SmokeCollectives))),
        pair_speeds(dict(book.fleet(SmokePairs)), run.plan.world),
    )
