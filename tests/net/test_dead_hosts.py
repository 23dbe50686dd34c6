"""A host that took part in the network test, and cannot be reached any more, is unreachable; others are unknown."""

from __future__ import annotations

import pytest

from doctor.engine.fact import Output, Visit
from doctor.engine.record import HostRecord
from doctor.net.plan import HostEndpoint, NetPlan
from doctor.net.run.busy_hosts import HostTrial
from doctor.net.run.conduct import NetTest
from doctor.net.run.network_round import gone_hosts
from doctor.net.schedule import quick
from doctor.transport import CommandResult, TransportError, TransportErrorKind


class SecondVisit:
    """A transport whose second visit ends in a certain way."""

    def __init__(self, kind: TransportErrorKind | None) -> None:
        self.kind, self.visited = kind, list[str]()

    def run(self, host: str, command: str, stdin: bytes = b"", timeout: float = 0.0) -> CommandResult:
        self.visited.append(host)
        if self.kind:
            raise TransportError(self.kind, "no answer within 5 s", "look at its console")
        return CommandResult(0, b"", b"", 0.0, 0.0)


def lost_hosts(*, hello: bool = True) -> NetTest:
    """Of two hosts the second was lost; ``hello``: its prober had begun."""
    results = {"w1": HostTrial(), "w2": HostTrial()}
    if hello:
        results["w2"].hello = {}
    endpoints = tuple(HostEndpoint(host, {"master": "10.0.0.1"}) for host in results)
    plan = NetPlan(endpoints, (), quick(2, 1, 1), {})
    return NetTest(plan, results, {"w2": "the connection was cut before the program ended"}, 1.0)


@pytest.mark.parametrize(
    ("kind", "dead"), [("dropped", True), ("refused", True), (None, False), ("auth", False), ("budget", False)]
)
def test_who_does_not_answer_a_second_visit_counts_as_not_reached(kind: TransportErrorKind | None, dead: bool) -> None:
    records = {host: HostRecord(Visit(), {"Interfaces": {"": Output(out="[]")}}) for host in ("w1", "w2")}
    transport = SecondVisit(kind)
    dead = gone_hosts(records, lost_hosts(), transport)  # type: ignore[arg-type]
    assert transport.visited == ["w2"]
    assert [(host, record.visit.failure, record.outputs) for host, record in dead.items()] == (
        [("w2", kind, {})] if dead else []
    )
    if dead:
        assert (
            dead["w2"].visit.text == "it answered until the network test, and no longer after it: no answer within 5 s"
        )


def test_a_host_that_took_no_part_is_not_visited_again() -> None:
    transport = SecondVisit("dropped")
    assert gone_hosts({}, lost_hosts(hello=False), transport) == {}  # type: ignore[arg-type]
    assert transport.visited == []
