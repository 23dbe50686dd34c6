"""The round of a network test: from the facts of the first round to answers in the hosts' records."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from doctor.engine.evaluate import FactCache
from doctor.engine.record import HostRecord
from doctor.facts.network_test import NetworkAnswer
from doctor.job import LaunchConfig
from doctor.net.assemble import assemble_matrix, schedule_of
from doctor.net.plan import NetOptions, plan_network_test
from doctor.net.run.conduct import Conductor, PhaseCallback
from doctor.net.run.outputs import with_net_answers, without_net_answers
from doctor.transport import Transport


class NetRoundResult(msgspec.Struct, frozen=True):
    """What became of the round."""

    records: dict[str, HostRecord]
    notes: tuple[str, ...] = ()
    stopped: BaseException | None = None


def run_net_round(
    records: Mapping[str, HostRecord],
    launch: LaunchConfig,
    transport: Transport,
    options: NetOptions,
    *,
    within: tuple[str, ...] = (),
    on_phase: PhaseCallback = lambda name, seconds: None,
) -> NetRoundResult:
    """Has every host that was reached try its network; what interrupts it is in the result."""
    plan = plan_network_test(records, launch, options)
    if len(records) < 2:
        return NetRoundResult(without_net_answers(records, "only one host", single=True))
    if len(plan.endpoints) < 2:
        return NetRoundResult(without_net_answers(records, "fewer than two hosts could be reached"))
    test = Conductor(plan, options, transport, within=within, on_phase=on_phase).run()
    merged = with_net_answers(records, test, options)
    faults = [f"{host}: {result.faults[0]}" for host, result in test.results.items() if result.faults]
    return NetRoundResult(merged, (*coverage_notes(merged, options), *test.notes, *faults[:8]), test.stopped)


def coverage_notes(records: Mapping[str, HostRecord], options: NetOptions) -> tuple[str, ...]:
    """How much of the network was tried, and what a schedule of some pairs may miss."""
    answers = FactCache(records).fleet(NetworkAnswer)
    if not answers:
        return ("network test: no host took part",)
    schedule = schedule_of(answers)
    missed = f"; chance to miss a single bad pair: {100 * schedule.chance_to_miss_pair:.1f} %"
    some = missed if schedule.chance_to_miss_pair else ""
    return (f"network test ({options.mode}): {assemble_matrix(answers).coverage()}{some}",)
