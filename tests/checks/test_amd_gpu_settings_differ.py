"""What amd-gpu-settings-differ finds; what amd-smi prints is tried in tests/facts/test_amd_smi.py."""

from __future__ import annotations

from doctor.facts.accelerators import OtherAccelerators
from doctor.facts.amd_smi import AmdGpu, AmdGpus
from tests.checks.run_check import messages, run_check
from tests.facts.answers import answered

BUS = answered(
    OtherAccelerators, {"devices": [[f"0000:{n}5:00.0", "1002", "74a1", "1200", "amdgpu"] for n in (0, 1)], "files": []}
)


def gpus(*listed: AmdGpu) -> AmdGpus:
    return AmdGpus(gpus=listed or (AmdGpu(0, "0000:05:00.0", "AMD Instinct MI300X"), AmdGpu(1, "0000:15:00.0")))


def test_healthy_hosts() -> None:
    hosts = {name: [gpus(), BUS] for name in ("w1", "w2")}
    assert messages(run_check("amd-gpu-settings-differ", hosts)) == []


def test_the_fault_is_found() -> None:
    sick = gpus(AmdGpu(0, "0000:05:00.0", "AMD Instinct MI250X", uncorrectable=2))
    hosts = {"w1": [gpus(), BUS], "w2": [gpus(), BUS], "w3": [sick, BUS]}
    found = messages(run_check("amd-gpu-settings-differ", hosts))
    assert {host for host, _ in found} == {"w3"}


def test_each_setting() -> None:
    usual = AmdGpu(0, "0000:05:00.0", "MI300X", "6.10.5", compute_partition="SPX", memory_partition="NPS1")
    other = AmdGpu(0, "0000:05:00.0", "MI250X", "6.8.0", compute_partition="CPX", memory_partition="NPS4")
    hosts = {"w1": [gpus(usual), BUS], "w2": [gpus(usual), BUS], "w3": [gpus(other), BUS]}
    assert [text.partition(" of its")[0] for _, text in messages(run_check("amd-gpu-settings-differ", hosts))] == [
        "the product",
        "the driver",
        "the compute partition",
        "the memory partition",
    ]
