"""The evaluation ends in time: a slow check costs its own outcome, and the others keep theirs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from doctor import ERROR, Finding, check
from doctor.engine.check import Check
from doctor.engine.result import Status
from doctor.session.replay import EvaluationLimit, replay
from tests.preflight.runs import Gauge, gauge_high, gauge_low, ours, run

RUN = run({"a": 5, "b": 3})
RELEASED = threading.Event()


@check(severity=ERROR)
def gauge_slow(gauge: Gauge) -> Iterator[Finding]:
    """Takes its time."""
    RELEASED.wait(60)
    yield from ()


@check(severity=ERROR)
def gauge_stops(gauge: Gauge) -> Iterator[Finding]:
    """Ends the evaluation as no check may."""
    raise SystemExit(3)


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    yield
    RELEASED.set()
    RELEASED.clear()


def statuses(checks: list[Check], limit: EvaluationLimit) -> dict[str, Status]:
    return {outcome.check: outcome.status for outcome in replay(RUN, checks, limit).outcomes}


def test_a_check_that_hangs_is_unknown_and_the_others_have_their_outcomes() -> None:
    began = time.monotonic()
    status = statuses(ours(gauge_slow, gauge_low, gauge_high), EvaluationLimit(time.monotonic() + 8))
    assert status == {"gauge-slow": Status.UNKNOWN, "gauge-low": Status.FAILED, "gauge-high": Status.PASSED}
    assert time.monotonic() - began < 8


def test_what_is_not_evaluated_at_the_end_is_unknown_on_every_host() -> None:
    report = replay(RUN, ours(gauge_low, gauge_high), EvaluationLimit(time.monotonic() - 1))
    assert [set(outcome.unknown) for outcome in report.outcomes] == [{"a", "b"}, {"a", "b"}]
    assert "time budget ended" in report.outcomes[0].unknown["a"].text


def test_without_a_limit_everything_is_evaluated_in_its_order() -> None:
    status = statuses(ours(gauge_high, gauge_low), EvaluationLimit())
    assert list(status.items()) == [("gauge-high", Status.PASSED), ("gauge-low", Status.FAILED)]


def test_an_exception_that_ends_the_program_does_so() -> None:
    with pytest.raises(SystemExit):
        replay(RUN, ours(gauge_stops), EvaluationLimit())
