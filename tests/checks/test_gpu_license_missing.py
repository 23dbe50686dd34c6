"""What gpu-license-missing finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import messages, run_check, skipped


def test_a_virtual_gpu_with_its_licence() -> None:
    assert messages(run_check("gpu-license-missing", {"w1": [gpus(gpu(name="GRID T4-4C", license="Licensed"))]})) == []


def test_a_virtual_gpu_without() -> None:
    bare = gpu(name="NVIDIA L40S-2Q", license="Unlicensed (Restricted)")
    assert messages(run_check("gpu-license-missing", {"w1": [gpus(bare)]})) == [
        ("w1", "GPU 0 (NVIDIA L40S-2Q): Unlicensed (Restricted); expected Licensed")
    ]


def test_a_whole_gpu_needs_none() -> None:
    for name in ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla V100-PCIE-16GB", "NVIDIA A100-PCIE-40GB"):
        assert skipped(run_check("gpu-license-missing", {"w1": [gpus(gpu(name=name, license="Unlicensed"))]})), name
