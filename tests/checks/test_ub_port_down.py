"""What ub-port-down finds."""

from __future__ import annotations

from doctor.facts.hccn.link_state import UbPorts
from tests.checks.run_check import messages, run_check

UP = {"0/4": "UP", "0/5": "UP", "0/6": "UP"}
PART = {**UP, "0/5": "DOWN"}


def host(**different: dict[str, str]) -> UbPorts:
    """Four NPUs; ``npu2=PART`` for one that differs."""
    return UbPorts(by_npu={npu: different.get(f"npu{npu}", UP) for npu in range(4)})


def test_all_ports_are_up() -> None:
    assert messages(run_check("ub-port-down", {"w1": [host()], "w2": [host()], "w3": [host()]})) == []


def test_a_port_that_its_peers_on_other_hosts_have() -> None:
    fact = messages(run_check("ub-port-down", {"w1": [host()], "w2": [host(npu2=PART)], "w3": [host()]}))
    assert fact == [("w2", "UB port 0/5 (die/port) of NPU 2 is down; its peers have a link")]


def test_on_a_single_host_the_other_npus_are_the_norm() -> None:
    assert messages(run_check("ub-port-down", {"w1": [host(npu3=PART)]})) == [
        ("w1", "UB port 0/5 (die/port) of NPU 3 is down; its peers have a link")
    ]


def test_a_port_that_is_cabled_on_no_host() -> None:
    everywhere = host(npu0=PART, npu1=PART, npu2=PART, npu3=PART)
    assert messages(run_check("ub-port-down", {"w1": [everywhere], "w2": [everywhere], "w3": [everywhere]})) == []
    assert messages(run_check("ub-port-down", {"w1": [everywhere]})) == []


def test_two_npus_are_too_few_to_tell() -> None:
    assert messages(run_check("ub-port-down", {"w1": [UbPorts(by_npu={0: UP, 1: PART})]})) == []
