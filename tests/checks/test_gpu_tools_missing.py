"""What gpu-tools-missing finds."""

from __future__ import annotations

from doctor.facts.gpu import GpuCards
from tests.checks.containers import place
from tests.checks.devices import of, skipped

look = of("gpu_tools_missing")


def test_a_host_with_its_tool() -> None:
    assert look(GpuCards(pci=8, driver="NVRM", tool=True)) == []
    assert look(GpuCards(pci=0, driver="", tool=True)) == []


def test_a_host_without() -> None:
    (finding,) = look(GpuCards(pci=8, driver="NVRM", tool=False))
    assert str(finding) == "nvidia-smi is not installed, on a host with 8 GPUs"


def test_a_container_need_not_have_it() -> None:
    assert "was not given" in skipped(look, GpuCards(pci=8, driver="NVRM", tool=False), place(engine="docker"))
