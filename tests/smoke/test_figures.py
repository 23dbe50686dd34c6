"""The figures of a run, from made-up events."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord
from doctor.engine.smoke_summary import (
    CollectiveSpeed,
    LayoutResult,
    PairSpeed,
    RankEnvironment,
    SmokeSummary,
    SoakErrors,
    SoakFigures,
    SoakLink,
    StageTime,
)
from doctor.facts.smoke.collectives import CollectiveTimes, SoakCounts
from doctor.facts.smoke.first_stages import RankDevice, RankJoined
from doctor.facts.smoke.further_stages import PairTimes, SmokePairs
from doctor.facts.smoke.training import TrainingStep
from doctor.smoke.model import STAGES, Failure, Layout, SmokeRun
from doctor.smoke.results.figures import pair_speeds, summarise
from tests.checks.run_check import Facts
from tests.checks.smoke import BY_HOST, alter, collectives, ran, start_events, started, training, training_events


def summed(run: SmokeRun, *facts: BY_HOST) -> SmokeSummary:
    hosts: dict[str, list[Any]] = {place.host: [] for place in run.plan.places}
    for fact in facts:
        for host, own_value in fact.items():
            hosts[host].append(own_value)
    book = Facts(hosts)
    book.records = dict.fromkeys(hosts, HostRecord(Visit()))
    return summarise(run, book)


def test_the_ranks_of_each_host_in_plan_order() -> None:
    assert summed(ran(6, 2)).hosts == {"w1": 3, "w2": 3}
    assert summed(ran(6, 2)).world_size == 6


def test_a_stage_lasts_from_the_end_of_the_one_before() -> None:
    run = ran(reached={"start": 1.0, "rendezvous": 1.5}, stages=("start", "rendezvous", "training"))
    smoke_summary = summed(run)
    assert smoke_summary.stages == (StageTime("start", 1.0), StageTime("rendezvous", 0.5))
    assert smoke_summary.unfinished_stages == ("training",)


def test_without_one_word_of_the_ranks_there_are_no_figures() -> None:
    smoke_summary = summed(ran(4, 2, Failure("not-started", (0,), stage="start")))
    assert (smoke_summary.environments, smoke_summary.collective_speeds, smoke_summary.stages) == ((), (), ())
    assert smoke_summary.layouts == (LayoutResult("dp4", 0, None),)
    assert smoke_summary.unfinished_stages == STAGES


def test_errors_of_a_soak_are_counted_by_rank_collective_and_pair_of_ranks() -> None:
    run = ran(4, 2)
    assert summed(run, collectives(run)).soak is None
    calls = {"all_reduce": 900, "all_to_all": 880}
    counts = [SoakCounts(rank, calls, {"all_to_all": 2} if rank == 3 else {}, 60.0) for rank in range(4)]
    counts[3] = SoakCounts(3, calls, {"all_to_all": 2, "all_reduce": 0}, 61.0, {1: 2, 7: 1})
    assert summed(run, collectives(run, *counts)).soak == SoakFigures(
        61.0, calls, (SoakErrors(3, "all_to_all", 2, 880),), (SoakLink(1, 3, 2),)
    )


def test_ranks_that_run_on_the_same_stand_together() -> None:
    run = ran(4, 2, devices=True)
    other = alter(start_events(run), 2, RankJoined, torch="2.12.0", numpy=None)
    assert summed(run, started(run, other)).environments == (
        RankEnvironment("2.13.0", "2.3.4", "3.11.7", "NVIDIA H100 80GB HBM3", (0, 1, 3)),
        RankEnvironment("2.12.0", "", "3.11.7", "NVIDIA H100 80GB HBM3", (2,)),
    )
    cpu = ran(2, 1)
    assert [seat.device for seat in summed(cpu, started(cpu)).environments] == ["CPU"]
    outlier = alter(start_events(cpu), 1, RankJoined, device=RankDevice(0, "NPU", "0"))
    assert [seat.device for seat in summed(cpu, started(cpu, outlier)).environments] == ["CPU", "NPU"]


def test_the_speed_of_a_pair_is_the_lower_quartile_of_both_sides_without_the_first_exchange() -> None:
    first = PairTimes(0, 2, 1, 1000, (9.0, 1.0, 3.0))
    other = PairTimes(2, 0, 1, 1000, (9.0, 2.0, 2.0))
    again = PairTimes(0, 2, 1, 1000, (50.0,), confirm=True)
    stranger = PairTimes(0, 7, 1, 1000, (1.0,))
    facts = {"w0": SmokePairs(pairs=(first, again, stranger)), "w1": SmokePairs(pairs=(other,))}
    assert pair_speeds(facts, 4) == (PairSpeed(0, 2, 1000, 1.0),)
    assert pair_speeds({}, 4) == ()


class TestLayouts:
    run = ran(4, 2, layouts=(Layout(dp=4), Layout(dp=2, tp=2)))

    def trained(self, *events: Any) -> list[LayoutResult]:
        return list(summed(self.run, training(self.run, events or None)).layouts)

    def test_equal_to_the_reference_run(self) -> None:
        trained = self.trained()
        assert [(layout_result.layout, layout_result.steps, layout_result.error) for layout_result in trained] == [
            ("dp4", 4, pytest.approx(0)),
            ("dp2 tp2", 4, pytest.approx(0)),
        ]
        smoke_summary = summed(self.run, training(self.run, None))
        assert [layout_result.losses for layout_result in trained] == [
            pytest.approx(smoke_summary.reference_losses)
        ] * 2

    def test_the_loss_of_the_batch_is_the_mean_of_the_shares(self) -> None:
        """Each data-parallel rank has a loss of its own; that they differ is no error."""
        events = training_events(self.run)
        for rank, more in ((0, 0.5), (1, -0.5), (2, 0.25), (3, -0.25)):
            events = alter(events, rank, TrainingStep, loss=4.0 + more, where=("step", 2))
        assert [layout_result.error for layout_result in self.trained(*events)] == [pytest.approx(0), pytest.approx(0)]

    def test_the_largest_difference_of_any_step(self) -> None:
        events = training_events(self.run)
        wrong = [event for event in events if not (isinstance(event, TrainingStep) and event.layout == 0)]
        wrong += alter(
            [event for event in events if isinstance(event, TrainingStep) and event.layout == 0],
            range(4),
            TrainingStep,
            loss=4.4,
            where=("step", 2),
        )
        (first, _) = self.trained(*wrong)
        assert (first.steps, first.error) == (4, pytest.approx(0.1))
        assert first.losses[2] == pytest.approx(4.4)

    def test_a_loss_that_is_not_finite_is_infinitely_wrong(self) -> None:
        events = alter(training_events(self.run), 3, TrainingStep, loss=None, bad="loss", where=("step", 1))
        assert [layout_result.error for layout_result in self.trained(*events)] == [float("inf")] * 2
        assert [layout_result.losses[1] for layout_result in self.trained(*events)] == [None, None]

    def test_a_step_that_some_rank_did_not_end_is_not_compared(self) -> None:
        events = [
            training_event
            for training_event in training_events(self.run)
            if not (
                isinstance(training_event, TrainingStep)
                and (training_event.step > 2 or (training_event.step, training_event.rank) == (2, 3))
            )
        ]
        assert [layout_result.steps for layout_result in self.trained(*events)] == [2, 2]

    def test_a_layout_that_was_not_begun_was_not_compared(self) -> None:
        assert self.trained(*training_events(self.run, [0]))[1] == LayoutResult("dp2 tp2", 0, None)


class TestSpeeds:
    run = ran(4, 2, groups={0: ("world", (0, 1, 2, 3)), 1: ("dp2", (0, 1))})

    def figures(self, *events: CollectiveTimes) -> tuple[CollectiveSpeed, ...]:
        return summed(self.run, collectives(self.run, events=events)).collective_speeds

    @pytest.mark.parametrize(
        ("op", "factor"),
        [("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("all_to_all", 0.75), ("broadcast", 1)],
    )
    def test_bus_bandwidth_as_nccl_tests_define_it(self, op: str, factor: float) -> None:
        assert self.figures(CollectiveTimes(0, 0, op, 1000, (0.5, 0.1, 0.2))) == (
            CollectiveSpeed(op, "world", 4, 1000, 0.2, 5000.0, pytest.approx(5000 * factor)),
        )

    def test_the_slowest_rank_counts(self) -> None:
        (collective_speed,) = self.figures(
            CollectiveTimes(0, 1, "all_reduce", 1000, (0.1,)), CollectiveTimes(1, 1, "all_reduce", 1000, (0.2,))
        )
        assert (collective_speed.group, collective_speed.ranks, collective_speed.seconds, collective_speed.busbw) == (
            "dp2",
            2,
            0.2,
            5000.0,
        )

    def test_no_time_and_an_unknown_group_are_no_error(self) -> None:
        assert self.figures(CollectiveTimes(0, 0, "all_reduce", 8, ())) == ()
        (collective_speed,) = self.figures(CollectiveTimes(0, 9, "all_reduce", 8, (0.0,)))
        assert (collective_speed.group, collective_speed.ranks, collective_speed.algbw, collective_speed.busbw) == (
            "group 9",
            0,
            0.0,
            0.0,
        )
