"""What gpu-topology-differs finds."""

from __future__ import annotations

from doctor.engine.result import accused_hosts
from doctor.facts.nvlink import GpuTopology
from tests.checks.run_check import fleet, messages, run_check, skipped

USUAL = GpuTopology(links=(("GPU0", "X", "NV12", "PXB"), ("GPU1", "NV12", "X", "SYS"), ("NIC0", "PXB", "SYS", "X")))
OTHER = GpuTopology(links=(("GPU0", "X", "NV12", "SYS"), ("GPU1", "NV12", "X", "SYS"), ("NIC0", "SYS", "SYS", "X")))
FEWER = GpuTopology(links=(("GPU0", "X", "NV12"), ("GPU1", "NV12", "X")))


def test_equal_hosts_and_fleets_too_small_to_compare() -> None:
    assert messages(run_check("gpu-topology-differs", fleet(3, USUAL))) == []
    assert skipped(run_check("gpu-topology-differs", {"w1": [USUAL]}))


def test_without_a_majority_the_difference_is_named_and_no_host() -> None:
    halves = {**fleet(2, USUAL), "w3": [OTHER], "w4": [OTHER]}
    (finding,) = run_check("gpu-topology-differs", halves).findings
    assert finding.values["groups"] == {
        "GPU0-NIC0 PXB": ["w1", "w2"],
        "GPU0-NIC0 SYS": ["w3", "w4"],
    }
    assert accused_hosts(finding, 4) == ()
    (finding,) = run_check("gpu-topology-differs", {"w1": [USUAL], "w2": [FEWER]}).findings
    assert finding.values["groups"] == {"GPU0, GPU1": ["w2"], "GPU0, GPU1, NIC0": ["w1"]}


def test_each_difference_is_named_once() -> None:
    hosts = {**fleet(3, USUAL), "w4": [OTHER], "w5": [FEWER]}
    assert messages(run_check("gpu-topology-differs", hosts)) == [
        ("w4", "GPU0-NIC0 is SYS, not PXB; 3 of 5 hosts are alike"),
        ("w5", "devices GPU0, GPU1 in place of GPU0, GPU1, NIC0; 3 of 5 hosts are alike"),
    ]


def test_a_topology_that_was_cut_is_not_another_one() -> None:
    cut = GpuTopology(links=USUAL.links[:2], unread={"nvidia-smi topo -m": "2 of 3 rows could be read"})
    outcome = run_check("gpu-topology-differs", {**fleet(3, USUAL), "w4": [cut]})
    assert messages(outcome) == [] and "w4" in outcome.unknown
