"""Work on many hosts at once, and its end."""

from __future__ import annotations

import signal
import threading

import pytest

from doctor.fix.rollout import SignalGuard
from doctor.transport.program import parallel_map


def test_every_item_comes_with_what_was_made_of_it() -> None:
    assert dict(parallel_map([1, 2, 3], lambda number: number * number, 2)) == {1: 1, 2: 4, 3: 9}
    assert list(parallel_map([], str, 4)) == []


def test_a_bug_in_the_work_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(parallel_map([1], lambda number: number / 0, 1))


def test_the_first_interrupt_waits_for_what_is_under_way_and_begins_nothing() -> None:
    was = signal.getsignal(signal.SIGTERM)
    main = threading.main_thread().ident or 0
    with SignalGuard() as halt:

        def work(number: int) -> str:
            signal.pthread_kill(main, signal.SIGTERM)
            assert halt.event.wait(20)
            return "ended"

        assert list(parallel_map([1, 2], work, 1, halt.event)) == [(1, "ended")]
        assert halt.code == 143
    assert signal.getsignal(signal.SIGTERM) == was


def test_the_second_interrupt_ends_it() -> None:
    with SignalGuard() as halt, pytest.raises(SystemExit) as ended:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
    assert (halt.code, ended.value.code) == (130, 130)
