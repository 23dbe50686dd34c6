"""Hosts with two AMD GPUs, for the checks of amd-smi's answers."""

from __future__ import annotations

from doctor.facts.accelerators import OtherAccelerators
from doctor.facts.amd_smi import AmdGpu, AmdGpus
from tests.checks.run_check import messages, run_check
from tests.facts.answers import answered

BUS = answered(
    OtherAccelerators, {"devices": [[f"0000:{n}5:00.0", "1002", "74a1", "1200", "amdgpu"] for n in (0, 1)], "files": []}
)


def gpus(*listed: AmdGpu) -> AmdGpus:
    """What amd-smi lists; by default two sound GPUs."""
    return AmdGpus(gpus=listed or (AmdGpu(0, "0000:05:00.0", "AMD Instinct MI300X"), AmdGpu(1, "0000:15:00.0")))


def hosts_with_findings(check: str, sick: AmdGpus | None = None) -> set[str]:
    """The hosts that a check names, of two healthy ones, and of a third with ``sick``."""
    fleet = {name: [gpus(), BUS] for name in ("w1", "w2")}
    if sick is not None:
        fleet["w3"] = [sick, BUS]
    return {host for host, _ in messages(run_check(check, fleet))}
