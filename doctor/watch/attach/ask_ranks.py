"""Sends the inspector to hosts, all at once, and reads what it says: bounded in bytes and in time."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import msgspec

from doctor.engine.bounded_inflate import StreamTooLarge, inflate
from doctor.engine.sanitize import strip_control_chars
from doctor.remote.assemble import assemble
from doctor.remote.bootstrap import python_problem, stdin_command
from doctor.remote.request import marked_text, new_marker
from doctor.transport import CommandResult, Transport, TransportError
from doctor.watch.attach.inspector import MODULES
from doctor.watch.attach.rank_report import HostReport, read_report

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


@cache
def source() -> bytes:
    """The inspector's text."""
    return assemble(*MODULES).encode("ascii")


def ask_ranks(
    hosts: Sequence[str], transport: Transport, request: InspectRequest, timeout: float, workers: int
) -> dict[str, HostReport | str]:
    """What each host says, or in one sentence why it says nothing. ``timeout``: seconds beyond the interval."""
    seconds = timeout + request.interval + (2 * STACK_SECONDS if request.stacks else 0)

    def visit(host: str) -> HostReport | str:
        marker = new_marker()
        fields = {**msgspec.to_builtins(request), "marker": marker, "stack_seconds": STACK_SECONDS}
        text = json.dumps(fields).encode("ascii")
        command = stdin_command(source(), len(text), prefix=request.within, as_root=request.sudo)
        try:
            return _parsed(transport.run(host, command, source() + text, seconds), marker)
        except TransportError as error:
            return strip_control_chars(error.text)
        except Exception as error:  # noqa: BLE001 - the rim: one host's surprise must not end the run
            return strip_control_chars(f"{type(error).__name__}: {error}")

    pool = ThreadPoolExecutor(max(1, workers))
    try:
        return dict(zip(hosts, pool.map(visit, hosts), strict=True))
    except (KeyboardInterrupt, SystemExit):
        transport.close()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _parsed(result: CommandResult, marker: str) -> HostReport | str:
    prefix = marker.encode("ascii")
    for line in result.out.split(b"\n"):
        text = marked_text(line, prefix)
        if text is None:
            continue
        try:
            return read_report(inflate(base64.b64decode(text, validate=True), MAX_ANSWER))
        except StreamTooLarge:
            return f"its answer exceeds {MAX_ANSWER >> 20} MiB"
        except (ValueError, RecursionError, msgspec.MsgspecError):
            return "its answer is damaged"
    error = result.err.decode("utf-8", "replace")
    last = strip_control_chars(error.strip().rpartition("\n")[2])
    return python_problem(error) or f"it did not look at its ranks (exit status {result.code})" + (
        f": {last}" if last else ""
    )
