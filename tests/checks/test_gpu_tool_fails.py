"""What gpu-tool-fails finds."""

from __future__ import annotations

import pytest

from tests.checks.gpu_hosts import cards, gpu, gpus, tool
from tests.checks.run_check import messages, run_check, skipped


@pytest.mark.parametrize("kind", ["", "lost", "mismatch", "no-devices"])
def test_an_answer_and_what_other_checks_report(kind: str) -> None:
    assert messages(run_check("gpu-tool-fails", {"w1": [tool(kind), cards()]})) == []


@pytest.mark.parametrize("kind", ["hang", "denied", "other", "driver"])
def test_no_report(kind: str) -> None:
    assert messages(run_check("gpu-tool-fails", {"w1": [tool(kind, "no answer in 30 s"), cards()]})) == [
        ("w1", "nvidia-smi gave no report on a host with 8 GPUs: no answer in 30 s")
    ]


def test_without_a_driver_it_is_not_the_tool() -> None:
    assert skipped(run_check("gpu-tool-fails", {"w1": [tool("driver"), cards(driver="")]}))
    assert skipped(run_check("gpu-tool-fails", {"w1": [tool("driver"), cards(pci=0)]}))


def test_a_value_that_cannot_be_read() -> None:
    lost = gpu(3, failed={"temperature": "GPU is lost"})
    outcome = run_check("gpu-tool-fails", {"w1": [tool(), cards(), gpus(gpu(0), lost)]})
    ((host, text),) = messages(outcome)
    assert host == "w1" and text.startswith("nvidia-smi cannot read temperature of GPU 3")
