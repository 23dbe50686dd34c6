"""What nvidia-smi says by its manual, and what is made of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.gpu import GpuCards, GpuInventory, detect_gpus
from tests.facts.answers import answered, learned, read_outputs


def test_no_gpu_is_a_value() -> None:
    assert read_outputs(GpuInventory, one=Output(out="No devices were found\n")) == GpuInventory(gpus=())


def test_a_tool_that_fails() -> None:
    message = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    assert isinstance(read_outputs(GpuInventory, one=Output(code=9, out=message)), Unreadable)
    assert isinstance(read_outputs(GpuInventory, one=Output(out="")), Unreadable)
    assert read_outputs(GpuInventory, one=Output(ended="absent", err="nvidia-smi is not installed")) == Absent(
        "nvidia-smi is not installed"
    )


def test_the_cards() -> None:
    assert answered(GpuCards, {"pci": 8, "driver": "NVRM version: x", "tool": True}) == GpuCards(
        pci=8, driver="NVRM version: x", tool=True
    )
    assert type(answered(GpuCards, {"pci": 0, "driver": "", "tool": False})) is Absent
    assert type(answered(GpuCards, detect_gpus({}))) in (Absent, GpuCards)


@given(st.one_of(st.none(), st.text(), st.fixed_dictionaries({"pci": st.just(1)})))
def test_any_other_answer_is_unreadable(value: Any) -> None:
    assert isinstance(answered(GpuCards, value), Absent)


@given(st.binary(max_size=300))
def test_noise_is_never_a_healthy_gpu(noise: bytes) -> None:
    value = learned(GpuInventory, {"": Output(out=noise.decode("utf-8", "replace"))})
    assert isinstance(value, Absent) or (value.unread and not value.gpus)
