"""The third round: the smoke run on the hosts that the first two reached, and what it adds to their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from doctor.engine.fact import Output
from doctor.engine.record import HostRecord
from doctor.engine.texts import filled
from doctor.smoke.model import SmokeResult
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.protocol import STAGE_FACTS
from doctor.smoke.results import to_facts
from doctor.smoke.run.channels import AgentSession
from doctor.smoke.run.environment_trial import explain_by_environment
from doctor.smoke.run.mindspore_run import reason_not_run, repeat_with_mindspore
from doctor.smoke.run.second_measurement import measure_again
from doctor.smoke.run.supervisor import HostCallback, run_on_agents, smoke
from doctor.smoke.triage.conduct import run_healthy, run_together, screen, with_screening
from doctor.smoke.triage.screening import Cell, needs_screening
from doctor.transport import Transport

StageCallback = Callable[[str, float], None]


class SmokeRoundResult(msgspec.Struct, frozen=True):
    """What became of the third round."""

    records: dict[str, HostRecord]
    smoke: dict[str, Any]
    """For `Run.smoke`."""
    notes: tuple[str, ...] = ()
    rejection: str = ""
    """Why what was wished for cannot be."""
    stopped: BaseException | None = None


def run_smoke_round(
    records: Mapping[str, HostRecord],
    slots: Mapping[str, int],
    transport: Transport,
    options: SmokeOptions,
    *,
    local: bool = False,
    within: tuple[str, ...] = (),
    on_stage: StageCallback = lambda name, seconds: None,
) -> SmokeRoundResult:
    """Trains on every host that answered; what interrupts it is in the result."""
    reached = {host: slots.get(host, 0) for host, record in records.items() if not record.visit.failure}
    if not reached:
        return not_started(records, "no host could be reached")
    on_stage("", 0.0)
    screening = None

    def on(hosts: Cell) -> Callable[..., SmokeResult]:
        return partial(smoke, {host: reached[host] for host in hosts}, transport, local=local, within=within)

    def run(hosts: Cell, settled: SmokeOptions) -> SmokeResult:
        result = on(hosts)(settled, on_stage=on_stage)
        return result if result.stopped else _explained(result, settled, on(hosts))

    def run_cells(cells: Sequence[Cell], of_cells: SmokeOptions) -> list[SmokeResult]:
        return run_together(cells, lambda cell: on(cell)(of_cells))

    try:
        if needs_screening(len(reached), options.cell_size):
            screening = screen(tuple(reached), options, run_cells, on_stage)
        result = run_healthy(options, screening, run) if screening else run(tuple(reached), options)
    except ValueError as error:
        return msgspec.structs.replace(not_started(records, str(error)), rejection=str(error))
    except (KeyboardInterrupt, SystemExit) as stop:  # in the screening: a run says itself that it was stopped
        return msgspec.structs.replace(not_started(records, "its screening was interrupted"), stopped=stop)
    if screening is not None:
        result = with_screening(result, screening, options)
    if why := reason_not_run(result):
        return not_started(records, why)
    of_run, notes = msgspec.to_builtins(result.run, str_keys=True), _unreached_notes(records)
    return SmokeRoundResult({**records, **_merged(records, result)}, of_run, notes, stopped=result.stopped)


def run_single_round(
    session: AgentSession,
    options: SmokeOptions,
    *,
    on_stage: StageCallback,
    on_host: HostCallback,
    meanwhile: Iterator[object] = iter(()),
    repeat: Callable[[SmokeOptions], SmokeResult] | None = None,
) -> SmokeRoundResult:
    """Trains on every host that answers the call, which is the only visit that is made.

    ``repeat``: makes another run on the same hosts, to learn what made this one fail.
    """
    hosts = session.slots
    on_stage("", 0.0)
    try:
        result = run_on_agents(session, options, on_stage=on_stage, on_host=on_host, meanwhile=meanwhile)
    except ValueError as error:
        return msgspec.structs.replace(not_started({}, str(error)), rejection=str(error))
    if repeat is not None and not result.stopped:
        result = _explained(result, options, repeat)
    reached = {host: record for host, record in result.records.items() if not record.visit.failure}
    if not reached:
        return msgspec.structs.replace(not_started(result.records, "no host could be reached"), stopped=result.stopped)
    if why := reason_not_run(result):
        return not_started(result.records, why)
    reached_result = msgspec.structs.replace(result, records=reached)
    records = {host: result.records[host] for host in hosts}
    run = msgspec.to_builtins(result.run, str_keys=True)
    return SmokeRoundResult(
        {**records, **_merged(records, reached_result)}, run, _unreached_notes(result.records), stopped=result.stopped
    )


def _explained(
    result: SmokeResult, options: SmokeOptions, repeat: Callable[[SmokeOptions], SmokeResult]
) -> SmokeResult:
    """The result, or that of further runs on the same hosts: with MindSpore, without variables of the job, or to
    measure again what was slow.
    """
    result, options = repeat_with_mindspore(result, options, repeat)
    return measure_again(explain_by_environment(result, options, repeat), options, repeat)


def _unreached_notes(records: Mapping[str, HostRecord]) -> tuple[str, ...]:
    missed = sum(bool(record.visit.failure) for record in records.values())
    text = filled("the smoke run excluded {0} of {1} hosts, which could not be reached", missed, len(records))
    return (text,) * bool(missed)


def not_started(records: Mapping[str, HostRecord], why: str) -> SmokeRoundResult:
    """The round of a run without a result: its facts are unknown."""
    content = msgspec.json.encode({"reached": False, "why": filled("the smoke run was not started: {0}", why)}).decode()
    unknown_outputs = {fact.output_name(): {"": Output(out=content)} for fact in STAGE_FACTS}
    blank = {host: HostRecord(record.visit, {**record.outputs, **unknown_outputs}) for host, record in records.items()}
    return SmokeRoundResult(blank, {"not_started": why})


def _merged(records: Mapping[str, HostRecord], result: SmokeResult) -> dict[str, HostRecord]:
    """How a host was read stays as it was: what the smoke run has against it is in the run's troubles."""
    merged = {}
    for host, record in result.records.items():
        outputs = record.outputs or to_facts.fact_outputs(result.run, host, ())
        merged[host] = HostRecord(records[host].visit, {**records[host].outputs, **outputs})
    return merged
