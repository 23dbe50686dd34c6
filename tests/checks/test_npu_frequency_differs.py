"""What npu-frequency-differs finds."""

from __future__ import annotations

from doctor.facts.npu import NpuProduct
from doctor.facts.npu_counters import NpuFrequencies
from tests.checks.devices import fleet, of

look = of("npu_frequency_differs")


def clocks(*values: int) -> NpuFrequencies:
    return NpuFrequencies(by_card=dict(enumerate(values)))


def test_one_clock_for_each_product() -> None:
    a2, a3 = (NpuProduct(family=family, evidence="") for family in ("A2", "A3"))
    assert look(fleet(clocks(1800, 1800), clocks(1650, 1650)), fleet(a2, a3)) == []


def test_a_card_with_a_lower_clock() -> None:
    (finding,) = look(fleet(clocks(1800, 1800), clocks(1800, 1500)), None)
    assert str(finding) == "rated clock of 1500 MHz on NPU card 1; 3 of 4 cards have 1800 MHz"
