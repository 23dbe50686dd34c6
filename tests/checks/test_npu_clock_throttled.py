"""What npu-clock-throttled finds."""

from __future__ import annotations

import pytest

from doctor.facts.npu_counters import NpuFrequencies, RunningClock
from tests.checks.devices import of

look = of("npu_clock_throttled")


@pytest.mark.parametrize(
    ("usage", "megahertz", "is_found"),
    [
        (0, 800, False),
        (49, 800, False),
        (50, 800, True),
        (95, 800, True),
        (95, 1800, False),
        (95, 1440, False),
        (95, 1439, True),
    ],
)
def test_only_a_card_that_computes_is_judged(usage: int, megahertz: int, is_found: bool) -> None:
    clocks = NpuFrequencies(by_card={0: 1800}, running={0: RunningClock(usage, megahertz, 1800)})
    assert bool(look(clocks)) == is_found


def test_a_card_that_does_not_report_its_load() -> None:
    assert look(NpuFrequencies(by_card={0: 1800})) == []
