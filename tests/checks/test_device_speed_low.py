from typing import Any

import pytest

from doctor import Finding, PerHost, Skip
from doctor.engine.fact import Unreadable
from doctor.facts.hccn.link_state import DeviceSpeed
from tests.checks.device_network import HOSTS, fleet, links, per, run_check


def list_findings(family: str, speed: int, **outlier: Any) -> list[Finding]:
    """All at ``speed``, except what ``outlier`` says of h2."""
    usual = DeviceSpeed(by_npu=dict.fromkeys(range(8), speed))
    facts = PerHost({**per(HOSTS, usual), "h2": DeviceSpeed(by_npu={**usual.by_npu, **outlier.get("by_npu", {})})})
    return run_check("device_speed_low", speeds=facts, links=per(HOSTS, links()), **fleet(family))


@pytest.mark.parametrize(("family", "speed"), [("A1", 100_000), ("A2", 200_000), ("A3", 200_000), ("A3", 400_000)])
def test_at_rated_speed(family: str, speed: int) -> None:
    assert list_findings(family, speed) == []


def test_a_slow_one() -> None:
    [finding] = list_findings("A2", 200_000, by_npu={3: 100_000})
    assert finding.hosts == ("h2",)
    assert str(finding) == "100 Gb/s on the link of NPU 3; expected 200 Gb/s"


def test_a_whole_fleet_below_the_rated_speed() -> None:
    assert [finding.hosts for finding in list_findings("A2", 100_000)] == [(host,) for host in HOSTS]


def test_where_no_speed_is_rated_the_majority_is_the_norm() -> None:
    [finding] = list_findings("A3", 400_000, by_npu={3: 200_000})
    assert finding.values["expected"] == "400"


def test_a_link_that_is_up_without_a_speed_cannot_be_judged() -> None:
    facts = per(("h1",), DeviceSpeed(by_npu={}, unknown=(0,)))
    with pytest.raises(Unreadable, match="NPU 0 of h1"):
        run_check("device_speed_low", speeds=facts, links=per(("h1",), links()), **fleet("A2", ("h1",)))


def test_no_link_is_up() -> None:
    facts, down = per(("h1",), DeviceSpeed(by_npu={}, unknown=(0,))), per(("h1",), links(down=(0,)))
    with pytest.raises(Skip):
        run_check("device_speed_low", speeds=facts, links=down, **fleet("A2", ("h1",)))
