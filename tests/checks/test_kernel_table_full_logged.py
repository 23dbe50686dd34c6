"""What kernel-table-full-logged finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import log
from tests.checks.run_check import messages, run_check

QUIET = ("VFS: file-max limit reached", "TCP: request_sock_TCP: Possible SYN flooding on port 29500. Sending cookies.")


def test_messages_that_are_no_fault() -> None:
    assert messages(run_check("kernel-table-full-logged", {"w1": [log(*QUIET)]})) == []


def test_the_fault_is_named() -> None:
    ((_, text),) = messages(run_check("kernel-table-full-logged", {"w1": [log("VFS: file-max limit 1000000 reached")]}))
    assert text.startswith("the kernel's table file-max was full, 1 message in 24 hours")


def test_what_is_older_than_a_day_is_history() -> None:
    assert (
        messages(run_check("kernel-table-full-logged", {"w1": [log("VFS: file-max limit 1000000 reached", age=90000)]}))
        == []
    )
