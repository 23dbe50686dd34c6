"""What gpu-lost finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import tool
from tests.checks.looked import judged, said


def test_a_report_and_other_failures_are_no_lost_gpu() -> None:
    for kind in ("", "mismatch", "hang", "no-devices"):
        assert said(judged("gpu-lost", {"w1": [tool(kind, "x")]})) == []


def test_the_lost_gpu_is_named() -> None:
    text = "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error"
    assert said(judged("gpu-lost", {"w1": [tool("lost", text, ("0000:03:00.0",))]})) == [
        ("w1", f"the driver has lost the GPU at 0000:03:00.0: {text}; expected an answer from every GPU")
    ]


def test_a_lost_gpu_without_address() -> None:
    ((_, text),) = said(judged("gpu-lost", {"w1": [tool("lost")]}))
    assert text.startswith("the driver has lost a GPU: GPU is lost")
