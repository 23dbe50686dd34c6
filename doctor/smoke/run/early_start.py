"""Starts the agent of this machine before the options are read: importing torch is half of a small run.

What the run will be is only expected then. If it turns out otherwise, the agent is ended, or ends what it started.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from doctor.job.variables import communication
from doctor.remote.request import new_marker
from doctor.smoke.programs import RANKS_ON_SINGLE_HOST
from doctor.smoke.run.programs import AGENT, agent_request, own_python
from doctor.transport import RemoteSession, Transport, TransportError
from doctor.transport.local import Local
from doctor.transport.program import start_session

if TYPE_CHECKING:
    from doctor.smoke.run.channels import AgentSession

HOST = "localhost"
FLAGS = frozenset((
    "--json", "--quiet", "-q", "--redact", "--strict", "--verbose", "-v", "--brief", "--debug", "--no-history",
    "--native", "--device-test",
))  # fmt: skip
"""Options without a value that leave the run on this machine."""
OPTIONS = frozenset((
    "--ranks-per-host", "--python", "--layout", "--steps", "--seed", "--max-bytes", "--for", "--budget", "--baseline",
    "--save-baseline", "--format", "-f", "--save", "--fail-on", "--on-unknown", "--color",
))  # fmt: skip
"""The same, with a value."""
_MAY_NAME_HOSTS = re.compile(r"DOCTOR_HOST(?:S|FILE)|RANK_TABLE_FILE|(?:[A-Z_]+_)?(?:JOB_?|ENCLOSING_)ID")
"""Variables that name hosts, or the number of a batch job, which has hosts.

Where a scheduler has another one, an agent is started that is of no use.
"""
MOST_RANKS = 64
"""An interpreter for more is not started on suspicion."""
END_SECONDS = 2.0
"""That an agent has to start before it is ended by force."""


class EarlyStart(NamedTuple):
    """An agent of this machine that was started, and what carries its lines."""

    conversation: RemoteSession
    transport: Transport
    marker: str
    began: tuple[float, float]
    """By our monotonic clock, and the time of day."""


_started: list[EarlyStart] = []


def start_early(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Starts the agent, if neither these arguments behind ``smoke`` nor the environment name hosts.

    Arguments that are not known start nothing: they may.
    """
    values = read_options(arguments)
    if values is None or any(map(_MAY_NAME_HOSTS.fullmatch, environ)):
        return
    ranks = values.get("--ranks-per-host", "0")
    if not (ranks.isascii() and ranks.isdigit() and int(ranks) <= MOST_RANKS):
        return
    plan: dict[str, Any] = {
        "backend": "gloo",
        "environment": "job",
        "variables": communication(environ),
        "places": [{"host": HOST}] * (int(ranks) or RANKS_ON_SINGLE_HOST),
    }
    python = values.get("--python") or own_python()
    with contextlib.suppress(TransportError):  # where no process can be started, the run says so
        _started.append(start_agent({"mine": list(range(len(plan["places"]))), "plan": plan, "python": python}))


def start_agent(expected: Mapping[str, Any]) -> EarlyStart:
    """Starts the agent, and sends it its program. ``expected``: see `doctor.smoke.run.programs.agent_request`."""
    began, marker, transport = (time.monotonic(), time.time()), new_marker(), Local()
    request = AGENT.request(marker, agent_request(marker, True, 0, expected), interpreter=sys.executable)
    return EarlyStart(start_session(transport, HOST, request), transport, marker, began)


def read_options(arguments: Sequence[str]) -> dict[str, str] | None:
    """The options with a value, the last one where it is given more than once.

    None: there is something else, or a value that cannot be printed, as of a path that is not UTF-8.

    >>> read_options(["--json", "--ranks-per-host", "2"])
    {'--ranks-per-host': '2'}
    >>> read_options(["--steps=4"])
    {'--steps': '4'}
    >>> read_options(["node[1-4]", "--json"]) is None
    True
    """
    values, rest = {}, list(reversed(arguments))
    while rest:
        name, equals, value = rest.pop().partition("=")
        if name in OPTIONS and (equals or rest):
            values[name] = value if equals else rest.pop()
        elif name not in FLAGS or equals:
            return None
    return values if all(map(str.isprintable, values.values())) else None


def take_early(hosts: Mapping[str, int], local: bool, port: int) -> tuple[AgentSession, Transport] | None:
    """The agent that was started, if the run has this machine alone and no port of its own. Otherwise it is ended."""
    if not (_started and local and dict(hosts) == {HOST: 0} and port == 0):
        end_early()
        return None
    # Only here: the agent's interpreter starts while this is loaded.
    from doctor.smoke.run.channels import AgentEndpoint, AgentSession

    early = _started.pop()
    session = AgentSession(
        {HOST: AgentEndpoint(HOST, lambda: early.conversation)}, early.marker, hosts, own_python(), True
    )
    session.began, session.started = early.began
    return session, early.transport


def end_early() -> None:
    """Ends the agent that was started, if no run has taken it."""
    while _started:
        early = _started.pop()
        early.conversation.close(END_SECONDS)
        early.transport.close()
