"""The evaluation ends in time: a slow check costs its own outcome, and the others keep theirs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor import ERROR, Finding, check
from doctor.engine.check import Check
from doctor.engine.result import Status
from doctor.remote.runtime.reading import effective_time
from doctor.session import replay as replays
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


def test_a_check_that_has_no_cpu_until_the_budget_ends_took_not_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "effective_time", lambda folder: lambda: 0.0)
    report = replay(RUN, ours(gauge_slow, gauge_low), EvaluationLimit(time.monotonic() + 4))
    slow, low = report.outcomes
    assert "time budget ended" in slow.unknown["a"].text
    assert low.status == Status.FAILED


def folder_of(thread: threading.Thread) -> str:
    return f"/proc/self/task/{thread.native_id}"


@pytest.mark.parametrize(
    ("before", "after", "state", "counts"),
    [
        ((5, 0), (5, 10**15), "S", False),  # it has waited for all the time
        ((5, 0), (5, 0), "R", False),  # and still does: the kernel counts that when it ends
        ((5, 0), (6, 0), "R", True),
        ((5, 0), (5, 0), "S", True),
        ((0, 0), (0, 0), "R", True),  # not counted at all
    ],
)
def test_a_wait_for_a_cpu_is_no_time_of_a_thread(
    before: tuple[int, int], after: tuple[int, int], state: str, counts: bool, tmp_path: Path
) -> None:
    def show(times: tuple[int, int]) -> None:
        (tmp_path / "schedstat").write_text(f"{times[0]} {times[1]} 3\n" if any(times) else "")
        (tmp_path / "stat").write_text(f"12 (a) R x) {state} 1 12\n")

    show(before)
    taken = effective_time(str(tmp_path))
    show(after)
    time.sleep(0.01)
    assert (taken() > 0) == counts


def test_a_thread_that_sleeps_takes_all_its_time_and_one_that_runs_what_it_has_run() -> None:
    thread = threading.Thread(target=RELEASED.wait, args=(60,))
    thread.start()
    asleep, awake = effective_time(folder_of(thread)), effective_time(folder_of(threading.current_thread()))
    began = time.thread_time()
    while time.thread_time() - began < 0.1:
        pass
    assert asleep() >= 0.09
    assert awake() >= 0.09
    RELEASED.set()
    thread.join()
