"""Calls the hosts of a smoke run: their agents start while the rest of this program is still being loaded."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec

from doctor.smoke.run.bootstrap import letter
from doctor.smoke.run.channels import Channels, Party, Talk
from doctor.transport import Conversation, Transport


class Call:
    """Agents that were called, by name, and what they were called with."""

    def __init__(
        self, parties: Mapping[str, Party], marker: str, slots: Mapping[str, int], python: str, local: bool
    ) -> None:
        self.began, self.started = time.monotonic(), time.time()
        self.parties, self.slots, self.python, self.local = dict(parties), slots, python, local
        self.channels = Channels(parties, marker)


def call(
    hosts: Mapping[str, int], transport: Transport, port: int = 0, *, local: bool = False, within: tuple[str, ...] = ()
) -> Call:
    """Starts an agent on each of these hosts (name -> slots, 0 where the inventory does not say).

    ``port``: where the ranks are to meet; 0 leaves it to the first host. Never waits, and never raises for a host.
    """
    mark = marker()
    parties = {
        host: Party(host, _opening(transport, host, mark, not number, port, sys.executable if local else "", within))
        for number, host in enumerate(hosts)
    }
    return Call(parties, mark, hosts, _python() if local else "", local)


def marker() -> str:
    return "doctor-" + os.urandom(8).hex()


def _python() -> str:
    """Our own interpreter, if the job's torch is in it; empty: what the agent finds."""
    return sys.executable if find_spec("torch") else ""


def _opening(
    transport: Transport, host: str, mark: str, listen: bool, port: int, python: str, within: tuple[str, ...]
) -> Talk:
    def talk() -> Conversation:
        sent = letter(mark, listen, port, within, python)
        conversation = transport.talk(host, sent.command)
        conversation.send(sent.stdin)
        return conversation

    return talk
