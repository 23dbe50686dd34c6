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


def test_a_link_with_fewer_lanes_than_the_same_link_of_most_chips() -> None:
    states = {f"{n}-0": "OK" for n in range(8)}
    lanes = dict.fromkeys(states, (4, 4, 4)) | {"3-0": (4, 2, 4)}
    (finding,) = look(NpuHccs(health=states, errors={}, lanes=lanes))
    assert finding.is_warning
    assert str(finding) == "HCCS link 1 of NPU card 3 chip 0 uses 2 lanes; expected 4"


def test_links_that_all_chips_have_alike_are_a_design() -> None:
    states = {f"{n}-0": "OK" for n in range(8)}
    assert look(NpuHccs(health=states, errors={}, lanes=dict.fromkeys(states, (2, 4, 0)))) == []
    assert look(NpuHccs(health={"0-0": "OK"}, errors={}, lanes={"0-0": (2, 4)})) == []


def test_a_lane_with_an_error() -> None:
    (finding,) = look(NpuHccs(health={"0-0": "OK"}, errors={}, first_error_lane={"0-0": "2"}))
    assert finding.is_warning
    assert finding.values["observed"] == "2"
