"""What the checks say of a run of real ranks: their events as facts of the hosts that they stand for."""

from __future__ import annotations

import json
from collections.abc import Sequence

from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord
from doctor.engine.result import Outcome
from doctor.smoke.model import SmokePlan, SmokeRun
from doctor.smoke.protocol import parse_event
from doctor.smoke.results.to_facts import fact_outputs
from tests.checks.run_check import check
from tests.smoke.ranks import Ranks


def outcome_of(name: str, ranks: Ranks, hosts: Sequence[str], plan: SmokePlan | None = None) -> Outcome:
    """What a check makes of a run; ``hosts``: of each rank; ``plan``: another than the ranks' own."""
    book, run = facts_of(ranks, hosts, plan)
    return evaluate_check(check(name), tuple(dict.fromkeys(hosts)), book, {SmokeRun: run})


def facts_of(ranks: Ranks, hosts: Sequence[str], plan: SmokePlan | None = None) -> tuple[FactCache, SmokeRun]:
    """The facts of the hosts that the ranks stand for, and their run."""
    groups: dict[int, tuple[str, tuple[int, ...]]] = {0: ("world", tuple(range(len(hosts))))}
    groups.update({event["gid"]: (event["name"], tuple(event["ranks"])) for event in ranks.of("group")})
    run = SmokeRun(plan=plan or ranks.plan, groups=groups)
    reports = {host: [event for event in ranks.events if hosts[max(event["rank"], 0)] == host] for host in hosts}
    typed = {host: [parse_event(json.dumps(event).encode()) for event in events] for host, events in reports.items()}
    book = FactCache({host: HostRecord(Visit(), fact_outputs(run, host, events)) for host, events in typed.items()})
    return book, run
