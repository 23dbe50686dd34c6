"""Parameters in shards: replicas that are equal, and gradients that are the mean of the ranks' own or their sum."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor.watch.data.data_report import DataReport, analyze_records
from tests.watch.campaign import conduct, plan
from tests.watch.data_campaign import Ranks, source_of

SUMMED, APART = "smoke-gradient-summed", "smoke-parameters-not-broadcast"
STEPS = range(5)


def records(rank: int, *more: dict[str, Any], use: str = "shards", world: int = 2) -> bytes:
    """What a rank tells: its groups, of which the first holds a model in shards or replicas of it, and more."""
    groups = [list(range(world)), [rank // 2 * 2, rank // 2 * 2 + 1], [0, 1]]
    entries = [{"k": "group", "id": number, "ranks": ranks, "n": ""} for number, ranks in enumerate(groups, 1)]
    entries.append({"k": "use", "g": 1, "u": use, "why": "FSDP"})
    return b"".join(json.dumps({"r": rank, **entry}).encode() + b"\n" for entry in [*entries, *more])


def totals(step: int, computed: float, got: float, sizes: tuple[int, int] = (100, 50)) -> dict[str, Any]:
    return {"k": "totals", "s": step, "v": [computed, got], "n": sizes}


def backward(step: int, factor: float, method: str = "mean") -> dict[str, Any]:
    return {"k": "backward", "s": step, "v": 1.0, "how": method, "f": factor}


def reduced_by(ratio: float, *losses: float, method: str = "mean", clip: dict[int, float] | None = None) -> DataReport:
    """Two ranks with a half of the model each, whose gradients are ``ratio`` times the sum of their own."""
    files = []
    for rank in range(2):
        own_entries: list[dict[str, Any]] = []
        for step in STEPS:
            both = [1.0 + step, -3.0 * step - 0.5]
            share = (0.7, 0.3)[rank]
            own_entries.append(totals(step, both[rank], sum(both) * ratio * share * (clip or {}).get(step, 1.0)))
            own_entries += [backward(step, factor, method) for factor in losses]
        files.append(records(rank, *own_entries))
    return analyze_records(files)


def levels(report: DataReport) -> list[tuple[str, str]]:
    return [(defect.check, defect.level) for defect in (*report.causes, *report.notes)]


def test_shards_whose_gradients_add_up_to_the_mean_are_healthy() -> None:
    assert levels(reduced_by(0.5, 1.0)) == []


def test_the_sum_of_mean_losses_is_an_error_and_accuses_no_single_rank() -> None:
    report = reduced_by(1.0, 1.0)
    assert levels(report) == [(SUMMED, "error")] and report.causes[0].ranks == ()
    assert "is the sum of the 2 data-parallel ranks' own" in report.causes[0].text


@pytest.mark.parametrize(
    ("losses", "level"),
    [
        ((0.5,), None),  # divided by the number of ranks
        ((0.25, 0.25), None),  # and by that of its micro-batches
        ((0.5, 0.5), None),  # either: there are as many of both
        ((1 / 3, 1 / 3, 1 / 3), "error"),
        ((1.0, 1.0, 1.0), "error"),
        ((0.125,), "note"),
        ((), "note"),
    ],
)
def test_a_program_that_scales_its_loss_is_not_accused(losses: tuple[float, ...], level: str | None) -> None:
    assert levels(reduced_by(1.0, *losses)) == ([(SUMMED, level)] if level else [])


def test_a_loss_that_is_a_sum_makes_it_a_note() -> None:
    assert levels(reduced_by(1.0, 0.0, method="sum")) == [(SUMMED, "note")]


def test_sums_that_were_clipped_are_told_by_the_steps_that_were_not() -> None:
    assert levels(reduced_by(1.0, 1.0, clip={0: 0.7, 2: 0.6, 3: 0.9})) == [(SUMMED, "error")]
    assert levels(reduced_by(1.0, 1.0, clip=dict.fromkeys(STEPS, 0.7))) == []
    assert levels(reduced_by(0.5, 1.0, clip={0: 0.7, 2: 0.6, 3: 0.9})) == []


def test_gradients_that_were_not_reduced_at_all_are_no_sum() -> None:
    """Of a group that holds other parts of a model on each rank: what they computed is what they step with."""
    files = [records(r, *(totals(s, 1.0 + s + r, 1.0 + s + r, (50, 50)) for s in STEPS)) for r in range(2)]
    assert levels(analyze_records(files)) == []


@pytest.mark.parametrize("sizes", [(100, 70), (0, 50), (100, 0)])
def test_where_the_shards_are_not_all_of_one_model_nothing_is_said(sizes: tuple[int, int]) -> None:
    files = [records(r, *(totals(s, 1.0 + s, 1.0 + s, sizes) for s in STEPS)) for r in range(2)]
    assert levels(analyze_records(files)) == []


@pytest.mark.parametrize("value", [None, "nan", [1.0], [1.0, "inf"], {"a": 1}])
def test_totals_that_are_no_numbers_are_left_out(value: object) -> None:
    record = {"k": "totals", "s": 0, "v": value, "n": [100, 50]}
    assert levels(analyze_records(records(rank, record) for rank in range(2))) == []


def shards(kind: str, digest: str, group: int = 2) -> dict[str, Any]:
    return {"k": f"{kind} shards", "s": 0, "t": {"a": digest, "b": "1"}, "of": {"a": group, "b": group}, "bad": []}


def four_ranks(digests: str, group: int = 2) -> DataReport:
    """Ranks 0-1 hold one replica in shards, ranks 2-3 another; ranks 0 and 2 are a data-parallel group."""
    files = []
    for rank, digest in enumerate(digests):
        line = json.dumps({"k": "group", "r": rank, "id": 9, "ranks": [rank % 2, rank % 2 + 2]}).encode() + b"\n"
        use = {"k": "use", "g": 9, "u": "data", "why": "replicas of FSDP"}
        files.append(line + records(rank, use, shards("begun", digest, group), world=4))
    return analyze_records(files)


def test_a_replica_whose_shard_differs_is_named_beside_its_peer() -> None:
    (cause,) = four_ranks("abxb").causes
    assert (cause.check, cause.ranks, cause.tie) == (APART, (0, 2), True) and "not broadcast: a" in cause.text
    assert four_ranks("abab").causes == ()


def test_shards_in_other_places_of_a_whole_are_not_compared() -> None:
    assert four_ranks("abcd", group=1).causes == ()  # one whole over all four
    assert four_ranks("abcd", group=7).causes == ()  # a group that is not known


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    pytest.importorskip("torch")
    started = Ranks()
    yield started
    started.close()


@pytest.mark.sample
@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("program", "fault"), [("fsdp1", "sum of fsdp"), ("fsdp2", "replica of a shard"), ("fsdp1", "seed of another")]
)
def test_a_real_program_with_shards(ranks: Ranks, program: str, fault: str) -> None:
    result = conduct(plan(program, fault, 0), ranks)
    assert result.verdict in {"right", "one of"} and not result.accused, result


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.parametrize("backward", ["loss.backward(torch.tensor(1.0 / world))", "(loss / world).backward()"])
def test_a_real_program_that_divides_before_it_adds(ranks: Ranks, tmp_path: Path, backward: str) -> None:
    text = source_of("fsdp2").replace("loss.backward()", backward)
    text = text.replace(
        "# wrapped",
        "for layer in (layer for layer in model.modules() if hasattr(layer, 'set_gradient_divide_factor')):\n"
        "    layer.set_force_sum_reduction_for_comms(True); layer.set_gradient_divide_factor(1.0)",
    )
    assert ranks.run(text, 2, str(tmp_path))["codes"] == [0, 0]
    report = analyze_records(path.read_bytes() for path in tmp_path.glob("*.probe"))
    assert (report.causes, report.notes, report.unseen) == ((), (), ())
