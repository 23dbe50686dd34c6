"""What gpu-pcie-replays finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import messages, run_check


def test_gpus_that_count_little_or_alike() -> None:
    few = {"w1": [gpus(*(gpu(n, replays=n) for n in range(8)))]}
    assert messages(run_check("gpu-pcie-replays", few)) == []
    alike = {"w1": [gpus(*(gpu(n, replays=5000 + n) for n in range(8)))]}
    assert messages(run_check("gpu-pcie-replays", alike)) == []
    assert messages(run_check("gpu-pcie-replays", {"w1": [gpus(gpu(0, replays=None))]})) == []


def test_one_among_many() -> None:
    hosts = {
        "w1": [gpus(*(gpu(n, replays=0) for n in range(8)))],
        "w2": [gpus(gpu(0, replays=124530), gpu(1, replays=2))],
    }
    assert messages(run_check("gpu-pcie-replays", hosts)) == [
        ("w2", "GPU 0 has sent 124530 PCIe packets a second time; the median of 10 GPUs is 0")
    ]


def test_a_single_gpu_is_judged_by_the_least_number() -> None:
    assert messages(run_check("gpu-pcie-replays", {"w1": [gpus(gpu(0, replays=99))]})) == []
    assert len(messages(run_check("gpu-pcie-replays", {"w1": [gpus(gpu(0, replays=101))]}))) == 1
