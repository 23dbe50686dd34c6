"""What file-system-failed finds."""

from __future__ import annotations

import pytest

from tests.checks.gpu_hosts import log
from tests.checks.run_check import messages, run_check


def test_an_empty_log() -> None:
    assert (
        messages(run_check("file-system-failed", {"w1": [log("EXT4-fs (sda1): mounted filesystem with ordered data")]}))
        == []
    )


@pytest.mark.parametrize(
    "message",
    [
        "EXT4-fs (dm-0): Remounting filesystem read-only",
        "XFS (dm-0): Log I/O Error Detected.  Shutting down filesystem",
        "XFS (dm-0): Filesystem has been shut down due to log error (0x2).",
    ],
)
def test_failures(message: str) -> None:
    assert messages(run_check("file-system-failed", {"w1": [log(message)]})) == [
        ("w1", f"the file system on dm-0 failed 60 s ago: {message}")
    ]


def test_a_disk_that_was_given_up() -> None:
    """Public file 53692015934."""
    message = "nvme nvme0: Disabling device after reset failure: -19"
    assert messages(run_check("file-system-failed", {"w1": [log(message)]})) == [
        ("w1", f"the disk nvme0 failed 60 s ago: {message}")
    ]
