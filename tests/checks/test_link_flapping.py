from datetime import datetime, timedelta

from doctor.facts.hccn.link_state import LinkHistory, LinkRecord
from tests.checks.device_network import run_check

NOW = datetime(2025, 10, 28, 21, 46, 46)


def history(*ages: timedelta) -> LinkHistory:
    """Changes that long ago, newest first, DOWN and UP by turns."""
    changes = tuple((NOW - age, "DOWN" if number % 2 else "UP") for number, age in enumerate(ages))
    return LinkHistory(by_npu={0: LinkRecord(NOW, ()), 1: LinkRecord(NOW, changes)})  # type: ignore[arg-type]


def test_a_start_and_a_cable_pulled_once() -> None:
    assert run_check("link_flapping", history=history(*[timedelta(minutes=n) for n in range(4)])) == []


def test_again_and_again() -> None:
    [finding] = run_check("link_flapping", history=history(*[timedelta(hours=n) for n in range(5)]))
    expected = "the link of NPU 1 changed 5 times in 24 hours, last at 2025-10-28 21:46:46; expected at most 4"
    assert str(finding) == expected


def test_long_ago() -> None:
    assert run_check("link_flapping", history=history(*[timedelta(hours=24 + n) for n in range(20)])) == []


def test_a_clock_that_was_put_back() -> None:
    """The changes of a year ago stand then in the future; those of the last minutes may, too."""
    assert run_check("link_flapping", history=history(*[timedelta(days=-365, hours=n) for n in range(5)])) == []
    assert len(run_check("link_flapping", history=history(*[timedelta(minutes=n - 5) for n in range(5)]))) == 1
