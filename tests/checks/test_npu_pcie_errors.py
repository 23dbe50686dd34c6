"""What npu-pcie-errors finds."""

from __future__ import annotations

from doctor.facts.npu_counters import NpuPcieErrors
from tests.checks.devices import fleet, of

look = of("npu_pcie_errors")


def counts(*values: int) -> NpuPcieErrors:
    return NpuPcieErrors(by_card={card: {"RX Error Count": value} for card, value in enumerate(values)})


def test_none_and_those_of_every_card() -> None:
    assert look(fleet(counts(0, 0), counts(0, 0))) == []
    assert look(fleet(counts(1, 2), counts(1, 0))) == []


def test_a_card_with_errors() -> None:
    (finding,) = look(fleet(counts(0, 0), counts(0, 12)))
    assert str(finding) == "NPU card 1 has counted 12 PCIe errors; expected 0"
    assert finding.values["counters"] == {"RX Error Count": 12}
    assert len(look(fleet(counts(5)))) == 1
