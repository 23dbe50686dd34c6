"""Whether the leader's host still answers new connections: asked of agents that have come, where others have not."""

from __future__ import annotations

import time
from collections.abc import Sequence

from doctor.smoke.hang.network_evidence import UNANSWERED
from doctor.smoke.protocol import Probe
from doctor.smoke.run.channels import ReadyAgent, adopt_agents

HELLO, PROBE, ANSWER = 5.0, 1.5, 2.0
"""Seconds for agents to begin, for a new connection, and for their answer behind it."""
ATTEMPTS = 2


def answered_hosts(ready: Sequence[ReadyAgent], targets: Sequence[tuple[str, int]]) -> dict[str, bool]:
    """By host of these agents: whether any of the targets answered it, in two attempts. The agents end behind it.

    A refusal is an answer. Hosts whose agents do not say are left out.
    """
    session = adopt_agents(ready)
    channels = session.channels
    answered: dict[str, bool] = {}
    try:
        deadline = time.monotonic() + HELLO
        channels.wait(lambda: session.endpoints.keys() <= channels.hellos.keys() | channels.lost.keys(), deadline)
        for _ in range(ATTEMPTS):
            orders = {
                name: Probe(list(targets), PROBE)
                for name, endpoint in session.endpoints.items()
                if name in channels.hellos and not answered.get(endpoint.host)
            }
            for name, line in channels.query("probes", orders, PROBE + ANSWER).items():
                results = [result for _, _, result, _ in line.probes or ()]
                if results:
                    answered[session.endpoints[name].host] = any(result not in UNANSWERED for result in results)
    finally:
        channels.close()
    return answered
