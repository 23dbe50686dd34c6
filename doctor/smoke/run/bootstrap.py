"""How an agent is started on a host: one command, and what comes on its stdin."""

from __future__ import annotations

from doctor.remote.bootstrap import python_problem, stdin_command
from doctor.remote.request import Request
from doctor.smoke.protocol import AgentRequest, ExpectedRanks, MeetingPoint, encode_order
from doctor.smoke.run import programs


def agent_request(
    marker: str,
    listen: bool = False,
    port: int = 0,
    within: tuple[str, ...] = (),
    python: str = "",
    expected: ExpectedRanks | None = None,
) -> Request:
    """For one host; ``within`` is put before the command, to start it in a container.

    ``python`` is the interpreter's path, where it is known; otherwise the host searches for one.
    """
    source, first = programs.agent(), prepare_request(marker, listen, port, expected)
    return Request(stdin_command(source, len(first), python, within), source, first, marker)


def prepare_request(marker: str, listen: bool, port: int, expected: ExpectedRanks | None = None) -> bytes:
    """What an agent reads first: how to mark its lines, and whether the ranks meet on its host."""
    return encode_order(AgentRequest(marker, MeetingPoint(listen, port), expected))


def failure_kind(err: str) -> str:
    """The kind of failure of an agent that never said hello, by what came on stderr."""
    return "no-python" if python_problem(err) else "shell"
