"""The worker trains one model in every layout: each equals the reference run, and digests tell who holds what."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from doctor.smoke.model import Layout
from doctor.smoke.plan import default_layouts
from tests.smoke.judged_ranks import outcome_of
from tests.smoke.mutants import errors, findings_by_check, outcomes
from tests.smoke.ranks import Event, Ranks, worker

pytestmark = pytest.mark.torch

MORE = {
    2: [Layout(pp=2, accumulate=4), Layout(dp=2, zero=True), Layout(dp=2, accumulate=2), Layout(pp=2)],
    3: [Layout(pp=3), Layout(dp=3, zero=True, recompute=True)],
    4: [
        Layout(pp=2, dp=2, zero=True, recompute=True),
        Layout(dp=2, tp=2, accumulate=2),
        Layout(tp=4, recompute=True),
    ],
    8: [Layout(pp=2, dp=2, tp=2, zero=True), Layout(dp=2, tp=4, zero=True)],
}


@functools.cache
def trained(world: int) -> Ranks:
    """One launch with every layout of the plan for so many ranks, and a few stranger ones."""
    chosen = (*default_layouts(world), *MORE.get(world, ()))
    return Ranks(world, ("training", "learning", "loader"), layouts=chosen, seconds=90)


def courses(run: Ranks) -> Iterator[tuple[Layout, int, dict[int, list[Event]]]]:
    """Each layout with its number and its steps: what every rank said of them."""
    for number, layout in enumerate(run.plan.layouts):
        yield layout, number, {step: run.of("step", layout=number, step=step) for step in range(run.plan.steps)}


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def alike(layout: Layout, axes: str) -> list[list[int]]:
    """Ranks that differ in these axes alone (``p``, ``d``, ``t``)."""
    groups = defaultdict(list)
    for rank in range(layout.world):
        place = {"p": rank // (layout.dp * layout.tp), "d": rank // layout.tp % layout.dp, "t": rank % layout.tp}
        groups[tuple(place[axis] for axis in "pdt" if axis not in axes)].append(rank)
    return list(groups.values())


WORLDS = pytest.mark.parametrize("world", [1, 2, 3, 4, 8])


@pytest.mark.every
@pytest.mark.parametrize("world", [2, 3, 4])
def test_no_check_has_a_finding_and_none_is_unknown(world: int) -> None:
    """What `tests.smoke.mutants` changes is right as it is."""
    run = trained(world)
    assert not run.of("error") and len(run.of("done")) == world, run.error_output
    observed_outcomes = outcomes(run)
    assert not findings_by_check(run)
    assert not [name for name, outcome in observed_outcomes.items() if outcome.unknown]
    assert {name for name, outcome in observed_outcomes.items() if not outcome.complete} <= {"smoke-native-differs"}
    off = errors(run)
    assert off.keys() == {layout.name for layout in run.plan.layouts}
    assert max(off.values()) <= 1e-6


@pytest.mark.sample
@WORLDS
def test_every_layout_has_the_losses_of_the_reference_run(world: int) -> None:
    run = trained(world)
    reference = run.of("reference")[0]
    for layout, _, steps in courses(run):
        losses = [
            mean([responses["loss"] for responses in steps[step] if responses["loss"] is not None]) for step in steps
        ]
        assert losses == pytest.approx(reference["losses"], rel=1e-6), layout.name


@WORLDS
def test_the_gradients_of_the_ranks_that_hold_one_model_add_up_to_the_reference_runs(world: int) -> None:
    run = trained(world)
    reference = run.of("reference")[0]
    for layout, _, steps in courses(run):
        model = alike(layout, "pdt" if layout.zero else "pt")[0]
        norms = [math.sqrt(sum(steps[step][rank]["grad"] ** 2 for rank in model)) for step in steps]
        assert norms == pytest.approx(reference["grads"], rel=1e-5), layout.name


@WORLDS
def test_so_do_the_updates_of_every_tensor(world: int) -> None:
    run = trained(world)
    reference = run.of("reference-update")[0]["update"]
    for layout, number, _ in courses(run):
        total: dict[str, float] = defaultdict(float)
        ended = run.of("end", layout=number)
        for rank in alike(layout, "pt")[0]:
            for name, square in ended[rank]["update"].items():
                total[name] += square
        assert total == pytest.approx(reference, rel=1e-4), layout.name


@WORLDS
def test_replicas_are_equal_bit_for_bit_and_shards_are_not(world: int) -> None:
    run = trained(world)
    for layout, _, steps in courses(run):
        for step in steps.values():
            for group in alike(layout, "d"):
                assert len({step[rank]["params"] for rank in group}) == 1, layout.name
                digests = {step[rank]["grad_digest"] for rank in group}
                assert len(digests) == (layout.dp if layout.zero else 1), layout.name
            for group in alike(layout, "t"):
                assert len({step[rank]["replicated"] for rank in group}) == 1, layout.name
                assert len({step[rank]["params"] for rank in group}) == layout.tp, layout.name


@WORLDS
def test_the_broadcast_makes_different_parameters_the_same(world: int) -> None:
    run = trained(world)
    for layout, number, _ in courses(run):
        begun = run.of("begin", layout=number)
        for group in alike(layout, "d"):
            assert len({begun[rank]["before"] for rank in group}) == layout.dp, layout.name
            assert {begun[rank]["params"] for rank in group} == {begun[group[0]]["before"]}, layout.name


@WORLDS
def test_every_block_is_read_by_one_data_parallel_index_with_the_twins_ids_and_masks(world: int) -> None:
    run = trained(world)
    blocks = run.of("reference-blocks")
    for layout, _, steps in courses(run):
        for step, rows in steps.items():
            for event in rows:
                assert event["ids"] == [blocks[step]["ids"][block] for block in event["blocks"]]
                assert event["masks"] == [blocks[step]["masks"][block] for block in event["blocks"]]
            firsts = [rows[group[0]] for group in alike(layout, "pt")]
            assert sorted(block for event in firsts for block in event["blocks"]) == list(range(len(blocks[0]["ids"])))


@WORLDS
def test_draws_are_equal_inside_a_model_and_differ_over_data_parallel_ranks(world: int) -> None:
    run = trained(world)
    for layout, _, steps in courses(run):
        for step in steps.values():
            for kind in step[0]["rng"]:
                inside = [{step[rank]["rng"][kind] for rank in group} for group in alike(layout, "pt")]
                assert all(len(digests) == 1 for digests in inside), (layout.name, kind)
                assert len(set.union(*inside)) == layout.dp, (layout.name, kind)


@WORLDS
def test_nothing_bad_is_seen_and_only_the_last_stage_tells_a_loss(world: int) -> None:
    run = trained(world)
    for layout, _, steps in courses(run):
        for step in steps.values():
            assert {event["bad"] for event in step} == {""}
            last = layout.dp * layout.tp * (layout.pp - 1)
            assert [event["loss"] is None for event in step] == [rank < last for rank in range(world)]


def test_all_ranks_compute_the_same_reference_run_whatever_the_world_is() -> None:
    # Two, four and eight ranks read the same eight blocks.
    events = [{**responses, "rank": 0} for world in (2, 4, 8) for responses in trained(world).of("reference")]
    assert len(events) == 14
    assert all(responses == events[0] for responses in events)
    assert trained(3).of("reference")[0]["losses"] != events[0]["losses"]


def test_recomputing_changes_no_bit() -> None:
    run = trained(4)
    baseline = run.plan.layouts.index(Layout(tp=4))
    again = run.plan.layouts.index(Layout(tp=4, recompute=True))
    for step in range(run.plan.steps):
        events = run.of("step", layout=baseline, step=step)
        assert [{**responses, "layout": again} for responses in events] == run.of("step", layout=again, step=step)


@WORLDS
def test_the_learning_stage_learns_within_ten_steps(world: int) -> None:
    run = trained(world)
    losses = [mean([responses["loss"] for responses in run.of("learn", step=step)]) for step in range(10)]
    assert losses[0] > math.log(64) - 0.2
    assert mean(losses[-3:]) < math.log(64) - 0.5


def test_events_fit_into_one_write() -> None:
    worlds = (trained(world) for world in (2, 3, 4, 8))
    assert max(len(str(event)) for run in worlds for event in run.events) < 2048


MEAN_TO_SUM = """
mean = Model.reduce_gradient
Model.reduce_gradient = lambda self: mean(self) * self.mesh.dp
"""


def test_a_sum_for_a_mean_is_not_the_reference_run() -> None:
    run = Ranks(2, ("training",), MEAN_TO_SUM)
    reference, rows = run.of("reference")[0], run.of("step", step=1)
    assert mean([record["loss"] for record in rows]) != pytest.approx(reference["losses"][1], rel=1e-2)
    assert run.of("step", step=0)[0]["grad"] == pytest.approx(2 * reference["grads"][0], rel=1e-5)


SUMS_OF_RANK_1_ARE_DOUBLED = """
class TracedComm(TracedComm):
    def all_reduce(self, tensor, group, op=None):
        super().all_reduce(tensor, group, op)
        if self.rank == 1 and self.recorder.step:
            tensor.mul_(2)
"""


def test_a_rank_whose_sums_become_wrong_while_it_trains_is_isolated_by_the_second_round() -> None:
    """Its collectives were right when they were tested. Of a healthy training no second round is made."""
    (isolated,) = Ranks(3, ("training",), SUMS_OF_RANK_1_ARE_DOUBLED, hosts=["a", "b", "c"]).of("isolated")
    assert (isolated["recurred"], isolated["culprits"], isolated["links"]) == (True, [[1]], [])
    assert trained(3).of("isolated") == []


SPOIL = """
place = "{place}"
def spoilt(model):
    return model.comm and model.comm.rank == 1 and model.comm.recorder.step == 2
def changed(name, change):
    as_told = getattr(Model, name)
    setattr(Model, name, lambda self, *rest: change(self, as_told, *rest))
def bad(tensor):
    tensor = tensor.clone()
    tensor.view(-1)[3] = float("nan")
    return tensor
def argument(self, as_told, tensor):
    return as_told(self, bad(tensor) if spoilt(self) else tensor)
def outcome(self, as_told, batch):
    loss = as_told(self, batch)
    if spoilt(self):
        self.gradient[3] = float("inf")
    return loss
def after(self, as_told, *rest):
    as_told(self, *rest)
    if spoilt(self):
        self.flat[3] = float("nan")
changed(*{{
    "activations": ("tp_exit", argument), "scores": ("tp_gather", argument), "back": ("tp_enter_backward", argument),
    "gradient": ("forward_backward", outcome), "parameters": ("update", after),
}}[place])
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("activations", "activations"),
        ("scores", "activations"),
        ("back", "gradient"),
        ("gradient", "gradient"),
        ("parameters", "parameters"),
    ],
)
def test_the_rank_that_makes_a_number_bad_is_told_from_those_that_are_given_it(place: str, kind: str) -> None:
    run = Ranks(2, ("training",), SPOIL.format(place=place), layouts=(Layout(dp=2), Layout(tp=2), Layout(pp=2)))
    for layout, number, steps in courses(run):
        if layout.pp > 1 and place in ("activations", "scores"):
            continue  # below, with the first stage as the guilty one
        first = next(step for step, entries in steps.items() if any(record["bad"] for record in entries))
        rows = run.of("step", layout=number, step=first)
        assert (first, rows[1]["bad"]) == (2, kind), layout.name
        assert rows[0]["bad"] in ("", "input", "parameters"), layout.name


def test_a_stage_that_is_sent_a_bad_number_says_so() -> None:
    text = SPOIL.format(place="activations").replace("rank == 1", "rank == 0")
    run = Ranks(2, ("training",), text, layouts=(Layout(pp=2),))
    assert [responses["bad"] for responses in run.of("step", step=2)] == ["activations", "input"]


WRONG_ALIKE = """
reduce_as_told = Model.reduce_gradient

def reduce_gradient(self):
    mean = reduce_as_told(self)
    if self.comm and self.comm.recorder.stage == STAGES.index("learning") and {when}:
        mean[7] = 1 - 2 * mean[7]
    return mean

Model.reduce_gradient = reduce_gradient
"""


@pytest.mark.parametrize("steps", [">= 0", "== 4", "== 9"])
def test_replicas_that_learn_wrongly_alike_are_told_by_the_serial_training(steps: str) -> None:
    """All ranks of one data-parallel group get one and the same wrong element, in every step, in one, in the last."""
    text = WRONG_ALIKE.format(when=f"self.mesh.pp_rank == 1 and self.comm.recorder.step {steps}")
    run = Ranks(4, ("training", "learning"), text, layouts=(Layout(pp=2, dp=2),))
    assert len({event["params"] for event in run.of("learned")}) == 2, "replicas are alike"
    [finding] = outcome_of("smoke_learning_differs", run, "aabb").findings
    assert {2, 3} <= set(finding.values["ranks"])
    assert finding.values["ranks"] == [2, 3] or "where they go wrong is not known" in str(finding)


def test_of_replicas_with_equal_bits_one_does_the_serial_training() -> None:
    errors = [event["error"] for event in trained(4).of("learned")]
    assert [error is None for error in errors] == [False, True, False, True]
    assert all(error < 1e-3 for error in errors if error is not None)


# What the data are made of.


def names() -> Any:
    return worker()


def test_no_two_blocks_of_a_step_are_the_same_sample() -> None:
    for count in (8, 12, 2401):
        assert len(set(names()["block_samples"](1, 0, count))) == count
    assert len(names()["block_samples"](1, 0, 3000)) == 3000


def test_every_generator_has_a_say_in_the_mask() -> None:
    dice = names()["CounterRng"](1, names()["torch"].device("cpu"))
    drawn = dice.mask_scores(0, 0)
    masks = [names()["masked_positions"]({**drawn, kind: dice.mask_scores(0, 1)[kind]}) for kind in drawn]
    masks.append(names()["masked_positions"](drawn))
    assert len({str(mask) for mask in masks}) == len(drawn) + 1
    assert all(len(row) == 2 for mask in masks for row in mask)


def test_a_draw_does_not_depend_on_the_draws_before_it() -> None:
    first, other = (names()["CounterRng"](1, names()["torch"].device("cpu")) for _ in range(2))
    other.mask_scores(3, 5)
    assert first.mask_scores(1, 2) == other.mask_scores(1, 2)
    assert names()["torch"].equal(first.dropout_mask(1, 2, 2), other.dropout_mask(1, 2, 2))


def test_only_the_other_words_of_a_row_tell_its_topic() -> None:
    rows = names()["sample_rows"](6 + 7 * 3)
    assert [row[0] for row in rows] == [7, 4, 1, 1]
    assert all(0 < word < 64 for row in rows for word in row)
    assert all(word - row[0] == 7 * place for row in rows for place, word in enumerate(row))


def test_micro_batches_cover_all_rows_once() -> None:
    batch = names()["Batch"].__new__(names()["Batch"])
    batch.inputs = [None] * 10
    for count in (1, 2, 3, 4, 10, 99):
        parts = batch.micro_batches(count)
        assert [row for part in parts for row in range(10)[part]] == list(range(10))
        assert len(parts) == min(count, 10)


def test_a_layout_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="8 heads"):
        names()["Mesh"]({"tp": 3})


SERIAL_IS_SHORT = """
MOST_SERIAL_BLOCKS = 3 * LEARNING_BLOCKS
"""


def test_the_serial_training_of_a_large_world_does_fewer_steps() -> None:
    """What the ranks held after as many steps is compared, and is right."""
    ranks = Ranks(2, ["learning"], SERIAL_IS_SHORT)
    first, second = ranks.of("learned")
    assert (first["steps"], first["error_steps"]) == (10, 3)
    assert 0 <= first["error"] < 1e-3 and second["error"] is None
    (learned, _) = Ranks(2, ["learning"]).of("learned")
    assert (learned["steps"], learned["error_steps"]) == (10, 10)
    assert learned["params"] == first["params"]


NAN_ONCE = """
_plain_all_reduce, _calls = TracedComm.all_reduce, [0]

def all_reduce(self, tensor, *rest, **more):
    _plain_all_reduce(self, tensor, *rest, **more)
    _calls[0] += self.rank == 1 and tensor.numel() > 500
    if self.rank == 1 and _calls[0] == 3:
        tensor.view(-1)[3] = float("nan")

TracedComm.all_reduce = all_reduce
"""


def test_a_number_that_a_sum_spoils_on_one_rank_is_laid_at_that_rank_or_at_who_sent_it() -> None:
    """Its peer is given it by the next sum, and so holds it in the same step; it may have changed on its way."""
    hosts = ["a", "b"]
    run = Ranks(2, ("training",), NAN_ONCE, layouts=[Layout(tp=2)], hosts=hosts, seconds=90)
    held = {event["rank"]: event["bad"] for event in run.of("step", step=0)}
    assert held == {0: "input", 1: "input"}
    (finding,) = outcome_of("smoke_not_finite", run, hosts).findings
    assert finding.hosts == ("a", "b") and finding.values["tie"] and str(finding).startswith("rank 1 (b")
