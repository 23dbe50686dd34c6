"""What kernel-table-full-logged finds."""

from __future__ import annotations

from doctor.analysis.causes import resolve_causes
from doctor.engine.catalog import load_checks
from doctor.engine.result import Report
from doctor.facts.neighbour_table import NeighbourTable
from doctor.facts.network import HostAddresses
from tests.checks.gpu_hosts import log
from tests.checks.run_check import messages, run_check

QUIET = ("VFS: file-max limit reached", "TCP: request_sock_TCP: Possible SYN flooding on port 29500. Sending cookies.")


def test_messages_that_are_no_fault() -> None:
    assert messages(run_check("kernel-table-full-logged", {"w1": [log(*QUIET)]})) == []


def test_the_fault_is_named() -> None:
    ((_, text),) = messages(run_check("kernel-table-full-logged", {"w1": [log("VFS: file-max limit 1000000 reached")]}))
    assert text.startswith("the kernel's table file-max was full, 1 message in 24 hours")


def test_a_port_whose_queue_dropped_connections_is_named() -> None:
    line = "TCP: request_sock_TCP: Possible SYN flooding on port 29500. Dropping request.  Check SNMP counters."
    ((_, text),) = messages(run_check("kernel-table-full-logged", {"w1": [log(line)]}))
    assert text.startswith("the queue of port 29500 was full, and connections were dropped, 1 message in 24 hours")


def test_what_is_older_than_a_day_is_history() -> None:
    assert (
        messages(run_check("kernel-table-full-logged", {"w1": [log("VFS: file-max limit 1000000 reached", age=90000)]}))
        == []
    )


def test_the_message_follows_from_the_table_that_is_small_and_from_no_other() -> None:
    messages_of_both = log("neighbour: arp_cache: neighbor table overflow!", "VFS: file-max limit 1000000 reached")
    host = [messages_of_both, NeighbourTable(limit=1024, overflows=3), HostAddresses(interfaces=())]
    outcomes = tuple(run_check(name, {"w1": host}) for name in ("kernel-table-full-logged", "neighbour-table-small"))
    logged, _ = resolve_causes(Report("", ("w1",), outcomes), load_checks()).outcomes
    assert {finding.values["table"]: finding.follows_from for finding in logged.findings} == {
        "arp_cache": "neighbour-table-small",
        "file-max": "",
    }
