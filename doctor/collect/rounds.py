"""Round 1 reads state; round 2 reaches from host to host with what round 1 learnt. There are no others."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from doctor.collect.fanout import Limits, Partial, Progress, gather
from doctor.collect.protocol import Ask, union
from doctor.engine.evaluate import Book
from doctor.engine.fact import Fact, Output, Visit
from doctor.engine.record import HostRecord
from doctor.transport import Transport


def rounds(
    hosts: Sequence[str], transport: Transport, ask: Ask, limits: Limits, local: bool, progress: Progress
) -> dict[str, HostRecord]:
    """Both rounds, on the same connections. Raises: Partial, with what had come when the run was interrupted."""
    began = time.monotonic()
    second = tuple(fact for fact in ask.facts if fact.needs)
    state = (fact for fact in ask.facts if not fact.needs and fact.probe.kind != "smoke")
    first = union([*state, *(need for fact in second for need in fact.needs)])
    records = gather(hosts, transport, Ask(first, ask.given, ask.sudo, ask.within), limits, local, progress)
    asks = _second_asks(second, ask, Book(records))
    left = limits.budget - (time.monotonic() - began) if limits.budget else 0
    if not asks or (limits.budget and left <= 0):
        return _with_answers(records, asks, {})
    try:
        answers = gather(list(asks), transport, asks, Limits(limits.timeout, left, limits.workers), local)
    except Partial as partial:
        raise Partial(_with_answers(records, asks, partial.records), partial.stop) from None
    return _with_answers(records, asks, answers)


def _second_asks(facts: Sequence[type[Fact]], ask: Ask, book: Book) -> dict[str, Ask]:
    """What each host is asked in round 2; a host that no fact's plan names is not visited again."""
    planned: dict[str, dict[type[Fact], Any]] = {}
    for fact in facts:
        seen = {need: book.fleet(need) for need in fact.needs}
        for host, given in fact.plan(seen).items():
            planned.setdefault(host, {})[fact] = given
    return {
        host: Ask(
            tuple(own), {**ask.given, **{fact.__name__: given for fact, given in own.items()}}, ask.sudo, ask.within
        )
        for host, own in planned.items()
    }


def _with_answers(
    records: Mapping[str, HostRecord], asks: Mapping[str, Ask], answers: Mapping[str, HostRecord]
) -> dict[str, HostRecord]:
    """The first round's records with the second's outputs; a second visit that failed is an error for its facts."""
    merged = dict(records)
    for host, ask in asks.items():
        answer = answers.get(host, HostRecord(Visit("budget", "the budget ended before the second round")))
        failed = Output("error", err=answer.visit.text)
        said = {fact.__name__: answer.outputs.get(fact.__name__, {"": failed}) for fact in ask.facts}
        merged[host] = HostRecord(records[host].visit, {**records[host].outputs, **said})
    return merged
