"""A smoke run as facts: the events of each host's ranks, stage by stage, and why a stage was not reached. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from doctor.engine.fact import Output
from doctor.engine.smoke_failures import FAILURE_KINDS
from doctor.engine.texts import filled
from doctor.facts.smoke.collectives import SmokeCollectives
from doctor.facts.smoke.events import ExpectedEvents, StageFact
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.facts.smoke.further_stages import SmokeLearning, SmokePairs
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import Failure, SmokePlan, SmokeRun
from doctor.smoke.protocol import STAGE_FACTS, RankEvent, StageFinished


def fact_outputs(
    run: SmokeRun, host: str, events: Sequence[RankEvent], elsewhere: Collection[type[RankEvent]] = ()
) -> dict[str, dict[str, Output]]:
    """One output a fact class, for one host of the run. ``elsewhere``: the types of the events of all hosts."""
    host_ranks = set(run.plan.ranks_by_host.get(host, ()))
    by_fact: dict[str, dict[str, Output]] = {}
    for fact in STAGE_FACTS:
        stage = fact.stage
        stage_events = [event for event in events if isinstance(event, fact.event_types)]
        passed = {event.rank for event in events if isinstance(event, StageFinished) and event.stage == stage}
        # Of the start everything is known that was said: it is judged as it stands.
        reached = host_ranks <= passed if fact is not SmokeStart else bool(stage_events)
        left_out = next((left_out for left_out in run.left_out if left_out.host == host), None)
        reached = reached and left_out is None
        why, because = ("", "") if reached else unreached_reason(run, stage)
        if left_out:
            why, because = filled("the run went on without this host: {0}", left_out.why), "smoke-host-left-out"
        planned = stage in run.plan.stages
        if reached and not stage_events and set(fact.event_types) & set(elsewhere):
            # Only some ranks compute a loss, and only some exchange with other hosts.
            planned, why = False, filled("the {0} stage gives this host's ranks nothing to tell", stage)
        if reached and not stage_events and fact is SmokePairs and (nothing_to_pair := _nothing_to_pair(run.plan)):
            planned, why = False, nothing_to_pair
        body = {
            "reached": reached,
            "why": why,
            "because": because,
            "planned": planned,
            "ranks": sorted(host_ranks) if fact.every_rank else [],
            "expected": expected_events(run, fact),
            "events": stage_events,
        }
        by_fact[fact.__name__] = {"": Output(out=msgspec.json.encode(body).decode())}
    return by_fact


def expected_events(run: SmokeRun, fact: type[StageFact]) -> list[ExpectedEvents]:
    """What each rank reports at least in a stage of a run of doctor's own with torch."""
    if run.watched or run.plan.library != "torch":
        return []
    layouts, steps = len(run.plan.layouts), run.plan.steps
    of_training = {"reference": 1, "begin": layouts, "step": layouts * steps, "end": layouts}
    of_first = [ExpectedEvents("reference-blocks", steps, 0), ExpectedEvents("reference-update", 1, 0)]
    expected = {
        SmokeCollectives: [ExpectedEvents("checked|wrong|unsupported", 1)],
        SmokeTraining: [*(ExpectedEvents(tag, least) for tag, least in of_training.items()), *of_first],
        SmokeLearning: [ExpectedEvents("learned", 1)],
    }
    return expected.get(fact, [])


def _nothing_to_pair(plan: SmokePlan) -> str:
    """Why no two ranks exchange messages in the pairs' stage; empty where some do."""
    if plan.world == 1:
        return "one rank: there is no other to exchange messages with"
    if plan.backend == "gloo" and len(plan.ranks_by_host) == 1:
        return "the ranks run on the CPUs of one host: there is no link between them"
    return ""


def unreached_reason(run: SmokeRun, stage: str) -> tuple[str, str]:
    """Why a stage was not passed, and the check that reports the cause."""
    if run.undecided:
        return (run.undecided, "")
    if run.watched and run.ended == "interrupted" and not run.failures:
        return ("the watched job was ended before its first step", "")
    if stage not in run.plan.stages:
        why = "was not asked for" if run.plan.library == "torch" else "does not run with MindSpore"
        return (filled("the {0} stage {1}", stage, why), "")
    if run.failures:
        return (
            filled("the smoke run ended before: {0}", describe_failure(run, run.failures[0])),
            FAILURE_KINDS[run.failures[0].kind].check,
        )
    if run.ended == "interrupted":
        return ("the smoke run was interrupted before", "")
    return (filled("the {0} stage did not run", stage), "")


def describe_failure(run: SmokeRun, failure: Failure) -> str:
    """Such as ``rank 2 (w1) dead in training, signal 9``; of a launched job with the job's ranks."""
    job_ranks = dict(enumerate(run.plan.job_ranks))
    names = [
        filled("{0} ({1})", job_ranks.get(rank, rank), run.plan.host_of(rank)) for rank in failure.culprit_ranks[:4]
    ]
    more = filled(" and {0} more", len(failure.culprit_ranks) - 4) if len(failure.culprit_ranks) > 4 else ""
    who = f"rank{'s' * (len(names) > 1)} {', '.join(names)}{more} " if names else ""
    where = filled(" in {0}", failure.stage) if failure.stage else ""
    return filled("{0}{1}{2}{3}{4}", who, failure.kind, where, ", " if failure.text else "", failure.text)
