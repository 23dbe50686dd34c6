"""What amd-gpu-fault-logged finds; the messages are those of the source of amdgpu."""

from __future__ import annotations

import pytest

from doctor.facts.kernel_log import KernelLog, LogLine
from tests.checks.gpu_hosts import log
from tests.checks.run_check import messages, run_check

ERRORS = {
    "amdgpu 0000:05:00.0: amdgpu: socket: 0, die: 0 1 uncorrectable hardware errors detected in umc block": "(umc)",
    "amdgpu 0000:05:00.0: amdgpu: poison is consumed by client 16, kick off gpu reset flow": "a program has used",
    "amdgpu 0000:03:00.0: amdgpu: GPU reset(2) failed": "could not be reset",
    "amdgpu 0000:03:00.0: amdgpu: GPU mode1 reset failed": "could not be reset",
    "amdgpu 0000:03:00.0: amdgpu: Fatal error during GPU init": "could not start",
    "amdgpu 0000:c1:00.0: amdgpu: device lost from bus!": "fallen off the bus",
    "amdgpu 0000:05:00.0: amdgpu: Saved bad pages 128 reaches threshold value 128": "replace the GPU",
}
WARNINGS = (
    "amdgpu 0000:05:00.0: amdgpu: socket: 0, die: 0 2 deferred hardware errors detected in umc block",
    "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
    "amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=12, emitted seq=14",
)
QUIET = (
    "amdgpu 0000:05:00.0: amdgpu: socket: 0, die: 0 0 uncorrectable hardware errors detected in umc block",
    "amdgpu 0000:05:00.0: amdgpu: socket: 0, die: 0 3 correctable hardware errors detected in total in umc block",
    "amdgpu 0000:05:00.0: amdgpu: 7 uncorrectable hardware errors detected in total in gfx block",
    "amdgpu 0000:03:00.0: amdgpu: [gfxhub0] retry page fault (src_id:0 ring:24 vmid:8 pasid:32771)",
    "amdgpu 0000:03:00.0: amdgpu: GPU reset(2) succeeded!",
    "amdgpu 0000:03:00.0: amdgpu: SMU is initialized successfully!",
    "[drm] amdgpu kernel modesetting enabled.",
    "amdgpu 0000:03:00.0: amdgpu: RAS INFO: ras initialized successfully, hardware ability[67fff] ras_mask[67fff]",
)


@pytest.mark.parametrize("message", ERRORS)
def test_what_asks_for_a_reset_or_a_replacement_is_an_error(message: str) -> None:
    (finding,) = run_check("amd-gpu-fault-logged", {"w1": [log(message, age=900000)]}).findings
    assert not finding.is_warning
    assert ERRORS[message] in str(finding)
    assert message.split()[1].rstrip(":") == finding.values["device"]


@pytest.mark.parametrize("message", WARNINGS)
def test_what_the_driver_could_handle_is_a_warning(message: str) -> None:
    (finding,) = run_check("amd-gpu-fault-logged", {"w1": [log(message)]}).findings
    assert finding.is_warning


@pytest.mark.parametrize("message", QUIET)
def test_what_is_no_fault_of_the_gpu(message: str) -> None:
    assert messages(run_check("amd-gpu-fault-logged", {"w1": [log(message)]})) == []


def test_a_reset_since_clears_the_errors_of_its_gpu_alone() -> None:
    error = next(iter(ERRORS))
    other = error.replace("05:00", "85:00")
    lines = (LogLine(90.0, error), LogLine(80.0, other), LogLine(50.0, QUIET[4].replace("03:00", "05:00")))
    (finding,) = run_check("amd-gpu-fault-logged", {"w1": [KernelLog(uptime=1e6, lines=lines)]}).findings
    assert finding.values["device"] == "0000:85:00.0"
