"""The round of a network test: from the facts of the first round to answers in the hosts' records."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from doctor.engine.record import HostRecord
from doctor.job import LaunchConfig
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
    faults = [f"{host}: {result.faults[0]}" for host, result in test.results.items() if result.faults]
    return NetRoundResult(with_net_answers(records, test, options), (*test.notes, *faults[:8]), test.stopped)
