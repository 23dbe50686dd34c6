"""What gpu-driver-not-loaded finds."""

from __future__ import annotations

from doctor.facts.gpu import Gpu, GpuCards, GpuInventory
from tests.checks.devices import of

look = of("gpu_driver_not_loaded")


def test_a_loaded_driver() -> None:
    assert look(GpuCards(pci=8, driver="NVRM version", tool=True)) == []
    assert look(GpuCards(pci=0, driver="", tool=True)) == []


def test_no_driver() -> None:
    (finding,) = look(GpuCards(pci=8, driver="", tool=True))
    assert str(finding) == "the NVIDIA driver is not loaded, on a host with 8 GPUs"


def test_nvidia_smi_lists_gpus_where_the_file_of_the_version_is_hidden() -> None:
    """On an H200 with another file mounted over /proc/driver/nvidia/version, the job ran."""
    listed = GpuInventory(gpus=(Gpu(0, "NVIDIA H200", "GPU-0b0cd39b", "580.159.03", 143771, 0),))
    assert look(GpuCards(pci=1, driver="", tool=True), None, listed) == []
    assert len(look(GpuCards(pci=1, driver="", tool=True), None, GpuInventory(gpus=()))) == 1
