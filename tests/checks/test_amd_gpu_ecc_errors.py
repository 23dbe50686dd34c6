"""What amd-gpu-ecc-errors finds; what amd-smi prints is tried in tests/facts/test_amd_smi.py."""

from __future__ import annotations

from doctor.facts.amd_smi import AmdGpu
from tests.checks.amd_hosts import gpus, hosts_with_findings


def test_healthy_hosts() -> None:
    assert hosts_with_findings("amd-gpu-ecc-errors") == set()


def test_the_fault_is_found() -> None:
    sick = gpus(AmdGpu(0, "0000:05:00.0", "AMD Instinct MI250X", uncorrectable=2))
    assert hosts_with_findings("amd-gpu-ecc-errors", sick) == {"w3"}


def test_a_gpu_that_has_retired_too_many_pages() -> None:
    sick = gpus(AmdGpu(0, "0000:05:00.0", "AMD Instinct MI300X", uncorrectable=0, retires_too_many=True))
    assert hosts_with_findings("amd-gpu-ecc-errors", sick) == {"w3"}
