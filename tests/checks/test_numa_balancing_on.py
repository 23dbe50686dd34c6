"""What numa-balancing-on finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import cards, settings
from tests.checks.run_check import messages, run_check, skipped


def test_off_and_memory_tiering() -> None:
    assert messages(run_check("numa-balancing-on", {"w1": [settings(), cards()]})) == []
    assert messages(run_check("numa-balancing-on", {"w1": [settings(numa_balancing=2), cards()]})) == []


def test_on() -> None:
    assert messages(run_check("numa-balancing-on", {"w1": [settings(numa_balancing=1), cards()]})) == [
        ("w1", "kernel.numa_balancing is 1, on a host with 2 NUMA nodes; expected 0")
    ]


def test_one_node_no_accelerator_or_no_such_setting() -> None:
    assert skipped(run_check("numa-balancing-on", {"w1": [settings(numa_balancing=1, numa_nodes=1), cards()]}))
    assert skipped(run_check("numa-balancing-on", {"w1": [settings(numa_balancing=1)]}))
    assert skipped(run_check("numa-balancing-on", {"w1": [settings(numa_balancing=None), cards()]}))
