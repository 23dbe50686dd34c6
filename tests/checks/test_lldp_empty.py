import pytest

from doctor import PerHost, Skip
from doctor.facts.hccn.neighbour import Neighbour, Neighbours
from tests.checks.device_network import HOSTS, links, per, run_check

NEIGHBOURS = Neighbours(by_npu={npu: Neighbour("switch", "m", f"p{npu}") for npu in range(8)})
DEAF = Neighbours(by_npu={0: Neighbour("switch", "m", "p0")}, without_neighbour=(1, 2))


def test_every_npu_receives_lldp() -> None:
    assert run_check("lldp_empty", neighbours=per(HOSTS, NEIGHBOURS), links=per(HOSTS, links())) == []


def test_those_that_hear_nothing_are_named() -> None:
    [finding] = run_check("lldp_empty", neighbours=PerHost({"h1": NEIGHBOURS, "h2": DEAF}), links=None)
    assert finding.hosts == ("h2",)
    assert finding.values["npus"] == [1, 2]


def test_without_a_link_there_is_nothing_to_hear() -> None:
    facts = PerHost({"h1": NEIGHBOURS, "h2": DEAF})
    assert run_check("lldp_empty", neighbours=facts, links=per(HOSTS, links(down=(1, 2)))) == []


def test_switches_without_lldp() -> None:
    with pytest.raises(Skip):
        run_check(
            "lldp_empty", neighbours=per(HOSTS, Neighbours(by_npu={}, without_neighbour=tuple(range(8)))), links=None
        )
