"""Round 1 reads the state of each host; round 2 tests between hosts, with the results of round 1."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from doctor.collect.collector_request import CollectOptions, unique_facts
from doctor.collect.fanout import RecordCallback, RunInterrupted, TimeLimits, gather
from doctor.engine.evaluate import FactCache
from doctor.engine.fact import OWN_ROUND, Fact, Output, ProvenFact, Visit
from doctor.engine.grouping import lists_by_key
from doctor.engine.record import HostRecord
from doctor.transport import KeepsCommands, Transport

FIRST_ROUND_SHARE = 0.6
"""Part of the time budget that the first round may take when a second follows.

A host that hangs costs its own answer then, and not those that the others give in the second round.
"""


def run_rounds(
    hosts: Sequence[str],
    transport: Transport,
    options: CollectOptions,
    limits: TimeLimits,
    local: bool,
    progress: RecordCallback,
) -> dict[str, HostRecord]:
    """Both rounds, on the same connections.

    Raises: RunInterrupted, with what had been received by then.
    """
    began = time.monotonic()
    second = tuple(fact for fact in options.facts if fact.needs)
    state = (fact for fact in options.facts if not fact.needs and fact.probe.kind not in OWN_ROUND)
    first = unique_facts([*state, *(need for fact in second for need in fact.needs)])
    records = gather(
        hosts,
        transport,
        msgspec.structs.replace(options, facts=first, more=bool(second) and isinstance(transport, KeepsCommands)),
        limits if all(fact.settles_doubt for fact in second) else _first_share(limits),
        local,
        progress,
    )
    try:
        return _second_round(second, transport, options, limits, local, records, began)
    finally:
        if isinstance(transport, KeepsCommands):
            transport.end_kept()


def _first_share(limits: TimeLimits) -> TimeLimits:
    return msgspec.structs.replace(limits, budget=limits.budget * FIRST_ROUND_SHARE)


def _second_round(
    facts: Sequence[type[Fact]],
    transport: Transport,
    options: CollectOptions,
    limits: TimeLimits,
    local: bool,
    records: dict[str, HostRecord],
    began: float,
) -> dict[str, HostRecord]:
    """The records of the first round, which ``began`` then, with the outputs of the second. Raises: RunInterrupted."""
    options_by_host = _second_round_options(facts, options, FactCache(records))
    remaining = limits.budget - (time.monotonic() - began) if limits.budget else 0
    if not options_by_host or (limits.budget and remaining <= 0):
        return _with_answers(records, options_by_host, {})
    try:
        answers = gather(
            list(options_by_host),
            transport,
            options_by_host,
            TimeLimits(limits.timeout, remaining, limits.workers),
            local,
        )
    except RunInterrupted as partial:
        raise RunInterrupted(_with_answers(records, options_by_host, partial.records), partial.interrupt) from None
    return _with_answers(records, options_by_host, answers)


def _second_round_options(
    facts: Sequence[type[Fact]], options: CollectOptions, book: FactCache
) -> dict[str, CollectOptions]:
    """The probes of each host in round 2; a host that no fact's plan names is not contacted again."""
    planned: dict[str, dict[type[Fact], Any]] = {}
    for fact in facts:
        needed_facts = {need: book.fleet(need) for need in fact.needs}
        for host, arguments in fact.plan(needed_facts).items():
            planned.setdefault(host, {})[fact] = arguments
    return {
        host: CollectOptions(
            tuple(fact_arguments),
            options.arguments,
            options.sudo,
            options.within,
            own={fact.__name__: values for fact, values in fact_arguments.items()},
        )
        for host, fact_arguments in planned.items()
    }


def _with_answers(
    records: Mapping[str, HostRecord], options_by_host: Mapping[str, CollectOptions], answers: Mapping[str, HostRecord]
) -> dict[str, HostRecord]:
    """The first round's records with the second's outputs; a second visit that failed is an error for its facts."""
    merged = dict(records)
    tasks = (((name, (host, task)) for name, task in options.own.items()) for host, options in options_by_host.items())
    tasks_by_fact = {name: dict(rows) for name, rows in lists_by_key(chain.from_iterable(tasks)).items()}
    for host, options in options_by_host.items():
        answer = answers.get(host, HostRecord(Visit("budget", "the budget ended before the second round")))
        failed = Output("error", err=answer.visit.text)
        second_outputs = {
            fact.__name__: _verified(fact, answer.outputs.get(fact.__name__, {"": failed}), host, tasks_by_fact)
            for fact in options.facts
        }
        merged[host] = HostRecord(records[host].visit, {**records[host].outputs, **second_outputs})
    return merged


def _verified(
    fact: type[Fact], outputs: dict[str, Output], host: str, tasks_by_fact: Mapping[str, Mapping[str, Any]]
) -> dict[str, Output]:
    """The outputs of a fact; of one in which hosts prove who they are, with the names that are proven alone."""
    output = outputs.get("")
    if not issubclass(fact, ProvenFact) or output is None or not output.out:
        return outputs
    try:
        claims = msgspec.json.decode(output.out, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {"": msgspec.structs.replace(output, out="null")}  # nothing that a host says goes unverified
    proven = fact.verified(claims, host, tasks_by_fact[fact.__name__])
    return {"": msgspec.structs.replace(output, out=msgspec.json.encode(proven).decode())}
