"""Sends the inspector to hosts, all at once, and reads what it says: bounded in bytes and in time."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from doctor.remote.request import new_marker
from doctor.transport import Transport
from doctor.transport.program import HostProgram, visit_hosts
from doctor.watch.attach.rank_report import HostReport, read_report

INSPECTOR = HostProgram("doctor.watch.attach.inspector.inspector", "it did not look at its ranks (exit status {0}){1}")
MAX_ANSWER = 32 << 20
"""Bytes of one answer, inflated."""
STACK_SECONDS = 15.0
"""For the stacks of a host's ranks, at each of the two looks."""


class InspectRequest(msgspec.Struct, frozen=True):
    """What every host is asked."""

    pids: tuple[int, ...] = ()
    """Only these processes; empty: all ranks."""
    interval: float = 4.0
    """Seconds from the first look to the last."""
    stacks: bool = True
    py_spy: str = ""
    """Path of py-spy; empty: it is looked for."""
    signal: str = ""
    """Sent to ranks that have a handler for it, which writes stacks: USR1."""
    within: tuple[str, ...] = ()
    sudo: bool = False


def ask_ranks(
    hosts: Sequence[str], transport: Transport, request: InspectRequest, timeout: float, workers: int
) -> dict[str, HostReport | str]:
    """What each host says, or in one sentence why it says nothing. ``timeout``: seconds beyond the interval."""
    seconds = timeout + request.interval + (2 * STACK_SECONDS if request.stacks else 0)
    answers: dict[str, HostReport | str] = {}

    def visit(host: str) -> HostReport | str:
        marker = new_marker()
        fields = {**msgspec.to_builtins(request), "marker": marker, "stack_seconds": STACK_SECONDS}
        text = json.dumps(fields).encode("ascii")
        start = INSPECTOR.request(marker, text, within=request.within, as_root=request.sudo)
        reports: list[HostReport] = []

        def read_part(data: bytes) -> bool:
            reports.append(read_report(data))
            return True

        error = INSPECTOR.ask(transport, host, start, seconds, MAX_ANSWER, read_part)
        return reports[0] if reports else error

    visit_hosts(hosts, transport, visit, workers, answers.__setitem__)
    return {host: answers[host] for host in hosts}
