"""The third round: the smoke run on the hosts that the first two reached, and what it adds to their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from doctor.engine.fact import Output
from doctor.engine.record import HostRecord
from doctor.facts import smoke as facts
from doctor.smoke.plan import Wish
from doctor.smoke.results import to_facts as told
from doctor.smoke.run.connect import Call
from doctor.smoke.run.supervisor import Met, Smoked, carry_out, smoke
from doctor.transport import Transport

Stage = Callable[[str, float], None]


class Third(msgspec.Struct, frozen=True):
    """What became of the third round."""

    records: dict[str, HostRecord]
    smoke: dict[str, Any]
    """For `Run.smoke`."""
    notes: tuple[str, ...] = ()
    refused: str = ""
    """Why what was wished for cannot be."""
    stopped: BaseException | None = None


def third_round(
    records: Mapping[str, HostRecord],
    slots: Mapping[str, int],
    transport: Transport,
    wish: Wish,
    *,
    local: bool = False,
    within: tuple[str, ...] = (),
    stage: Stage = lambda name, seconds: None,
) -> Third:
    """Trains on every host that answered; what interrupts it is in the result."""
    reached = {host: slots.get(host, 0) for host, record in records.items() if not record.visit.trouble}
    if not reached:
        return not_started(records, "no host could be reached")
    stage("", 0.0)
    try:
        made = smoke(reached, transport, wish, local=local, within=within, told=stage)
    except ValueError as error:
        return msgspec.structs.replace(not_started(records, str(error)), refused=str(error))
    run = msgspec.to_builtins(made.run, str_keys=True)
    return Third({**records, **_merged(records, made)}, run, _without(records), stopped=made.stopped)


def only_round(called: Call, wish: Wish, *, stage: Stage, met: Met, meanwhile: Iterator[object] = iter(())) -> Third:
    """Trains on every host that answers the call, which is the only visit that is made."""
    hosts = called.slots
    stage("", 0.0)
    try:
        made = carry_out(called, wish, told=stage, met=met, meanwhile=meanwhile)
    except ValueError as error:
        return msgspec.structs.replace(not_started({}, str(error)), refused=str(error))
    reached = {host: record for host, record in made.records.items() if not record.visit.trouble}
    if not reached:
        return msgspec.structs.replace(not_started(made.records, "no host could be reached"), stopped=made.stopped)
    smoked = msgspec.structs.replace(made, records=reached)
    records = {host: made.records[host] for host in hosts}
    run = msgspec.to_builtins(made.run, str_keys=True)
    return Third({**records, **_merged(records, smoked)}, run, _without(made.records), stopped=made.stopped)


def _without(records: Mapping[str, HostRecord]) -> tuple[str, ...]:
    missed = sum(bool(record.visit.trouble) for record in records.values())
    text = f"the smoke run was made without {missed} of {len(records)} hosts, which were not reached"
    return (text,) * bool(missed)


def not_started(records: Mapping[str, HostRecord], why: str) -> Third:
    """The round of a run that came to nothing: what it would have told is unknown."""
    said = msgspec.json.encode({"reached": False, "why": f"the smoke run was not started: {why}"}).decode()
    nothing = {name: {"": Output(out=said)} for name in facts.__all__ if name.startswith("Smoke")}
    blank = {host: HostRecord(record.visit, {**record.outputs, **nothing}) for host, record in records.items()}
    return Third(blank, {"not_started": why})


def _merged(records: Mapping[str, HostRecord], made: Smoked) -> dict[str, HostRecord]:
    """How a host was visited stays as it was: what the smoke run has against it is in the run's troubles."""
    merged = {}
    for host, record in made.records.items():
        said = record.outputs or told.outputs(made.run, host, ())
        merged[host] = HostRecord(records[host].visit, {**records[host].outputs, **said})
    return merged
