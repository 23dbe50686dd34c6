"""Starts the agent of this machine before the options are read: importing torch is half of a small run.

What the run will be is only expected then. If it turns out otherwise, the agent is ended, or ends what it started.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from doctor.smoke.run.channels import AgentSession
    from doctor.transport import Transport

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
CONNECT_SECONDS = 0.1
"""That the agent's process has to start, before we go on anyway."""
END_SECONDS = 2.0
"""That an agent has to start before it is ended by force."""


class EarlyStart(NamedTuple):
    """An agent of this machine that was started, and what carries its lines."""

    session: AgentSession
    transport: Transport


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
    # Only here: other runs, usage errors and --help are not to wait for what they do not need.
    from doctor.job.variables import communication
    from doctor.smoke.plan import RANKS_ON_SINGLE_HOST
    from doctor.smoke.protocol import ExpectedRanks
    from doctor.smoke.run.channels import own_python, start_agents
    from doctor.transport.local import Local

    count = int(ranks) or RANKS_ON_SINGLE_HOST
    plan = {
        "backend": "gloo",
        "environment": "job",
        "variables": communication(environ),
        "places": [{"host": HOST}] * count,
    }
    expected = ExpectedRanks(tuple(range(count)), plan, values.get("--python") or own_python())
    transport = Local()
    session = start_agents({HOST: 0}, transport, local=True, expected=expected)
    _started.append(EarlyStart(session, transport))
    # Until the agent's process is there: its thread would get no more than moments beside the imports that follow.
    session.channels.pump(CONNECT_SECONDS)


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


def take_early(hosts: Mapping[str, int], local: bool, port: int) -> EarlyStart | None:
    """The agent that was started, if the run has this machine alone and no port of its own. Otherwise it is ended."""
    if not (_started and local and dict(hosts) == {HOST: 0} and port == 0):
        end_early()
        return None
    return _started.pop()


def end_early() -> None:
    """Ends the agent that was started, if no run has taken it."""
    while _started:
        session, transport = _started.pop()
        limit = time.monotonic() + END_SECONDS
        while not (session.channels.hellos or session.channels.lost) and time.monotonic() < limit:
            session.channels.pump()
        session.channels.close()
        transport.close()
