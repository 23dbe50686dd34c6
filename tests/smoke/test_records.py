"""A run as facts: what was reached, and for the rest the reason and the check that reports it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from doctor.engine.fact import ProbeAnswer
from doctor.engine.sanitize import last_line
from doctor.facts.smoke.collectives import CollectiveChecked, SmokeCollectives
from doctor.facts.smoke.first_stages import ConnectFailed
from doctor.facts.smoke.further_stages import LearnedParameters, SmokeLearning
from doctor.facts.smoke.training import (
    LayoutBegun,
    LayoutEnded,
    ReferenceBlocks,
    ReferenceRun,
    ReferenceUpdate,
    SmokeTraining,
    TrainingStep,
)
from doctor.smoke.model import Backend, Failure, Layout, RankPlacement, SmokePlan, SmokeRun
from doctor.smoke.protocol import RankEvent, StageFinished
from doctor.smoke.results.to_facts import describe_failure, fact_outputs
from doctor.smoke.run.progress import StageProgress, describe_wait_status

PLACES = tuple(RankPlacement(rank, "ab"[rank // 2]) for rank in range(4))
PLAN = SmokePlan("gloo", PLACES, (Layout(dp=4),), stages=("start", "rendezvous", "collectives", "training"))


def passed(stage: str, *ranks: int) -> list[RankEvent]:
    return [StageFinished(rank, stage, 0.1) for rank in ranks]


def facts(run: SmokeRun, host: str, events: Sequence[RankEvent]) -> dict[str, dict[str, Any]]:
    return {name: json.loads(output[""].out) for name, output in fact_outputs(run, host, events).items()}


def test_a_stage_is_reached_when_all_ranks_of_the_host_have_finished_it() -> None:
    checked = CollectiveChecked(0, 0, "reduce", ("float32",), 3)
    events = [*passed("collectives", 0, 1), *passed("training", 0), checked]
    run = SmokeRun(PLAN, (Failure("dead", (3,), stage="training", text="signal 9"),), "trouble")
    responses = facts(run, "a", events)
    assert (responses["SmokeCollectives"]["reached"], responses["SmokeCollectives"]["why"]) == (True, "")
    assert responses["SmokeCollectives"]["events"] == [json.loads(msgspec.json.encode(checked))]
    assert responses["SmokeTraining"]["reached"] is False
    assert responses["SmokeTraining"]["why"] == "the smoke run ended before: rank 3 (b) dead in training, signal 9"
    assert responses["SmokeTraining"]["because"] == "smoke-rank-died"
    assert responses["SmokePairs"]["why"] == "the pairs stage was not asked for"
    assert responses["SmokePairs"]["because"] == ""


def test_of_the_start_everything_counts() -> None:
    tried = [ConnectFailed(0, "refused")]
    assert facts(SmokeRun(PLAN), "a", tried)["SmokeStart"]["reached"] is True
    assert facts(SmokeRun(PLAN), "a", [])["SmokeStart"]["reached"] is False


def test_many_ranks_in_words() -> None:
    plan = SmokePlan("gloo", tuple(RankPlacement(rank, "a") for rank in range(8)), ())
    failure = describe_failure(SmokeRun(plan), Failure("blocked", tuple(range(7))))
    assert failure == "ranks 0 (a), 1 (a), 2 (a), 3 (a) and 3 more blocked"


@pytest.mark.parametrize(
    ("status", "message"), [(9, "killed by signal 9"), (11 | 0x80, "killed by signal 11"), (4 << 8, "exit status 4")]
)
def test_wait_statuses(status: int, message: str) -> None:
    assert describe_wait_status(status) == message


def test_last_words() -> None:
    assert last_line("a\n\n  Error: b \x1b[0m\n\n") == "Error: b"
    assert last_line("") == ""


def test_nobody_is_overdue_who_is_done() -> None:
    assert StageProgress(PLAN, 0.0).overdue(1.0, {}) is None


@pytest.mark.parametrize(
    ("backend", "ranks", "why"),
    [
        ("gloo", 4, "the ranks run on the CPUs of one host: there is no link between them"),
        ("nccl", 1, "one rank: there is no other to exchange messages with"),
        ("gloo", 1, "one rank: there is no other to exchange messages with"),
    ],
)
def test_where_no_two_ranks_exchange_messages(backend: Backend, ranks: int, why: str) -> None:
    events, stages = passed("pairs", *range(4)), (*PLAN.stages, "pairs")
    alone = SmokePlan(backend, tuple(RankPlacement(rank, "a") for rank in range(ranks)), PLAN.layouts, stages=stages)
    pairs = facts(SmokeRun(alone), "a", events)["SmokePairs"]
    assert (pairs["planned"], pairs["why"]) == (False, why)


@pytest.mark.parametrize(
    ("backend", "places"), [("gloo", PLACES), ("nccl", (RankPlacement(0, "a"), RankPlacement(1, "a")))]
)
def test_where_ranks_should_have_exchanged_messages(backend: Backend, places: tuple[RankPlacement, ...]) -> None:
    events, stages = passed("pairs", *range(4)), (*PLAN.stages, "pairs")
    several = SmokePlan(backend, places, PLAN.layouts, stages=stages)
    assert facts(SmokeRun(several), "a", events)["SmokePairs"]["planned"]


def test_a_large_world_has_more_time_to_join_where_its_ranks_share_few_cpus() -> None:
    """128 ranks on 2 CPUs make 16,000 connections there: a minute, and no fault of anybody."""
    one_host = tuple(RankPlacement(rank, "a", rank) for rank in range(128))
    crowded = SmokePlan("gloo", one_host, (Layout(dp=128),))
    assert StageProgress(crowded, 0.0, {"a": 2}).join_limit > 120
    assert StageProgress(crowded, 0.0, {"a": 128}).join_limit < 25
    hosts = tuple(RankPlacement(rank, f"w{rank // 8}", rank % 8) for rank in range(4096))
    large = SmokePlan("hccl", hosts, (Layout(dp=4096),))
    assert StageProgress(large, 0.0, {f"w{number}": 192 for number in range(512)}).join_limit < 30


def reports(rank: int) -> list[RankEvent]:
    """All that a rank must report for a training of one layout, and for its learning."""
    steps = [TrainingStep(rank, 0, step) for step in range(PLAN.steps)]
    reference = ReferenceRun(rank, (), (), 0, 0)
    trained = [reference, LayoutBegun(rank, 0, 0, 0, 0), *steps, LayoutEnded(rank, 0, {}, 0.1)]
    if not rank:
        trained += [*(ReferenceBlocks(0, step, (), ()) for step in range(PLAN.steps)), ReferenceUpdate(0, {})]
    return [*trained, CollectiveChecked(rank, 0, "reduce", (), 1), LearnedParameters(rank, 0, 0, 0, 0, 10)]


@pytest.mark.parametrize("left_out", range(len(reports(0)) + 1))
def test_a_rank_that_reported_less_than_its_share_is_unread(left_out: int) -> None:
    stages = ("collectives", "training", "learning")
    plan = msgspec.structs.replace(PLAN, stages=stages)
    rank0 = [event for place, event in enumerate(reports(0)) if place != left_out]
    events = [*(event for stage in stages for event in passed(stage, 0, 1)), *rank0, *reports(1)]
    outputs = fact_outputs(SmokeRun(plan), "a", events)
    read = (fact.read(ProbeAnswer(outputs[fact.__name__])) for fact in (SmokeCollectives, SmokeTraining, SmokeLearning))
    unread = {(name, why) for fact in read for name, why in fact.unread.items()}
    assert {name for name, _ in unread} == ({"rank 0"} if left_out < len(reports(0)) else set())
    lacks = reports(0)[left_out].tag if left_out < len(reports(0)) else ""
    stage = {"learned": "learning", "checked": "collectives"}.get(lacks, "training")
    for _, why in unread:
        assert f"in the {stage} stage" in why and ("nothing" in why or lacks in why.rpartition(" of kind ")[2])
