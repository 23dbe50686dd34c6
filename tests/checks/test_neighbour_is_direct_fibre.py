from typing import Any

import pytest

from doctor import Finding, PerHost, Skip
from doctor.facts.hccn.neighbour import Neighbour, Neighbours
from tests.checks.device_network import fleet, per, rails, run_check

PAIR = ("h1", "h2")


def fibres(ends: dict[tuple[str, int], str], hosts: tuple[str, ...]) -> Any:
    """Which address each NPU hears at the other end of its fibre; all others hear a switch."""
    return PerHost(
        {
            host: Neighbours(
                by_npu={
                    npu: Neighbour("npu", "m", "p", "", ends[host, npu])
                    if (host, npu) in ends
                    else Neighbour("switch", "s", f"p{npu}")
                    for npu in range(8)
                }
            )
            for host in hosts
        }
    )


def list_findings(ends: dict[tuple[str, int], str], hosts: tuple[str, ...], addresses: Any = None) -> list[Finding]:
    around = fleet("A2", hosts)
    return run_check("neighbour_is_direct_fibre", neighbours=fibres(ends, hosts), addresses=addresses, **around)


def test_switches() -> None:
    assert list_findings({}, ("h1", "h2", "h3")) == []


def test_a_fibre_among_three_hosts() -> None:
    [finding] = list_findings({("h2", 4): "172.16.4.1"}, ("h1", "h2", "h3"), rails(("h1", "h2", "h3")))
    assert finding.hosts == ("h2",)
    assert str(finding) == "a fibre leads from NPU 4 directly to NPU 4 of h1; expected a switch"


def straight() -> dict[tuple[str, int], str]:
    """Two hosts joined number by number."""
    return {(host, npu): f"172.16.{npu}.{2 - n}" for n, host in enumerate(PAIR) for npu in range(8)}


def test_two_hosts_joined_number_by_number() -> None:
    assert list_findings(straight(), PAIR, rails(PAIR)) == []


def test_two_fibres_crossed() -> None:
    ends = {**straight(), ("h1", 4): "172.16.5.2", ("h1", 5): "172.16.4.2"}
    first, second = list_findings(ends, PAIR, rails(PAIR))
    assert str(first) == "a fibre leads from NPU 4 directly to NPU 5 of h2; expected NPU 4 of the other host"
    assert second.values["npu"] == 5


def test_a_fibre_back_into_the_same_host() -> None:
    [finding] = list_findings({("h1", 0): "172.16.1.1"}, PAIR, rails(PAIR))
    assert finding.values["observed"] == "NPU 1 of h1"


def test_an_end_that_is_not_known_is_not_accused() -> None:
    assert list_findings({("h1", 0): ""}, PAIR, None) == []


def test_one_host() -> None:
    with pytest.raises(Skip):
        run_check("neighbour_is_direct_fibre", neighbours=per(("h1",), Neighbours(by_npu={})), **fleet("A2", ("h1",)))


def test_nothing_is_heard() -> None:
    with pytest.raises(Skip):
        run_check("neighbour_is_direct_fibre", neighbours=per(PAIR, Neighbours(by_npu={})), **fleet("A2", PAIR))
