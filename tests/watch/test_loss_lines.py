from __future__ import annotations

import math
import re
import time

import pytest

from doctor.report.layout.loss_section import sparkline
from doctor.watch.loss.log_watch import PATTERN_LINE, PatternRefusedError, compile_pattern
from doctor.watch.loss.loss_lines import LossLine, read_by_pattern, read_loss
from tests.watch.loss_samples import LINES


@pytest.mark.parametrize(
    ("line", "value", "step", "rank"), [line[1:] for line in LINES], ids=[line[0] for line in LINES]
)
def test_a_line_of_the_field(line: str, value: float | None, step: int | None, rank: int | None) -> None:
    loss_line = read_loss(line)
    if value is None:
        assert loss_line is None
    else:
        assert loss_line is not None
        assert (loss_line.value, loss_line.step, loss_line.rank) == (value, step, rank)


@pytest.mark.parametrize(
    "prefix",
    [
        *(
            "rank 3: ",
            "Rank 3 | ",
            "RANK=3, ",
            "[rank 3] ",
            "[rank3] ",
            "[rank=3] ",
            "[Rank 3/8] ",
            "rank3: ",
            "rank 3 ",
        ),
        *("Rank 3 - ", "(rank 3) ", "2026-11-22 17:43:48,120 INFO train.py:12 [rank3] ", "[2026-11-22] (Rank 3/8) "),
    ],
)
def test_a_rank_that_the_program_prints_itself(prefix: str) -> None:
    reading = read_loss(f"{prefix}step 7 loss=0.5")
    assert reading is not None
    assert (reading.value, reading.step, reading.rank) == (0.5, 7, 3)


@pytest.mark.parametrize("prefix", ["lora rank 8 ", "(lora_rank=8) ", "rank 8 adapters, ", "ranked 3: ", ""])
def test_what_is_no_rank_of_a_process(prefix: str) -> None:
    reading = read_loss(f"{prefix}step 7 loss=0.5")
    assert reading is not None
    assert reading.rank is None


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf"])
def test_what_is_not_finite_is_a_loss(text: str) -> None:
    loss_line = read_loss(f"step 3 loss: {text}")
    assert loss_line is not None
    assert not math.isfinite(loss_line.value)


def test_a_step_that_the_loss_scaler_left_out() -> None:
    assert read_loss("step:[ 1/ 19], loss: inf, overflow cond: True").skipped  # type: ignore[union-attr]
    assert not read_loss("step:[ 1/ 19], loss: 2.1, overflow cond: False").skipped  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text", ["loss" * 30_000, "loss: " + "1" * 100_000, "loss=" + " " * 100_000, "a" * 100_000 + "loss"]
)
def test_a_hostile_line_takes_little_time(text: str) -> None:
    started = time.process_time()
    read_loss(text)
    assert time.process_time() - started < 0.5


def test_a_users_pattern() -> None:
    pattern = compile_pattern(r"it (?P<step>\d{1,9}) cost (?P<loss>[0-9.]+)")
    assert read_by_pattern("it 7 cost 2.5", pattern) == LossLine(2.5, 2, step=7)
    assert read_by_pattern("it 7 cost ...", pattern) is None


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|b*)*c", "(.*)x\\1", ".*a.*b.*c", "(a{1,500}){1,9}", "(", "(?P<x>a)", "a" * 501]
)
def test_a_pattern_that_can_take_long_is_refused(text: str) -> None:
    with pytest.raises(PatternRefusedError, match="expected"):
        compile_pattern(text)


def test_the_worst_pattern_that_is_accepted_ends() -> None:
    pattern = compile_pattern("a*b*c")
    started = time.process_time()
    assert read_by_pattern("a" * PATTERN_LINE, pattern) is None
    assert time.process_time() - started < 2


def test_the_curve_as_bars() -> None:
    assert sparkline([8, 7, 6, 5, 4, 3, 2, 1]) == "█▇▆▅▄▃▂▁"[:8]
    assert sparkline([2.0, math.nan, 1.0]) == "█x▁"
    assert len(sparkline(range(1000), 40)) == 40
    assert sparkline([math.nan]) == "x"
    assert re.fullmatch("▁+", sparkline([1.0, 1.0]))
