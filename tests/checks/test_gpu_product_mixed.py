"""What gpu-product-mixed finds."""

from __future__ import annotations

import pytest

from doctor.facts.gpu import GpuInventory
from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import fleet, messages, run_check


def test_another_product() -> None:
    hosts = {**fleet(2, gpus()), "w3": [gpus(gpu(0, name="NVIDIA A100-SXM4-80GB"))]}
    assert messages(run_check("gpu-product-mixed", hosts)) == [
        ("w3", "its GPUs are NVIDIA A100-SXM4-80GB; 2 of 3 hosts have NVIDIA H100 80GB HBM3")
    ]


A100 = "NVIDIA A100 80GB PCIe"


def test_less_memory_than_the_siblings() -> None:
    eight = [gpu(n) for n in range(8)]
    short = gpus(*eight[:3], gpu(3, memory=40780), *eight[4:])
    text = "GPU 3 has 40780 MiB of memory; {0} of {1} GPUs NVIDIA H100 80GB HBM3 have 81559 MiB"
    assert messages(run_check("gpu-product-mixed", {"w1": [short]})) == [("w1", text.format(7, 8))]
    hosts = {**fleet(2, gpus()), "w3": [short]}
    assert messages(run_check("gpu-product-mixed", hosts)) == [("w3", text.format(23, 24))]
    two = gpus(gpu(0), gpu(1, memory=40780))
    assert messages(run_check("gpu-product-mixed", {"w1": [two]})) == [
        ("w1", "GPU 1 has 40780 MiB of memory; 1 of 2 GPUs NVIDIA H100 80GB HBM3 have 81559 MiB")
    ]


@pytest.mark.parametrize(
    "own",
    [
        gpus(*(gpu(n, name=A100 if n < 4 else "NVIDIA A30", memory=81920 if n < 4 else 24576) for n in range(8))),
        gpus(gpu(0, memory=81251), *(gpu(n) for n in range(1, 4))),  # what the driver reserves
        gpus(gpu(0, ecc_mode="Enabled", memory=22731), *(gpu(n, ecc_mode="Disabled", memory=24564) for n in (1, 2))),
        gpus(gpu(0, memory=None), gpu(1, memory=None), gpu(2)),  # shares the host's
        gpus(gpu(0, mig="Enabled", memory=81038), *(gpu(n) for n in range(1, 4))),
    ],
)
def test_mixed_products_and_memory_that_is_in_use_are_innocent(own: GpuInventory) -> None:
    assert messages(run_check("gpu-product-mixed", {"w1": [own]})) == []
    assert messages(run_check("gpu-product-mixed", fleet(3, own))) == []


def test_less_memory_in_one_place_of_all_hosts_is_meant_so() -> None:
    own = gpus(gpu(0, memory=40780), gpu(1), gpu(2), gpu(3))
    assert messages(run_check("gpu-product-mixed", fleet(3, own))) == []
