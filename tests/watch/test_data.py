"""Digests of real gloo programs: nothing is changed by them, healthy runs are quiet, faults name class and rank."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor.analysis.values.value_defect import ValueDefect, separate_causes
from doctor.watch.data.data_report import analyze_records
from doctor.watch.data.records import read_records
from tests.watch.data_campaign import Ranks, run_trial, source_of
from tests.watch.data_faults import FAULTS

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    started = Ranks()
    yield started
    started.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("program", "world"), [("replicas", 2), ("tensor_parallel", 4)])
def test_a_healthy_program_computes_the_same_bits_and_has_no_finding(
    ranks: Ranks, tmp_path: Path, program: str, world: int
) -> None:
    bare = ranks.run(source_of(program), world)
    watched = ranks.run(source_of(program), world, str(tmp_path))
    assert watched == bare and watched["codes"] == [0] * world
    report = analyze_records(path.read_bytes() for path in tmp_path.glob("*.probe"))
    assert (report.causes, report.unseen, report.steps) == ((), (), 6)
    assert len(report.inferred) == {"replicas": 1, "tensor_parallel": 4}[program]


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [("3", [0, 1, 2, 16, 64]), ("3,0", [0, 1, 2]), ("2,25", [0, 1, 25, 50, 75]), ("0,50", [0, 50])],
)
def test_which_steps_are_digested(schedule: str, steps: list[int]) -> None:
    import torch

    from doctor.watch.hook.channel import Channel
    from doctor.watch.hook.data_collection import DigestCollection
    from doctor.watch.hook.data_hooks import parse_schedule

    numbers = parse_schedule(schedule)
    assert numbers
    collection = DigestCollection(torch, Channel(""), *numbers)
    for step in range(100):
        collection.step = step
        assert collection.sampled == (step in steps)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("change", "checks"), [("+= 0.01", ["smoke-parameters-diverge"]), ("+= 0.0", [])])
def test_values_that_part_after_the_first_steps_are_found(
    ranks: Ranks, tmp_path: Path, change: str, checks: list[str]
) -> None:
    source = source_of("replicas").replace("range(2)", "range(8)", 1)
    step = "        optimizer.step()\n"
    later = f"        if rank == 1 and epoch == 4:\n            model.module[3].weight.data[0, 0] {change}\n"
    ended = ranks.run(source.replace(step, step + later, 1), 2, str(tmp_path), DOCTOR_WATCH_DATA="3")
    assert ended["codes"] == [0, 0]
    report = analyze_records(path.read_bytes() for path in tmp_path.glob("*.probe"))
    assert [cause.check for cause in report.causes] == checks


@pytest.mark.timeout(600)
def test_behind_a_join_whose_ranks_took_unlike_numbers_of_steps_nothing_is_compared(
    ranks: Ranks, tmp_path: Path
) -> None:
    source = source_of("replicas")
    start, end = source.index("    for number, (rows"), source.index("result = ")
    loop = source[start:end].replace("number == 3", "number == 3 + rank")
    body = "".join(f"    {line}\n" for line in loop.splitlines())
    text = source[:start] + "    with Join([model]):\n" + body + source[end:]
    text = text.replace("import os\n", "import os\nfrom torch.distributed.algorithms.join import Join\n", 1)
    ended = ranks.run(text, 2, str(tmp_path), DOCTOR_WATCH_DATA="10")
    assert ended["codes"] == [0, 0]
    report = analyze_records(path.read_bytes() for path in tmp_path.glob("*.probe"))
    assert report.causes == ()
    assert "nothing was compared behind a Join" in str(report.unseen)


BY_CLOSURE = """        def compute():
            optimizer.zero_grad()
            with model.no_sync():
                torch.nn.functional.cross_entropy(model(rows), wanted).backward()
            loss = torch.nn.functional.cross_entropy(model(rows), wanted)
            loss.backward()
            return loss
        loss = optimizer.step(compute)
"""


@pytest.mark.timeout(600)
def test_gradients_that_a_closure_computes_inside_of_the_step_are_read_after_it(ranks: Ranks, tmp_path: Path) -> None:
    """As Lightning does it: before the step there are none, or those of a micro-batch that were not reduced."""
    source = source_of("replicas")
    start, end = source.index("        optimizer.zero_grad()"), source.index("        losses.append")
    text = source[:start] + BY_CLOSURE + source[end:]
    bare = ranks.run(text, 2)
    assert ranks.run(text, 2, str(tmp_path)) == bare and bare["codes"] == [0, 0]
    files = [path.read_bytes() for path in tmp_path.glob("*.probe")]
    report = analyze_records(files)
    assert (report.causes, report.unseen, report.steps) == ((), (), 6)
    job = read_records(files)
    assert all(len(list(entry.of("reduced"))) == 6 for entry in job.ranks.values())


@pytest.mark.timeout(600)
def test_a_model_that_is_compiled_in_place_computes_the_same_and_is_told(ranks: Ranks, tmp_path: Path) -> None:
    source = source_of("replicas")
    start = source.index("optimizer = ")
    text = source[:start] + 'model.compile(backend="eager")\n' + source[start:]
    bare = ranks.run(text, 2)
    assert ranks.run(text, 2, str(tmp_path)) == bare and bare["codes"] == [0, 0]
    report = analyze_records([path.read_bytes() for path in tmp_path.glob("*.probe")])
    assert report.causes == () and [text for text in report.unseen if "failed" in text] == []
    assert "after module.compile(), inputs of compiled models were not looked into" in str(report.unseen)


ENGINE = """import sys, types
engine = types.ModuleType("deepspeed.runtime.engine")
class DeepSpeedEngine(torch.nn.Module):
    seq_data_parallel_group = dist.group.WORLD
engine.DeepSpeedEngine = DeepSpeedEngine
sys.modules["deepspeed.runtime.engine"] = engine
kept = DeepSpeedEngine()
"""


@pytest.mark.timeout(600)
def test_an_optimizer_of_copies_is_judged_by_its_copies_and_an_engine_names_its_group(
    ranks: Ranks, tmp_path: Path
) -> None:
    text = source_of("flat_copies").replace("losses = []", ENGINE + "losses = []")
    reports = {}
    for name, source in {"healthy": text, "lr": text.replace("lr=0.01", "lr=0.01 * (rank == 0)")}.items():
        folder = tmp_path / name
        folder.mkdir()
        assert ranks.run(source, 2, str(folder))["codes"] == [0, 0]
        reports[name] = analyze_records([path.read_bytes() for path in folder.glob("*.probe")])
    assert (reports["healthy"].causes, reports["healthy"].unseen) == ((), ())
    assert reports["healthy"].inferred == ("ranks 0-1 were taken as a data-parallel group, by DeepSpeedEngine",)
    assert [(cause.check, cause.ranks) for cause in reports["lr"].causes] == [("smoke-update-missing", (1,))]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["mask", "not broadcast", "sum by hook", "NaN"])
def test_a_fault_of_the_program_is_named_with_its_rank(ranks: Ranks, fault: str) -> None:
    trial = run_trial(ranks, fault, FAULTS[fault].program, 0)
    assert trial.right and not trial.accused, trial.report.causes


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("fault", list(FAULTS))
def test_every_fault_is_named_with_its_rank(ranks: Ranks, fault: str, seed: int) -> None:
    trial = run_trial(ranks, fault, FAULTS[fault].program, seed)
    assert trial.right and not trial.accused, trial.report.causes


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("program", ["replicas", "tensor_parallel"])
def test_no_healthy_run_has_a_finding(ranks: Ranks, program: str, seed: int) -> None:
    assert run_trial(ranks, "", program, seed).right


# Rules, on records as they are written


def lines(rank: int, *records: dict[str, Any]) -> bytes:
    group = {"k": "group", "r": rank, "id": 1, "ranks": [0, 1, 2], "n": ""}
    return b"".join(
        json.dumps({"r": rank, **record}).encode() + b"\n" for record in ({"k": "process"}, group, *records)
    )


def call(kind: str, digest: str, number: int = 0) -> dict[str, Any]:
    return {"k": kind, "n": "mask", "g": 1, "i": number, "d": digest}


def test_the_rank_that_stands_apart_in_a_call_is_named() -> None:
    report = analyze_records([lines(rank, call("same", "ab"[rank == 2])) for rank in range(3)])
    assert [(cause.check, cause.ranks, cause.tie) for cause in report.causes] == [("smoke-mask-differs", (2,), False)]
    assert 'probe.same("mask"): rank 2' in report.causes[0].text


def test_two_of_three_that_should_differ_and_do_not_are_both_named() -> None:
    report = analyze_records([lines(rank, call("different", "abb"[rank])) for rank in range(3)])
    assert report.causes[0].ranks == (1, 2)


def test_a_call_that_a_rank_has_not_made_yet_accuses_nobody() -> None:
    files = [lines(0, call("same", "a")), lines(1, call("same", "b")), lines(2)]
    assert analyze_records(files).causes == ()


@pytest.mark.parametrize(
    ("shards", "total", "kind"),
    [
        ([[0, 1], [2, 3], [4, 5]], 6, ""),
        ([[0, 1], [1, 3], [4, 5]], -1, "stated"),
        ([[0], [2], [4]], 5, "stated missing"),
    ],
)
def test_shards_are_disjoint_and_where_it_is_said_complete(shards: list[list[int]], total: int, kind: str) -> None:
    files = [
        lines(rank, {"k": "shard", "g": 1, "i": 0, "ix": shards[rank], "total": total, "count": 2, "distinct": 2})
        for rank in range(3)
    ]
    assert [cause.kind for cause in analyze_records(files).causes] == [kind] * bool(kind)


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00\xff\n",
        b"{" * 5000 + b"\n",
        b'{"k":"inputs","r":0,"s":0,"i":1,"a":{"x":[1,2]}}\n',
        b'{"k":"inputs","r":0,"s":[],"i":1}\n',
        b'{"k":"update","r":0,"s":0,"lr":{},"moved":"x","still":7}\n' * 4,
        b'{"k":"use","r":0,"g":[],"u":5}\n{"k":"group","r":0,"id":1,"ranks":["x"]}\n',
        b'{"k":"shard","r":0,"g":0,"i":0,"bits":"!!"}\n{"k":"shard","r":0,"g":0,"i":1,"bits":"eJw="}\n',
        b'{"k":"nan","r":0,"s":0,"n":"\\u001b[31m","c":null}\n',
        b'{"k":"loader","r":0,"l":0,"e":0,"shares":"x","share":[]}\n',
        b'{"k":"same","r":0,"n":["a"],"g":{},"i":"0","d":{}}\n',
    ],
)
def test_what_a_process_writes_is_not_trusted(junk: bytes) -> None:
    use = {"k": "use", "g": 1, "u": "data", "why": "test"}
    report = analyze_records([lines(0, use) + junk, lines(1, use), lines(2, use)])
    assert not any("\x1b" in cause.text for cause in report.causes)
    read_records([junk])


@pytest.mark.parametrize(
    ("counts", "kind", "ranks", "tie"),
    [
        ((3, 3, 3), "", (), False),
        ((3, 3, None), "divided", (2,), False),
        ((None, 3), "divided", (0, 1), True),
        ((None, 2), "divided", (0,), False),
        ((2, None), "divided", (1,), False),
        ((4, 5, 6), "divided", (0, 1, 2), True),
        ((3, [], {}), "divided", (1, 2), False),
    ],
)
def test_of_two_samplers_the_one_is_right_that_divides_by_the_ranks(
    counts: tuple[Any, ...], kind: str, ranks: tuple[int, ...], tie: bool
) -> None:
    use = {"k": "use", "g": 1, "u": "data", "why": "test"}
    group = {"k": "group", "id": 1, "ranks": list(range(len(counts)))}
    sampler = {"k": "loader", "l": 0, "e": 0, "shuffle": []}
    files = [
        lines(rank, group, use, {**sampler, "shares": count, "share": rank} if count else sampler)
        for rank, count in enumerate(counts)
    ]
    causes = analyze_records(files).causes
    assert [(cause.kind, cause.ranks, cause.tie) for cause in causes] == [(kind, ranks, tie)] * bool(kind)


@pytest.mark.parametrize(("losses", "level"), [((1.0, 2.0, 3.0), "note"), ((1.0, 1.0, 1.0), "error"), ((), "error")])
def test_equal_numbers_of_samples_are_no_fault_where_the_first_losses_tell_that_the_data_differ(
    losses: tuple[float, ...], level: str
) -> None:
    """A data set for each rank, and a forward pass that no hook sees: the numbers of the samples are alike."""
    use = {"k": "use", "g": 1, "u": "data", "why": "test"}
    read = [
        {"k": "loader", "l": 0, "e": 0, "size": 90, "batch": 4},
        {"k": "batch", "l": 0, "e": 0, "i": 0, "ix": [0, 1]},
    ]
    files = (
        lines(rank, use, *read, *({"k": "backward", "s": 0, "v": loss} for loss in losses[rank : rank + 1]))
        for rank in range(3)
    )
    report = analyze_records(files)
    (defect,) = report.causes if level == "error" else report.notes
    assert (defect.check, defect.kind, defect.level) == ("smoke-shards-wrong", "duplicated", level)


@pytest.mark.parametrize(("gradients", "ranks"), [("abc", ()), ("aab", (2,)), ("abb", (0,))])
def test_gradients_that_differ_on_all_replicas_accuse_none_of_them_alone(
    gradients: str, ranks: tuple[int, ...]
) -> None:
    """The program calls the module within the wrapper, which alone would reduce them."""
    use = {"k": "use", "g": 1, "u": "data", "why": "test"}
    files = (lines(rank, use, {"k": "reduced", "s": 0, "t": {"w": gradients[rank]}}) for rank in range(3))
    (cause,) = analyze_records(files).causes
    assert (cause.check, cause.ranks, cause.tie) == ("smoke-gradient-not-synchronised", ranks, False)
    assert cause.text.endswith(": w")


def test_a_group_that_is_no_number_is_no_group() -> None:
    """Any process may have written the records."""
    for group in ({}, [], "x", None, 1.5):
        report = analyze_records(lines(rank, {**call("same", str(rank)), "g": group}) for rank in range(3))
        assert report.steps == 0


def replica(rank: int, *records: dict[str, Any]) -> bytes:
    """What a rank of a data-parallel group of three tells."""
    return lines(rank, {"k": "use", "g": 1, "u": "data", "why": "DistributedDataParallel"}, *records)


@pytest.mark.parametrize(("counts", "late"), [((4, 2, 2), [(0,)]), ((4, 3, 2), []), ((3, 2, 2), []), ((4, 1, 2), [])])
def test_a_missing_update_is_told_from_uneven_accumulation(
    counts: tuple[int, ...], late: list[tuple[int, ...]]
) -> None:
    def passes(rank: int) -> list[dict[str, Any]]:
        numbers = [(0, number) for number in range(1, counts[rank] + 1)] + [(1, 1)]
        return [{"k": "inputs", "s": step, "i": number, "m": "M", "a": {}} for step, number in numbers]

    report = analyze_records(replica(rank, *passes(rank)) for rank in range(3))
    assert [cause.ranks for cause in report.causes if cause.check == "smoke-update-missing"] == late


@pytest.mark.parametrize(
    ("calls", "late"),
    [
        ([0, 0], []),  # two batches are accumulated, and one on the other rank
        ([0, 1], []),  # DistributedDataParallel exchanges the order of its buckets in a forward pass
        ([0, 2], [(0,)]),
        ([0, 0, 2, 4], [(0,)]),
        ([0], []),
        ([2], []),  # the other rank has made an update more before
    ],
)
def test_an_update_is_missing_where_ranks_have_met_and_one_made_none(
    calls: list[int], late: list[tuple[int, ...]]
) -> None:
    """``calls``: collectives that rank 0 had called before each forward pass of its first step; rank 1 calls two."""

    def passes(rank: int) -> list[dict[str, Any]]:
        counted = [(0, number + 1, before) for number, before in enumerate([0] if rank else calls)]
        return [
            {"k": "inputs", "s": step, "i": number, "m": "M", "a": {}, "c": [[7, before]]}
            for step, number, before in [*counted, (1, 1, 2 if rank else calls[-1] + 2)]
        ]

    together: dict[str, Any] = {"k": "group", "id": 7, "ranks": [0, 1]}
    report = analyze_records(lines(rank, together, *passes(rank)) for rank in range(2))
    assert [cause.ranks for cause in report.causes if cause.check == "smoke-update-missing"] == late


@pytest.mark.parametrize(
    ("calls", "late"),
    [
        ([(5, 9, 23), (5, 9, 24), (5, 9, 23)], [(1,)]),  # since step 2 rank 1 has once gone on without an update
        ([(5, 9, 65), (5, 9, 65), (5, 9, 67)], []),  # four collectives a step: two of a save are no step
        ([(5, 5, 6), (5, 5, 7), (5, 5, 6)], []),  # ranks that seldom average their parameters
        ([(5, 9, 24), (5, 9, 23), (5, 9, 24)], []),  # rank 1 has made one too many: its gradient is the one that parts
        ([(5, 9, 23), (5, 10, 24), (5, 9, 23)], []),  # it was ahead by a collective all along
    ],
)
def test_an_update_that_was_left_out_between_digested_steps_is_seen_by_the_collectives(
    calls: list[tuple[int, ...]], late: list[tuple[int, ...]]
) -> None:
    """``calls``: by rank, collectives until steps 0, 2 and 16. The numbers of its steps lag: nothing else is wrong."""
    group: dict[str, Any] = {"k": "group", "id": 7, "ranks": [0, 1, 2]}

    def passes(rank: int) -> list[dict[str, Any]]:
        counts = zip((0, 2, 16), calls[rank], strict=True)
        return [{"k": "inputs", "s": step, "i": 1, "m": "M", "a": {}, "c": [[7, called]]} for step, called in counts]

    report = analyze_records(replica(rank, group, *passes(rank)) for rank in range(3))
    assert [cause.ranks for cause in report.causes] == late


def held(**digests: str) -> dict[str, Any]:
    return {
        "k": "held",
        "s": 0,
        "t": {name.replace("_", " of "): digest for name, digest in digests.items()},
        "bad": [],
    }


def test_an_optimizer_state_that_one_rank_did_not_load() -> None:
    same = held(momentum_a="1", momentum_b="2")
    report = analyze_records(replica(rank, same if rank != 1 else held()) for rank in range(3))
    (cause,) = report.causes
    assert (cause.check, cause.ranks) == ("smoke-parameters-not-broadcast", (1,))
    assert cause.text == "before its first update rank 1 holds no optimizer state, data-parallel ranks 0, 2 hold one"
    other = held(momentum_a="1", momentum_b="9")
    (cause,) = analyze_records(replica(rank, same if rank != 2 else other) for rank in range(3)).causes
    assert cause.ranks == (2,) and cause.text.endswith("momentum of b")


def test_an_optimizer_that_divides_its_states_among_the_ranks_is_healthy() -> None:
    divided = [held(momentum_a="1"), held(momentum_b="2"), held()]
    states = [{**record, "k": "states"} for record in divided]
    assert not analyze_records(replica(rank, divided[rank], states[rank]) for rank in range(3)).causes


def test_optimizer_states_that_part_are_told_with_the_step() -> None:
    def states(step: int, digest: str) -> dict[str, Any]:
        return {**held(momentum_a=digest), "k": "states", "s": step}

    report = analyze_records(
        replica(rank, states(0, "1"), states(1, "2" if rank else "3"), states(2, str(rank))) for rank in range(3)
    )
    (cause,) = report.causes
    assert (cause.check, cause.step, cause.ranks) == ("smoke-parameters-diverge", 1, (0,))


def worker(torch_state: str) -> dict[str, Any]:
    return {"k": "worker", "l": 0, "e": 0, "w": 1, "g": {"python": "1", "torch": torch_state}}


def one_model(rank: int, *records: dict[str, Any]) -> bytes:
    return lines(rank, {"k": "use", "g": 1, "u": "model", "why": "tp"}, *records)


def batch(rank: int, masked: int) -> dict[str, Any]:
    sample = [number + (number < 2 and rank == masked) for number in range(64)]
    return {"k": "inputs", "s": 3, "i": 1, "m": "M", "a": {"0": [f"c{rank == masked}", [4, 16], "torch.int64", sample]}}


def test_loader_workers_that_draw_differently_are_the_cause_of_masks_that_differ() -> None:
    report = analyze_records(one_model(rank, worker(str(rank == 2)), batch(rank, 2)) for rank in range(3))
    assert [(cause.check, cause.ranks) for cause in report.causes] == [("smoke-loader-seed-differs", (2,))]
    assert "draws other ['torch'] numbers" in report.causes[0].text
    assert [(defect.check, cause) for defect, cause in report.consequences] == [
        ("smoke-mask-differs", "smoke-loader-seed-differs")
    ]


def test_loader_workers_whose_draws_change_nothing_accuse_nobody() -> None:
    report = analyze_records(one_model(rank, worker(str(rank == 2)), batch(rank, 9)) for rank in range(3))
    assert not report.causes and [note.check for note in report.notes] == ["smoke-loader-seed-differs"]
    alike = analyze_records(replica(rank, worker("7")) for rank in range(3))
    assert not alike.causes and [note.kind for note in alike.notes] == ["repeated"]
    other = analyze_records(replica(rank, {**worker(str(rank)), "g": {"torch": str(rank)}}) for rank in range(3))
    assert not other.causes and not other.notes


def test_loader_workers_of_two_replicas_that_draw_alike_are_noted_without_the_others() -> None:
    states = {0: "a", 1: "b", 2: "a", 3: ["not", "a", "text"]}
    files = (replica(rank, {**worker(""), "g": {"torch": state}}) for rank, state in states.items())
    [note] = analyze_records(files).notes
    assert (note.check, note.kind, note.values["group"], note.values["generators"]) == (
        *("smoke-loader-seed-differs", "repeated", "0, 2"),
        "torch",
    )


def first_step(rank: int, loss: float, after: dict[str, str], step: int = 0) -> list[dict[str, Any]]:
    """A step with the same inputs everywhere; at the beginning the parameters ``e`` and ``bias`` are alike."""
    inputs = {"k": "inputs", "s": step, "i": 1, "m": "M", "a": {"0": ["c", [4, 16], "torch.int64", list(range(64))]}}
    begun = {"k": "begun", "s": 0, "t": {"e": "1", "bias": "0", "a": f"shard {rank}"}}
    backward = {"k": "backward", "s": step, "v": loss, "how": "", "f": 1.0}
    return [begun, inputs, backward, {"k": "parameters", "s": step, "t": {**after, "a": f"later {rank}"}}]


def test_a_mask_that_no_generator_shows_is_seen_by_what_it_does_to_one_model() -> None:
    """Each rank draws from a generator of its own, within the model or for the loss."""
    report = analyze_records(
        one_model(rank, *first_step(rank, 2.0 + (rank == 1), {"e": f"2{rank == 1}", "bias": "3"})) for rank in range(3)
    )
    (cause,) = report.causes
    assert (cause.check, cause.ranks, cause.step) == ("smoke-mask-differs", (1,), 0)
    assert "parameters that were alike are not any more: e" in cause.text and "bias" not in cause.text


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(2.0, {"e": "2", "bias": "3"}, 0)] * 3, id="alike"),
        pytest.param([(2.0, {"e": "2", "bias": f"3{rank}"}, 0) for rank in range(3)], id="a shard of zeros, one loss"),
        pytest.param([(2.0 + rank, {"e": "2", "bias": "3"}, 0) for rank in range(3)], id="each a part of the loss"),
        pytest.param([(2.0 + rank, {"e": f"{rank}", "bias": "3"}, 1) for rank in range(3)], id="apart since before"),
    ],
)
def test_parts_of_one_model_that_may_differ_draw_no_masks(steps: list[tuple[float, dict[str, str], int]]) -> None:
    report = analyze_records(one_model(rank, *first_step(rank, *steps[rank])) for rank in range(3))
    assert not report.causes


def masked(rank: int, values: str, mask: str) -> list[dict[str, Any]]:
    inputs = {"k": "inputs", "s": 1, "i": 1, "m": "M", "a": {"0": ["c", [4, 16], "torch.int64", list(range(64))]}}
    return [inputs, {"k": "masked", "s": 1, "i": 1, "n": 0, "v": values, "m": mask, "sh": [4, 16], "at": "model.py:7"}]


def test_another_mask_on_equal_values_within_a_model_is_named_with_its_line() -> None:
    report = analyze_records(one_model(rank, *masked(rank, "c1", f"c{rank == 2}")) for rank in range(3))
    (cause,) = report.causes
    assert (cause.check, cause.ranks, cause.step) == ("smoke-mask-differs", (2,), 1)
    assert cause.text.endswith("at model.py:7")


def seeding(text: str, seed: str) -> dict[str, Any]:
    return {"k": "line", "n": "torch.manual_seed", "at": "train.py:3", "text": text, "seed": seed}


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("torch.manual_seed(args.seed + args.rank)", "torch.manual_seed(args.seed + (args.rank // 3))"),
        ("torch.manual_seed(7 * dist.get_rank())", "torch.manual_seed(7 * (dist.get_rank() // 3))"),
        ("if is_odd(): torch.manual_seed(1)", "if is_odd(): pass"),
        ("torch.manual_seed(seed)  # of this rank", ""),
        ("torch.manual_seed(rank + offsets[rank])", ""),
    ],
)
def test_the_command_corrects_the_line_that_seeds_the_ranks_of_a_model_apart(
    text: str, edited: str, tmp_path: Path
) -> None:
    """One rank seeds alone, or each by its rank; a line that reads in another way is shown, and not edited."""
    alone = "pass" in edited
    report = analyze_records(
        one_model(rank, *masked(rank, "c1", f"c{rank == 2}"), *([seeding(text, str(rank))] * (not alone or rank == 2)))
        for rank in range(3)
    )
    (cause,) = report.causes
    assert text in str(cause.values["evidence"])
    commands = re.findall("`(sed .*?)`", "".join(cause.values.get("corrected", ())))
    assert len(commands) == bool(edited)
    (tmp_path / "train.py").write_text(f"import torch\n\n{text}\n")
    for command in commands:
        subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
        assert (tmp_path / "train.py").read_text().splitlines()[2] == edited


def test_seeds_that_ranks_have_alike_are_no_evidence() -> None:
    report = analyze_records(
        one_model(rank, *masked(rank, "c1", f"c{rank == 2}"), seeding("torch.manual_seed(1)", "1")) for rank in range(3)
    )
    assert not report.causes[0].values.get("evidence") and "corrected" not in report.causes[0].values


@pytest.mark.parametrize("columns", [("c1", "same"), ("own", "own")])
def test_equal_masks_and_those_of_shards_are_no_finding(columns: tuple[str, str]) -> None:
    """As the dropout of attention under tensor parallelism, whose values are each rank's own heads."""
    values, mask = columns
    report = analyze_records(
        one_model(rank, *masked(rank, f"{values}{rank * (values == 'own')}", f"{mask}{rank * (mask == 'own')}"))
        for rank in range(3)
    )
    assert not report.causes


@pytest.mark.parametrize(
    "dropout", ["torch.nn.functional.dropout(rows, 0.5)", "rows * (torch.rand(4, 8, generator=own) < 0.5)"]
)
def test_masks_are_seen_whoever_draws_them_and_nothing_else_is(dropout: str) -> None:
    import torch

    from doctor.watch.hook.channel import Channel
    from doctor.watch.hook.mask_draws import begin

    written: list[dict[str, Any]] = []

    class Kept(Channel):
        def write(self, kind: str, **values: Any) -> None:
            written.append({"k": kind, **values})

    def forward(seed: int) -> Any:
        torch.manual_seed(seed)
        rows, own = torch.arange(32.0).reshape(4, 8), torch.Generator().manual_seed(seed)
        draws = begin(Kept(""), 1, 1)
        assert draws is not None
        result = eval(dropout, {"torch": torch, "rows": rows * 2, "own": own})
        draws.__exit__(None, None, None)
        return result

    first = forward(1)
    forward(2)
    one, other = written
    assert one["v"] == other["v"] and one["m"] != other["m"] and one["at"].endswith(":1")
    torch.manual_seed(1)
    expected = eval(dropout, {"torch": torch, "rows": torch.arange(32.0).reshape(4, 8) * 2,
                              "own": torch.Generator().manual_seed(1)})  # fmt: skip
    assert torch.equal(first, expected)


def begun(rank: int, value: str, loose: list[str]) -> list[dict[str, Any]]:
    table = {"e": "1", "expert": value}
    return [
        {"k": "begun", "s": 0, "t": table, "loose": loose},
        {"k": "parameters", "s": 0, "t": {**table, "expert": f"later {value}"}},
        {"k": "reduced", "s": 0, "t": {"e": "g", "expert": f"gradient {rank}"}},
    ]


@pytest.mark.parametrize(
    ("value", "loose", "checks"),
    [
        ("{rank}", ["expert"], set()),
        ("{rank}", [], {"smoke-parameters-not-broadcast"}),
        ("1", ["expert"], {"smoke-gradient-not-synchronised"}),
    ],
)
def test_experts_of_each_rank_are_not_compared_and_what_began_alike_is(
    value: str, loose: list[str], checks: set[str]
) -> None:
    report = analyze_records(replica(rank, *begun(rank, value.format(rank=rank), loose)) for rank in range(3))
    assert {cause.check for cause in report.causes} == checks


@pytest.mark.parametrize(
    ("sizes", "found"),
    [([(8, 8, 5)] * 3, [(2,)]), ([(8, 8, 5), (5, 8, 8), (8, 6, 8)], []), ([(8, 8, 5), (8, 8, 6), (9, 9, 3)], [])],
)
def test_batches_that_are_filled_up_to_a_length_accuse_no_rank(
    sizes: list[tuple[int, int, int]], found: list[tuple[int, ...]]
) -> None:
    def inputs(rank: int, step: int) -> dict[str, Any]:
        value = [f"c{rank} {step}", [sizes[step][rank], 16], "torch.int64", [rank * 100 + n for n in range(64)]]
        return {"k": "inputs", "s": step, "i": 1, "m": "M", "a": {"0": value}}

    report = analyze_records(replica(rank, *[inputs(rank, step) for step in range(3)]) for rank in range(3))
    assert [cause.ranks for cause in report.causes] == found


def rows_and_mask(
    rank: int, step: int, rows: str, shape: tuple[int, ...] = (8, 32), varied: int = 64
) -> dict[str, Any]:
    sample = [number % varied for number in range(64)]
    mask = [f"m{rank} {step}", [8, 32], "torch.float32", [(number * (rank + 2)) % 2 for number in range(64)]]
    entry = {"ids": [rows, list(shape), "torch.int64", sample], "mask": mask}
    return {"k": "inputs", "s": step, "i": 1, "m": "M", "a": entry}


def test_the_same_rows_behind_other_masks_are_a_warning() -> None:
    report = analyze_records(
        replica(rank, *[rows_and_mask(rank, n, f"rows {n}") for n in range(3)]) for rank in range(3)
    )
    (cause,) = report.causes
    assert (cause.check, cause.level, cause.ranks) == ("smoke-shards-wrong", "warning", ())
    assert "input ids of " in cause.text and "in each step from step 0 on" in cause.text


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(lambda rank, n: rows_and_mask(rank, n, f"rows {n} {rank}"), id="other rows"),
        pytest.param(lambda rank, n: rows_and_mask(rank, n, "the same graph in each step"), id="a constant"),
        pytest.param(lambda rank, n: rows_and_mask(rank, n, f"arange {n}", (8, 20 + n)), id="positions by length"),
        pytest.param(lambda rank, n: rows_and_mask(rank, n, f"labels {n}", varied=4), id="labels of few classes"),
    ],
)
def test_inputs_that_may_be_alike_on_replicas_are_no_rows(rows: Callable[[int, int], dict[str, Any]]) -> None:
    report = analyze_records(replica(rank, *[rows(rank, n) for n in range(3)]) for rank in range(3))
    assert not report.causes


def test_the_workers_of_a_real_loader_tell_their_generators(tmp_path: Path) -> None:
    program = (
        "import torch\nfrom doctor.watch.hook.data_hooks import install\n"
        "assert install(torch)\n"
        "from torch.utils.data import DataLoader\n"
        "torch.manual_seed(5)\n"
        "batches = list(DataLoader(range(8), batch_size=2, num_workers=2))\n"
        "assert torch.cat(batches).tolist() == list(range(8))\n"
    )
    environ = {"DOCTOR_WATCH_PROBES": str(tmp_path), "DOCTOR_WATCH_DATA": "4", "RANK": "3"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, env={**os.environ, **environ})
    documents = [json.loads(line) for path in tmp_path.glob("*.probe") for line in path.read_text().splitlines()]
    workers = {record["w"]: record for record in documents if record["k"] == "worker"}
    assert sorted(workers) == [0, 1] and {record["r"] for record in workers.values()} == {3}
    assert workers[0]["g"]["torch"] != workers[1]["g"]["torch"]
    assert not [record for record in documents if record["k"] == "failed"]


UNUSUAL = """import inspect, pickle, torch
before = [inspect.signature(kind) for kind in (torch.nn.Module.load_state_dict, torch.nn.Module.__init__)]
from doctor.watch.hook.data_hooks import install
assert install(torch)
assert [inspect.signature(kind) for kind in (torch.nn.Module.load_state_dict, torch.nn.Module.__init__)] == before
from torch.utils.data import DataLoader, IterableDataset
class Mixin:
    def __init__(self, module, instance): self.given = module, instance
class Cooperative(torch.nn.Module, Mixin):
    call_super_init = True
    def __init__(self): super().__init__(module=1, instance=2)
assert pickle.loads(pickle.dumps(Cooperative())).given == (1, 2)
class Stream(IterableDataset):
    def __iter__(self): return iter(range(10))
class Rows(torch.utils.data.Dataset):
    def __getitem__(self, index): return index
    def __len__(self): raise NotImplementedError
class Lazy:
    def __iter__(self): return ((index for index in (n, n + 1)) for n in (0, 2))
scripted = torch.jit.script(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(scripted.parameters(), lr=0.5)
for kinds in [(Stream(), 4), (Stream(), None)]:
    assert torch.cat([torch.as_tensor(batch).reshape(-1) for batch in DataLoader(*kinds)]).tolist() == list(range(10))
assert [batch.tolist() for batch in DataLoader(Rows(), batch_sampler=Lazy())] == [[0, 1], [2, 3]]
scripted(torch.ones(1, 1)).sum().backward()
optimizer.step()
"""


def test_signatures_modules_and_samplers_that_are_unusual_work_as_without_the_hook(tmp_path: Path) -> None:
    """Scripted modules, mixins whose words are those of a wrapper, data without a length, indices read only once."""
    environ = {"DOCTOR_WATCH_PROBES": str(tmp_path), "DOCTOR_WATCH_DATA": "4", "RANK": "0"}
    subprocess.run([sys.executable, "-c", UNUSUAL], check=True, timeout=300, env={**os.environ, **environ})
    documents = [json.loads(line) for path in tmp_path.glob("*.probe") for line in path.read_text().splitlines()]
    assert documents and not [record for record in documents if record["k"] == "failed"]
    assert {record["text"] for record in documents if record["k"] == "note"} == {"compiled"}


def test_of_several_faults_each_is_a_cause_that_no_other_can_bring_about() -> None:
    """The same rows on both ranks, and five faults of the program beside: each is reported with its own remedy."""
    defects = [
        ValueDefect("smoke-shards-wrong", "twice", 0, (0, 1), "the same samples"),
        ValueDefect("smoke-shards-wrong", "same rows", 0, (0, 1), "the same rows"),
        ValueDefect("smoke-parameters-not-broadcast", "begin", -1, (1,), "other parameters"),
        ValueDefect("smoke-gradient-summed", "data", 0, (), "a sum", root=True),
        ValueDefect("smoke-mask-repeated", "draws torch", 0, (), "the same masks"),
        ValueDefect("smoke-update-missing", "frozen", 2, (1,), "a frozen layer"),
        ValueDefect("smoke-update-missing", "no-step", 2, (0,), "a step left out"),
        ValueDefect("smoke-not-finite", "values", 3, (1,), "the first NaN"),
        ValueDefect("smoke-parameters-diverge", "data", 0, (1,), "parameters apart"),
    ]
    causes, consequences = separate_causes(defects)
    assert [cause.text for cause in causes] == [
        "the same samples",
        "the same masks",
        "other parameters",
        "a frozen layer",
        "the first NaN",
        "a sum",
    ]
    assert [(defect.text, cause) for defect, cause in consequences] == [
        ("the same rows", "smoke-shards-wrong"),
        ("a step left out", "smoke-shards-wrong"),
        ("parameters apart", "smoke-not-finite"),
    ]
