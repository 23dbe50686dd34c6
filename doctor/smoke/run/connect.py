"""Calls the hosts of a smoke run: their agents start while the rest of this program is still being loaded."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec

from doctor.remote.request import new_marker
from doctor.smoke.protocol import ExpectedRanks
from doctor.smoke.run.bootstrap import agent_request
from doctor.smoke.run.channels import AgentEndpoint, Channels, Connect
from doctor.transport import RemoteSession, Transport


class AgentSession:
    """Agents that were called, by name, and what they were called with."""

    def __init__(
        self, endpoints: Mapping[str, AgentEndpoint], marker: str, slots: Mapping[str, int], python: str, local: bool
    ) -> None:
        self.began, self.started = time.monotonic(), time.time()
        self.endpoints, self.slots, self.python, self.local = dict(endpoints), slots, python, local
        self.channels = Channels(endpoints, marker)


def start_agents(
    hosts: Mapping[str, int],
    transport: Transport,
    port: int = 0,
    *,
    local: bool = False,
    within: tuple[str, ...] = (),
    expected: ExpectedRanks | None = None,
) -> AgentSession:
    """Starts an agent on each of these hosts (name -> slots, 0 where the inventory has none).

    ``port``: the rendezvous port of the ranks; 0 leaves it to the first host. ``expected``: what every host will
    probably be ordered to start. Never waits, and never raises for a host.
    """
    mark = new_marker()
    endpoints = {
        host: AgentEndpoint(
            host, _connector(transport, host, mark, not number, port, sys.executable if local else "", within, expected)
        )
        for number, host in enumerate(hosts)
    }
    return AgentSession(endpoints, mark, hosts, own_python() if local else "", local)


def own_python() -> str:
    """Our own interpreter, if the job's torch is in it; empty: what the agent finds."""
    return sys.executable if find_spec("torch") else ""


def _connector(
    transport: Transport,
    host: str,
    mark: str,
    listen: bool,
    port: int,
    python: str,
    within: tuple[str, ...],
    expected: ExpectedRanks | None,
) -> Connect:
    def talk() -> RemoteSession:
        request = agent_request(mark, listen, port, within, python, expected)
        conversation = transport.open_session(host, request.command)
        conversation.send(request.stdin)
        return conversation

    return talk
