"""What gpu-inforom-corrupted finds."""

from __future__ import annotations

import msgspec

from tests.checks.gpu_hosts import tool
from tests.checks.run_check import messages, run_check


def test_a_tool_without_the_warning() -> None:
    assert messages(run_check("gpu-inforom-corrupted", {"w1": [tool()]})) == []


def test_the_gpu_is_named_where_the_warning_names_it() -> None:
    damaged = msgspec.structs.replace(tool(), damaged=("0000:2a:00.0", ""))
    assert [text for _, text in messages(run_check("gpu-inforom-corrupted", {"w1": [damaged]}))] == [
        "the infoROM of the GPU at 0000:2a:00.0 is corrupted: nvidia-smi prints this warning",
        "the infoROM of a GPU is corrupted: nvidia-smi prints this warning",
    ]
