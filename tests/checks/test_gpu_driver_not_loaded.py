"""What gpu-driver-not-loaded finds."""

from __future__ import annotations

from doctor.facts.gpu import GpuCards
from tests.checks.devices import of

look = of("gpu_driver_not_loaded")


def test_a_loaded_driver() -> None:
    assert look(GpuCards(pci=8, driver="NVRM version", tool=True)) == []
    assert look(GpuCards(pci=0, driver="", tool=True)) == []


def test_no_driver() -> None:
    (finding,) = look(GpuCards(pci=8, driver="", tool=True))
    assert str(finding) == "the NVIDIA driver is not loaded, on a host with 8 GPUs"
