"""What gpu-lost finds."""

from __future__ import annotations

import pytest

from doctor.facts.gpu import GpuInventory
from tests.checks.gpu_hosts import gpu, gpus, log, tool
from tests.checks.run_check import messages, run_check

FALLEN = "NVRM: Xid (PCI:0000:02:00): 79, pid=1122, name=python, GPU has fallen off the bus."
WITHOUT_CODE = "NVRM: GPU 0000:02:00.0: GPU has fallen off the bus."


def listing(*numbers: int) -> GpuInventory:
    """nvidia-smi lists the GPUs at these addresses."""
    return gpus(*(gpu(number, bus=f"0000:{number:02x}:00.0") for number in numbers))


def test_a_report_and_other_failures_are_no_lost_gpu() -> None:
    for kind in ("", "mismatch", "hang", "no-devices"):
        assert messages(run_check("gpu-lost", {"w1": [tool(kind, "x")]})) == []


@pytest.mark.parametrize("name", ["gpu-lost", "gpu-inforom-corrupted"])
@pytest.mark.parametrize(
    ("kind", "cause"), [("hang", "gpu-tool-fails"), ("other", "gpu-tool-fails"), ("driver", "gpu-driver-not-loaded")]
)
def test_what_only_a_report_tells_is_unknown_without_one(name: str, kind: str, cause: str) -> None:
    outcome = run_check(name, {"w1": [tool(kind, "no answer in 30 s")]})
    assert not outcome.findings and outcome.unknown["w1"].root_cause == cause


def test_a_lost_gpu_by_its_number() -> None:
    """id 58977523224 of the index of GitHub texts."""
    text = "Unable to determine the device handle for GPU1: Unknown Error"
    ((_, shown),) = messages(run_check("gpu-lost", {"w1": [tool("lost", text, ("1",))]}))
    assert shown.startswith("the driver has lost GPU 1: ")


def test_the_lost_gpu_is_named() -> None:
    text = "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error"
    assert messages(run_check("gpu-lost", {"w1": [tool("lost", text, ("0000:03:00.0",))]})) == [
        ("w1", f"the driver has lost the GPU at 0000:03:00.0: {text}; expected an answer from every GPU")
    ]


def test_a_lost_gpu_without_address() -> None:
    ((_, text),) = messages(run_check("gpu-lost", {"w1": [tool("lost")]}))
    assert text.startswith("the driver has lost a GPU: GPU is lost")


@pytest.mark.parametrize("message", [FALLEN, WITHOUT_CODE])
def test_a_gpu_that_fell_off_the_bus_and_is_not_listed_is_lost(message: str) -> None:
    ((_, text),) = messages(run_check("gpu-lost", {"w1": [tool(), listing(0, 1, 3), log(message, age=60)]}))
    assert text == (
        "the GPU at 0000:02:00 fell off the bus 60 s ago, and nvidia-smi does not list it; expected an answer "
        "from every GPU"
    )


@pytest.mark.parametrize("age", [60, 86400])
def test_a_gpu_that_answers_again_is_not_lost(age: float) -> None:
    assert messages(run_check("gpu-lost", {"w1": [tool(), listing(0, 1, 2, 3), log(FALLEN, age=age)]})) == []


def test_a_gpu_that_nvidia_smi_reports_as_lost_is_one_finding() -> None:
    lost = tool("lost", "GPU is lost", ("0000:02:00.0",))
    assert len(run_check("gpu-lost", {"w1": [lost, listing(0, 1, 3), log(FALLEN, age=60)]}).findings) == 1


def test_other_faults_of_a_gpu_that_is_not_listed_are_those_of_other_checks() -> None:
    other = FALLEN.replace("79", "119").replace("GPU has fallen off the bus", "Timeout")
    assert messages(run_check("gpu-lost", {"w1": [tool(), listing(0, 1, 3), log(other, age=60)]})) == []


def test_without_the_kernel_log_nvidia_smi_decides() -> None:
    outcome = run_check("gpu-lost", {"w1": [tool(), listing(0, 1, 3)]})
    assert outcome.complete and not outcome.findings and not outcome.unknown
