"""What gpu-missing finds."""

from __future__ import annotations

from doctor.facts.gpu import GpuCards
from tests.checks.containers import place
from tests.checks.devices import gpus, of

look = of("gpu_missing")


def test_all_gpus_are_listed() -> None:
    assert look(GpuCards(pci=8, driver="NVRM", tool=True), gpus()) == []


def test_a_gpu_that_is_on_the_bus_alone() -> None:
    (finding,) = look(GpuCards(pci=8, driver="NVRM", tool=True), gpus(7))
    assert str(finding) == "nvidia-smi lists 7 GPUs, but the PCI bus shows 8"


def test_in_a_container_its_device_files_are_the_norm() -> None:
    cards = GpuCards(pci=8, driver="NVRM", tool=True)
    assert look(cards, gpus(2), place("nvidia0", "nvidia1", engine="docker")) == []
    (finding,) = look(cards, gpus(1), place("nvidia0", "nvidia1", engine="docker"))
    assert str(finding) == "nvidia-smi lists 1 GPU, but the container was given 2"
