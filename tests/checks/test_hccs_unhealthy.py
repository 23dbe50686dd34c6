"""What hccs-unhealthy finds."""

from __future__ import annotations

from doctor.facts.npu_fabric import NpuHccs
from tests.checks.devices import of

look = of("hccs_unhealthy")


def test_healthy_links() -> None:
    assert look(NpuHccs(health={"0-0": "OK"}, errors={"0-0": 3})) == []


def test_links_that_are_not() -> None:
    (finding,) = look(NpuHccs(health={"0-0": "OK", "3-1": "NOK"}, errors={"3-1": 7}))
    assert str(finding) == "the HCCS links of NPU card 3 chip 1 report NOK; expected OK"
    assert finding.values["errors"] == 7
