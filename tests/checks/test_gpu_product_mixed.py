"""What gpu-product-mixed finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import fleet, messages, run_check


def test_another_product() -> None:
    hosts = {**fleet(2, gpus()), "w3": [gpus(gpu(0, name="NVIDIA A100-SXM4-80GB"))]}
    assert messages(run_check("gpu-product-mixed", hosts)) == [
        ("w3", "its GPUs are NVIDIA A100-SXM4-80GB; 2 of 3 hosts have NVIDIA H100 80GB HBM3")
    ]
