"""What file-server-silent-logged finds."""

from __future__ import annotations

from doctor.facts.kernel_log import KernelLog, LogLine
from tests.checks.gpu_hosts import log
from tests.checks.run_check import messages, run_check

QUIET = ("nfs: server 7.247.192.16 OK", "NFS: Registering the id_resolver key type")


def test_messages_that_are_no_fault() -> None:
    assert messages(run_check("file-server-silent-logged", {"w1": [log(*QUIET)]})) == []


def test_the_fault_is_named() -> None:
    ((_, text),) = messages(
        run_check("file-server-silent-logged", {"w1": [log("nfs: server 7.247.192.16 not responding, timed out")]})
    )
    assert text.startswith("the file server 7.247.192.16 does not answer, 1 message in 24 hours, last 60 s ago")


def test_what_is_older_than_a_day_is_history() -> None:
    assert (
        messages(
            run_check(
                "file-server-silent-logged",
                {"w1": [log("nfs: server 7.247.192.16 not responding, timed out", age=90000)]},
            )
        )
        == []
    )


def test_a_server_that_answers_again_is_over_and_another_is_not() -> None:
    """What a newer message says counts: the log's lines are the oldest first."""
    lines = [
        LogLine(50.0, "nfs: server nas1 not responding, still trying"),
        LogLine(45.0, "nfs: server nas2 not responding, still trying"),
        LogLine(40.0, "nfs: server nas1 OK"),
        LogLine(30.0, "nfs: server nas3 OK"),
        LogLine(20.0, "nfs: server nas3 not responding, still trying"),
    ]
    found = messages(run_check("file-server-silent-logged", {"w1": [KernelLog(uptime=1e6, lines=tuple(lines))]}))
    assert sorted(text.split()[3] for _, text in found) == ["nas2", "nas3"]


def test_lustre() -> None:
    lost = (
        "Lustre: scratch-OST0003-osc-ffff9d1d6e0c4000: Connection to scratch-OST0003 (at 10.0.0.7@o2ib) was lost; in "
        "progress operations using this service will wait for recovery to complete"
    )
    restored = "Lustre: scratch-OST0003-osc-ffff9d1d6e0c4000: Connection restored to 10.0.0.7@o2ib (at 10.0.0.7@o2ib)"
    ((_, text),) = messages(run_check("file-server-silent-logged", {"w1": [log(lost)]}))
    assert text.startswith("the file server scratch-OST0003 does not answer")
    lines = (LogLine(50.0, lost), LogLine(40.0, restored))
    assert messages(run_check("file-server-silent-logged", {"w1": [KernelLog(uptime=1e6, lines=lines)]})) == []
