"""What npu-firmware-incompatible finds."""

from __future__ import annotations

import pytest

from doctor.facts.npu_counters import NpuCompatibility
from tests.checks.devices import of

look = of("npu_firmware_incompatible")


@pytest.mark.parametrize("state", ["OK", "UNKNOWN", "NOT SUPPORT"])
def test_what_is_no_contradiction(state: str) -> None:
    assert look(NpuCompatibility(by_card={0: state}, firmware={})) == []


def test_firmware_that_does_not_fit() -> None:
    (finding,) = look(NpuCompatibility(by_card={0: "OK", 2: "NOK"}, firmware={2: "7.1.0.7.220"}))
    assert str(finding) == "the firmware 7.1.0.7.220 of NPU card 2 is not compatible with the driver"


def test_all_cards_with_one_version_are_one_finding() -> None:
    found = look(NpuCompatibility(by_card=dict.fromkeys(range(5), "NOK"), firmware={4: "7.1", 1: "6", 3: "6"}))
    assert [finding.values["cards"] for finding in found] == [[0, 2], [1, 3], [4]]
