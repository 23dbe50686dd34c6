from __future__ import annotations

import math

import pytest

from doctor.engine.loss_rules import is_warning, verdict_text
from doctor.watch.loss.log_watch import LogWatch, LossOptions, judge
from doctor.watch.loss.loss_lines import LossLine
from doctor.watch.loss.loss_series import LossSeries
from doctor.watch.loss.rank_agreement import LEARNED, MAX_VALUES, RankAgreement
from tests.watch.simulated_losses import Curve, faulty_curve, fed, healthy_curve

ERRORS = ("not-finite", "diverged", "stalled", "constant")


def kinds(curve: Curve) -> list[str]:
    series = LossSeries()
    for line, ordinal in fed(curve):
        series.add(line, ordinal)
    return [verdict.kind for verdict in judge({None: series})]


@pytest.mark.parametrize("kind", [*ERRORS, "spiked"])
def test_each_fault_is_told(kind: str) -> None:
    for seed in range(12):
        assert kind in kinds(faulty_curve(kind, seed)), seed


@pytest.mark.every
def test_healthy_trainings_have_no_error() -> None:
    for seed in range(250):
        assert not set(kinds(healthy_curve(seed))) & set(ERRORS), seed


@pytest.mark.full
def test_the_rate_of_false_alarms() -> None:
    """The figures of docs/watch-log.md: of 10,000 healthy trainings."""
    numbers = [kind for seed in range(10_000) for kind in kinds(healthy_curve(seed))]
    assert not set(numbers) & set(ERRORS)
    assert numbers.count("spiked") <= 10


def lines(values: list[float], **fields: object) -> Curve:
    return Curve(
        "", tuple(LossLine(value, 5 if value else 0, step=step + 1, **fields) for step, value in enumerate(values))
    )  # type: ignore[arg-type]


def falling(count: int) -> list[float]:
    return [2 + 8 / (1 + step / 20) + 0.01 * math.sin(step * 7) for step in range(count)]


def test_one_inf_is_a_step_that_was_left_out() -> None:
    values = falling(200)
    values[100] = math.inf
    assert kinds(lines(values)) == []


@pytest.mark.parametrize(("number", "count"), [("NaN", 1), ("Inf", 1), ("NaN", 2)])
def test_a_last_loss_that_is_not_finite_is_a_warning_once_no_other_is_waited_for(number: str, count: int) -> None:
    """A program that prints every fiftieth loss prints one NaN, and ends."""
    watch = LogWatch(["job.log"])
    for step, value in enumerate([2.5, 2.4] + [float(number)] * count):
        watch.add(0, f"step {50 * step} loss {value}".encode())
    assert watch.verdicts(is_over=False) == []
    [verdict] = watch.verdicts()
    assert (verdict_text(verdict), is_warning(verdict)) == (
        f"the last loss that was read is {number}, of step {50 * (1 + count)}",
        True,
    )


def test_a_last_loss_of_a_step_that_a_loss_scaler_left_out_is_nothing() -> None:
    assert kinds(lines([*falling(20), math.inf], skipped=True)) == []


def test_where_three_losses_of_one_rank_are_nan_the_last_of_another_says_no_more() -> None:
    watch = LogWatch(["rank0.log", "rank1.log"])
    for rank, values in enumerate(([2.5, math.nan, math.nan, math.nan], [2.5, 2.4, 2.3, math.nan])):
        for step, value in enumerate(values):
            watch.add(rank, f"step {step} loss {value}".encode())
    assert [(verdict.kind, verdict.ranks) for verdict in watch.verdicts()] == [("not-finite", (0,))]


def test_a_loss_that_is_finite_again() -> None:
    series = LossSeries()
    for step, value in enumerate([2.5, math.nan, math.nan, math.nan, 2.4]):
        series.add(LossLine(value, 2, step=step), step)
    [verdict] = judge({None: series})
    assert verdict_text(verdict) == "the loss was NaN from step 1, and is finite again"


def test_a_loss_scaler_that_looks_for_its_scale() -> None:
    values = [math.inf] * 16 + falling(200)
    assert kinds(lines(values, skipped=True)) == []
    assert kinds(lines(values)) == ["not-finite"]


def test_a_run_that_goes_on_from_a_checkpoint_need_not_fall() -> None:
    flat = [2 + 0.01 * math.sin(step * 7) for step in range(500)]
    assert kinds(lines(flat)) == ["stalled"]
    resumed = Curve("", tuple(LossLine(value, 5, step=90_000 + step) for step, value in enumerate(flat)))
    assert kinds(resumed) == []


def test_a_loss_that_sank_to_zero_is_well() -> None:
    assert kinds(lines([*falling(100), *[0.05 / (1 + n) for n in range(200)], *[0.0] * 100])) == []
    assert kinds(lines([*falling(100), *[0.0] * 100])) == ["constant"]


def test_losses_around_zero_are_judged_by_nan_alone() -> None:
    """As those of reinforcement learning."""
    swinging = [math.sin(step * 3.7) * (1 + step / 50) for step in range(600)]
    assert kinds(lines(swinging)) == []


def test_a_progress_bar_that_is_drawn_again_counts_once() -> None:
    series = LossSeries()
    for _ in range(300):
        series.add(LossLine(2.5, 5, step=7), 1)
    assert series.lines == 1
    assert not judge({None: series})


def told_by(*losses: list[float], must: bool = False, digits: int = 6) -> RankAgreement:
    agreement = RankAgreement(must)
    for step in range(len(losses[0])):
        for rank, values in enumerate(losses):
            agreement.add(rank, step, values[step], digits)
    return agreement


def test_ranks_that_agreed_and_no_longer_do() -> None:
    same = falling(LEARNED + 20)
    other = [*same[: LEARNED + 5], *[value * 1.01 for value in same[LEARNED + 5 :]]]
    difference = told_by(same, same, other, same).differing
    assert difference is not None
    assert (difference.step, difference.outliers) == (LEARNED + 5, (2,))


@pytest.mark.parametrize("must", [True, False])
def test_logs_that_are_read_one_after_the_other_are_compared_over_all_ranks(must: bool) -> None:
    agreement, same = RankAgreement(must), falling(151)
    for rank in range(3):
        for step, value in enumerate(same):
            agreement.add(rank, step, value * (1.03 if rank == 2 and step >= 80 else 1.0), 6)
    assert agreement.differing is not None
    assert (agreement.differing.step, agreement.differing.outliers) == (80, (2,))
    assert agreement.compared <= 151


def test_a_rank_whose_log_ends_early_leaves_the_others_to_be_compared() -> None:
    agreement, same = RankAgreement(must=True), falling(60)
    for step, value in enumerate(same):
        agreement.add(0, step, value, 6)
        agreement.add(1, step, value * (1.03 if step >= 40 else 1.0), 6)
        if step < 20:
            agreement.add(2, step, value, 6)
    assert agreement.differing is None
    agreement.finish()
    assert agreement.differing is not None and agreement.differing.step == 40


def test_what_is_kept_for_the_comparison_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    most = MAX_VALUES // 10
    monkeypatch.setattr(f"{RankAgreement.__module__}.MAX_VALUES", most)
    agreement = RankAgreement(must=True)
    for rank in range(30):
        for step in range(1000):
            agreement.add(rank, step, 1.0, 6)
    assert agreement.compared and agreement._values <= most and agreement.differing is None


def test_data_parallel_ranks_may_differ() -> None:
    first, other = falling(100), [value + 0.02 for value in falling(100)]
    assert told_by(first, other).differing is None
    assert told_by(first, other, must=True).differing is not None


def test_losses_that_are_equal_by_their_few_digits_have_not_agreed() -> None:
    start, other = [11.0] * 60, [11.0] * 50 + [10.0] * 10
    assert told_by(start, other, digits=2).differing is None


def test_the_last_digit_may_differ() -> None:
    row = falling(100)
    assert told_by(row, [*row[:50], *[value * (1 + 1e-5) for value in row[50:]]]).differing is None


def test_ranks_by_the_names_of_their_files() -> None:
    watch = LogWatch(["log/worker_0.log", "log/worker_1.log"])
    for step, value in enumerate(falling(100)):
        watch.add(0, f"step: {step}, loss: {value:.6f}".encode())
        watch.add(1, f"step: {step}, loss: {value if step < 60 else math.nan:.6f}".encode())
    [not_finite, differ] = watch.verdicts()
    assert (not_finite.kind, not_finite.ranks, not_finite.step) == ("not-finite", (1,), 60)
    assert differ.kind == "ranks-differ"


def test_a_log_that_falls_silent() -> None:
    watch = LogWatch(["a.log"], LossOptions(silent_after=600))
    watch.add(0, b"step 1 loss: 2.5", 0.0)
    watch.live(0.0)
    for step in range(1, 10):
        watch.add(0, b"step %d loss: 2.%d" % (step, step), step * 200.0)
    assert not watch.verdicts(1800.0 + 999)
    assert [verdict.kind for verdict in watch.verdicts(1800.0 + 1001)] == ["silent"]


@pytest.mark.parametrize("growth", [1.02, 1.05, 1.1, 1.5])
def test_a_loss_that_still_rises_has_diverged(growth: float) -> None:
    """Its own deviation grows with it."""
    assert "diverged" in kinds(lines(falling(120) + [falling(120)[-1] * growth**step for step in range(1, 150)]))
