"""What gpu-topology-differs finds."""

from __future__ import annotations

import pytest

from doctor.engine.fact import Output
from doctor.engine.result import accused_hosts
from doctor.facts.nvlink import GpuTopology
from tests.checks.gpu_hosts import H100, gpu, gpus
from tests.checks.run_check import fleet, messages, run_check, skipped
from tests.facts.answers import read_outputs

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


def matrix(count: int, dark: int = -1, **cells: str) -> GpuTopology:
    """All GPUs joined by NVLink but one; single cells by name, as ``GPU0_GPU1``."""
    names = [f"GPU{number}" for number in range(count)]
    rows = []
    for row, name in enumerate(names):
        links = ["X" if row == other else "NODE" if dark in (row, other) else "NV12" for other in range(count)]
        rows.append([name, *(cells.get(f"{name}_{other}", link) for other, link in zip(names, links, strict=True))])
    text = "\n".join("\t".join(row) for row in [["", *names, "CPU Affinity"], *rows])
    return read_outputs(GpuTopology, one=Output(out=text))


def test_one_gpu_without_nvlink_where_all_others_have_it() -> None:
    assert messages(run_check("gpu-topology-differs", {"w1": [matrix(8, dark=3), gpus()]})) == [
        ("w1", f"GPU 3 is connected by NODE; the other 7 GPUs {H100} by NVLink")
    ]


@pytest.mark.parametrize(
    ("count", "products"),
    [
        (8, ["Tesla V100-SXM2-32GB"] * 8),  # no more than four of eight reach each other: GPUs 0, 1, 2 and 7
        (4, ["NVIDIA H200 NVL"] * 4),  # three of a bridge of four, and one of another bridge
        (5, ["NVIDIA A100-SXM4-80GB"] * 3 + ["NVIDIA DGX Display", "NVIDIA A100-SXM4-80GB"]),  # DGX Station
        (3, ["NVIDIA A100-SXM4-80GB"] * 3),
    ],
)
def test_gpus_that_need_no_nvlink_to_the_others(count: int, products: list[str]) -> None:
    own = gpus(*(gpu(number, name=name) for number, name in enumerate(products)))
    assert messages(run_check("gpu-topology-differs", {"w1": [matrix(count, dark=3 if count > 3 else 2), own]})) == []
    divided = gpus(*(gpu(number, mig="Enabled" if number == 3 else "Disabled") for number in range(8)))
    assert messages(run_check("gpu-topology-differs", {"w1": [matrix(8, dark=3), divided]})) == []


def test_a_table_that_contradicts_itself_is_unknown() -> None:
    odd = matrix(4, GPU2_GPU1="SYS")
    assert odd.unread == {"nvidia-smi topo -m": "GPU1-GPU2 is NV12, and GPU2-GPU1 is SYS"}
    outcome = run_check("gpu-topology-differs", {**fleet(3, matrix(4)), "w4": [odd, gpus()]})
    assert messages(outcome) == [] and "w4" in outcome.unknown
