import pytest

from doctor import PerHost, Skip
from doctor.facts.hccn.neighbour import Neighbour, Neighbours
from tests.checks.device_network import run_check


def leaf(*ports: str, mac: str = "a0:00", kind: str = "switch") -> Neighbours:
    return Neighbours(by_npu={npu: Neighbour(kind, mac, port) for npu, port in enumerate(ports)})  # type: ignore[arg-type]


def test_ports_of_their_own() -> None:
    facts = PerHost({"h1": leaf("1/0/1", "1/0/2"), "h2": leaf("1/0/3", "1/0/4"), "h3": leaf("1/0/1", mac="b0:00")})
    assert run_check("switch_port_shared", neighbours=facts) == []


def test_two_on_one() -> None:
    [finding] = run_check("switch_port_shared", neighbours=PerHost({"h1": leaf("1/0/1", "1/0/2"), "h2": leaf("1/0/2")}))
    assert finding.hosts == ("h1", "h2")
    expected = "NPU 1 of h1 and NPU 0 of h2 are on one port, 1/0/2 of the switch a0:00; expected a port for each"
    assert str(finding) == expected


def test_ports_without_a_name_and_direct_fibres_are_not_compared() -> None:
    facts = PerHost({"h1": leaf("", ""), "h2": leaf("eth0", "eth0", kind="npu")})
    with pytest.raises(Skip):
        run_check("switch_port_shared", neighbours=facts)
    assert run_check("switch_port_shared", neighbours=PerHost({**facts, "h3": leaf("1/0/1")})) == []


def test_cables_that_are_exchanged() -> None:
    facts = {host: leaf_of_each(host) for host in ("h1", "h2", "h3")}
    findings = run_check("switch_port_shared", neighbours=PerHost({**facts, "h4": leaf_of_each("h4", "b0", "a0")}))
    assert [(finding.hosts, finding.values["npu"], finding.values["other"]) for finding in findings] == [
        (("h4",), 0, 1),
        (("h4",), 1, 0),
    ]
    expected = "NPU 0 is at the switch b0:00, where 3 of 4 hosts have NPU 1; expected a0:00"
    assert str(findings[0]) == expected


def leaf_of_each(host: str, *switches: str) -> Neighbours:
    names = switches or ("a0", "b0")
    by_npu = {npu: Neighbour("switch", f"{mac}:00", f"{host}/{npu}") for npu, mac in enumerate(names)}
    return Neighbours(by_npu=by_npu)


def test_one_switch_for_all_npus_has_no_rails() -> None:
    facts = PerHost({host: leaf_of_each(host, "a0", "a0") for host in ("h1", "h2", "h3")})
    assert run_check("switch_port_shared", neighbours=PerHost({**facts, "h4": leaf_of_each("h4", "a0", "b0")})) == []
