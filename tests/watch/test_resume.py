"""A training that goes on from a checkpoint: real gloo programs that lose one thing, and marks that are nonsense."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from doctor.analysis.values.resumed import resume_lines, resume_notes
from doctor.engine.watch_summary import ResumeReport
from doctor.watch.resume.compare import compare_with_saves, joined_saves, script_of
from doctor.watch.resume.kept_saves import MAX_FILES_OF_JOB, KeptSave, SaveFolder
from doctor.watch.resume.live_resume import LiveResume
from doctor.watch.resume.marks import LoaderMark, Mark, joined_tensors, read_mark
from tests.watch.resume_campaign import HEALTHY, LOST, ResumeRuns, is_right
from tests.watch.resume_kinds import Case, run_case


@pytest.fixture(scope="module")
def runs() -> Iterator[ResumeRuns]:
    started = ResumeRuns()
    yield started
    started.close()


@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    ["optimizer not loaded", "scheduler not loaded", "generators of rank 0 everywhere", "position not loaded",
     "a bias not loaded", "position with more ranks", "states are made, and not loaded",
     "an average that is the parameters", "moments of one rank", "parameters given anew", "moments of a stage",
     "generators of rank 0, of a save at the end", "gradients of an open step", "other seeds are set after loading",
     "a frozen layer is trained", "the count of an average", "an AveragedModel that no checkpoint holds",
     "step count of one parameter", "no scaler is used", "no scheduler is used",
     "averages that are made anew after loading",
     "generators that the program holds"],
)  # fmt: skip
def test_what_is_lost_is_named(runs: ResumeRuns, name: str) -> None:
    """From these differences `resume-state-lost` makes its findings."""
    report = runs.report(LOST[name])
    assert is_right(LOST[name], report), report


@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        "nothing is lost",
        "generators that the program holds",
        "a file that is read twice",
        "states are made, then loaded",
        "the next epoch",
        "a training of its own",
        "an average that has moved on",
        "a batch that nothing was learnt from",
        "a tensor without values",
        "stages of a pipeline",
        "gradients of an open step are kept",
        "an open step is made again",
        "an AveragedModel",
        "an AveragedModel that is used later",
        "another kind of scheduler",
    ],
)
def test_of_a_healthy_resume_nothing_is_told(runs: ResumeRuns, name: str) -> None:
    report = runs.report(HEALTHY[name])
    assert report is None or report.differences == ()


@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "case", [Case("fsdp2", "second", lag="1"), Case("fsdp1", "layer"), Case("fsdp2 root")], ids=str
)
def test_what_is_lost_of_shards_is_named(runs: ResumeRuns, tmp_path: Path, case: Case) -> None:
    """Also where a rank hears of the save before it saves itself: its shards are in its own mark alone."""
    row = run_case(runs.ranks, case, tmp_path / "saved", True)
    assert row.startswith("right"), row


@pytest.mark.torch
def test_digests_of_shards_add_up_to_that_of_the_whole() -> None:
    import torch

    from doctor.watch.hook.training_state import Piece, digest_all

    full_tensor = torch.randn(300, 517)
    pieces = [
        Piece(full_tensor[:, :100], full_tensor.shape, (0, 0)),
        Piece(full_tensor[:, 100:], full_tensor.shape, (0, 100)),
    ]
    rows = [Piece(full_tensor[:7], full_tensor.shape, (0, 0)), Piece(full_tensor[7:], full_tensor.shape, (7, 0))]
    flat = full_tensor.reshape(-1)
    cut = [Piece(flat[:77777], (flat.numel(),), None, 0), Piece(flat[77777:], (flat.numel(),), None, 77777)]
    expected = joined_tensors({0: digest_all(torch, [("w", Piece(full_tensor, full_tensor.shape))])}).complete["w"]
    for shards in (pieces, rows, cut):
        rows_by_rank = {rank: digest_all(torch, [("w", shard)]) for rank, shard in enumerate(shards)}
        assert joined_tensors(rows_by_rank).complete["w"] == expected
    other = full_tensor.clone()
    other[299, 516] += 1
    assert joined_tensors({0: digest_all(torch, [("w", Piece(other, full_tensor.shape))])}).complete["w"] != expected
    swapped = full_tensor[[1, 0, *range(2, 300)]]
    assert joined_tensors({0: digest_all(torch, [("w", Piece(swapped, full_tensor.shape))])}).complete["w"] != expected


def test_a_shard_that_is_not_there_makes_no_whole() -> None:
    half: dict[int, dict[str, list[object]]] = {0: {"w": ["1", "float32", 4, 2, [0]]}}
    tensors = joined_tensors(half)
    assert tensors.complete == {} and tensors.alike(joined_tensors({0: {"w": ["5", "float32", 4]}}), "w") is None
    assert tensors.alike(joined_tensors(half), "w") is True


@pytest.mark.parametrize(
    ("digests", "alike"),
    [(("2", "2"), True), (("1", "1"), True), (("1", "2"), True), (("2", "1"), False), (("3", "3"), False)],
)
def test_a_checkpoint_may_keep_a_value_that_each_rank_has_of_its_own_from_any_rank(
    digests: tuple[str, str], alike: bool
) -> None:
    """torch.distributed.checkpoint writes a replicated tensor once, from one of the ranks that have it."""
    saved = joined_tensors({rank: {"bn.running_mean": [digest, "float32", 4]} for rank, digest in enumerate("12")})
    now = joined_tensors({rank: {"bn.running_mean": [digest, "float32", 4]} for rank, digest in enumerate(digests)})
    assert now.alike(saved, "bn.running_mean") is alike


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"k":"saved","r":-1}', b'{"k":"other","r":0}', b'{"k":"saved","r":0,"w":0}',
     b'{"k":"saved","r":0,"model":7}', b'{"k":"saved","r":1e9}', b"[" * 100000],
)  # fmt: skip
def test_what_is_no_mark_is_left_out(content: bytes) -> None:
    assert read_mark(content) is None


def test_rows_that_are_no_digests_are_left_out() -> None:
    rows: dict[str, list[object]] = {"a": [], "b": ["x", "float32", 1], "c": ["1", "float32", "many"], "d": [None] * 5}
    assert joined_tensors({0: rows}).names == set()


def kept(step: int, command: str = "torchrun train.py", at: float = 100.0) -> KeptSave:
    rows = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    mark = Mark("saved", 0, s=step, at=at, model=rows, parts=["model"], paths=["/run/ck.pt"])
    return KeptSave(command, "h", 1, step, at, [mark])


def begun(rows: dict[str, list[object]], loads: list[tuple[str, str]] | None = None) -> dict[int, Mark]:
    return {0: Mark("begun", 0, at=200.0, model=rows, loads=loads or [])}


def compared(now: dict[int, Mark], *saves: KeptSave) -> ResumeReport | None:
    return compare_with_saves(now, joined_saves(saves), "train.py")


@pytest.mark.torch
def test_what_another_thread_saves_is_no_mark_of_the_step_that_the_training_is_in(tmp_path: Path) -> None:
    """It saves a copy of an earlier step, while the training goes on; two threads made the mark of one save."""
    torch = pytest.importorskip("torch")
    from doctor.watch.hook.data_position import DataPosition
    from doctor.watch.hook.resume_marks import ResumeMarks

    out = SimpleNamespace(folder=str(tmp_path), rank_now=lambda: 0)
    collection = SimpleNamespace(torch=torch, out=out, trains=bool, step=3, modules=list, optimizers=[])
    collection.guard = lambda call, *arguments: call(*arguments)
    collection.position = DataPosition(collection.trains, collection.guard)
    marks = ResumeMarks(collection)
    marks.calls.install = lambda: None
    marks.after_step()
    saver = threading.Thread(target=marks._saving, args=(torch.nn.Linear(2, 2), "/data/a.pt"))
    saver.start()
    saver.join()
    marks.begun = True
    marks.before_forward(None, (torch.ones(2),), {})
    assert os.listdir(tmp_path) == []


def test_which_save_it_goes_on_from() -> None:
    same: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    other: dict[str, list[object]] = {"w": ["7", "float32", 4], "b": ["8", "float32", 2]}
    assert compared(begun(other), kept(5)) is None
    report = compared(begun(same), kept(5))
    assert report and report.step == 5
    by_path = compared(begun(other, [("file", "/run/ck.pt")]), kept(5))
    assert by_path and [row.kind for row in by_path.differences] == ["parameters-none"]
    assert compared(begun(other, [("file", "/run/other.pt")]), kept(5)) is None


def test_a_file_that_another_run_has_written_anew_accuses_no_training() -> None:
    other: dict[str, list[object]] = {"w": ["7", "float32", 4], "b": ["8", "float32", 2]}
    loads = [("file", "/run/ck.pt"), ("model", ""), ("optimizer", "")]
    moments: dict[str, list[object]] = {"exp_avg of w": ["5", "float32", 4], "exp_avg of b": ["0", "float32", 2]}
    save = kept(5)
    save.marks[0].states = moments
    now = begun(other, loads)
    now[0].states = {"exp_avg of w": ["6", "float32", 4], "exp_avg of b": ["0", "float32", 2]}
    assert compared(now, save) is None
    # Moments that are of the save, or names that did not fit: its parameters were not applied.
    now[0].states = moments
    report = compared(now, save)
    assert report and [(row.kind, row.level) for row in report.differences] == [("parameters-none", "warning")]
    now[0].states = {}
    now[0].unloaded = ["w", "b"]
    report = compared(now, save)
    assert report and "parameters-none" in [row.kind for row in report.differences]


@pytest.mark.parametrize(
    ("rate", "at", "level"), [(0.003, 0, "note"), (0.045, 8, "error"), (0.035, 0, "error"), (0.005, 0, "error")]
)
def test_a_scheduler_that_begins_again_at_a_new_rate_is_meant(rate: float, at: int, level: str) -> None:
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    save, now = kept(5), begun(rows, [("file", "/run/ck.pt"), ("model", ""), ("optimizer", "")])
    mark = save.marks[0]
    mark.parts, mark.lr0 = ["model", "optimizer", "scheduler"], [0.005]
    mark.groups, mark.schedulers = [{"lr": 0.035}], [{"n": "LambdaLR", "at": 6}]
    now[0].groups, now[0].schedulers = [{"lr": rate}], [{"n": "LambdaLR", "at": at}]
    report = compared(now, save)
    assert report and [row.level for row in report.differences if row.kind == "scheduler"] == [level]


@pytest.mark.parametrize(
    ("now", "kinds"),
    [({"scale": 64.0, "good": 3}, []), ({"scale": 64.0, "good": 0}, ["scaler-steps"]),
     ({"scale": 1.0, "good": 0}, ["scaler"])],
)  # fmt: skip
@pytest.mark.parametrize(("parts", "level"), [(["scaler"], "error"), ([], "warning")])
def test_a_scaler_whose_count_of_steps_is_lost_is_named_though_its_scale_is_there(
    now: dict[str, float], kinds: list[str], parts: list[str], level: str
) -> None:
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    save, resumed = kept(5), begun(rows, [("model", ""), ("optimizer", "")])
    save.marks[0].parts, save.marks[0].scalers = ["model", "optimizer", *parts], [{"scale": 64.0, "good": 3}]
    resumed[0].scalers = [now]
    report = compared(resumed, save)
    assert report and [(row.kind, row.level) for row in report.differences] == [(kind, level) for kind in kinds]


def test_moments_without_the_names_of_their_parameters_are_not_new() -> None:
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    save, now = kept(5), begun(rows, [("model", ""), ("optimizer", "")])
    save.marks[0].states = {"exp_avg of w": ["5", "float32", 4]}
    now[0].states = {"exp_avg of optimizer tensor 0": ["5", "float32", 4]}
    report = compared(now, save)
    assert report and report.differences == () and report.uncompared == ("exp_avg of w",)
    now[0].states = {}
    report = compared(now, save)
    assert report and [row.kind for row in report.differences] == ["moments-new"]


@pytest.mark.parametrize(
    ("saved", "now", "is_lost"),
    [("9", "5", True), ("9", "9", False), ("9", "7", False), ("5", "5", False), ("", "5", False)],
    ids=["begins again", "restored", "seeded for this epoch", "never drawn from", "not there before"],
)
def test_a_generator_of_the_program_that_begins_again_is_named(saved: str, now: str, is_lost: bool) -> None:
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    save, marks = kept(5), begun(rows, [("model", ""), ("optimizer", "")])
    save.marks[0].held0 = {"noise": "5"} if saved else {}
    save.marks[0].held = {"noise": saved} if saved else {}
    marks[0].held = {"noise": now}
    expected = [("generators-own", "warning", (0,))] if is_lost else []
    assert kinds_of(marks, save) == expected
    if is_lost:
        report = compared(marks, save)
        assert report and "rank 0: noise begins again as in the first run" in " ".join(resume_lines(report))


@pytest.mark.parametrize(
    ("first", "saved", "now", "modules", "is_lost"),
    [("3", "8", "1", [], True), ("3", "8", "3", [], True), ("3", "8", "8", [], False), ("3", "8", "7", [], False),
     ("8", "8", "1", [], False), ("8", "8", "1", ["ema"], True), ("8", "8", "8", ["ema"], False)],
    ids=["made of the parameters", "as in the beginning", "restored", "has gone on", "a file that was loaded",
         "a frozen reference", "a frozen reference that is there"],
)  # fmt: skip
def test_copies_of_the_parameters_that_were_made_anew_are_named(
    first: str, saved: str, now: str, modules: list[str], is_lost: bool
) -> None:
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    save, marks = kept(5), begun(rows, [("model", ""), ("optimizer", "")])
    save.marks[0].averages0 = {"ema:w": [first, "float32", 4]}
    save.marks[0].averages, save.marks[0].modules0 = {"ema:w": [saved, "float32", 4]}, modules
    marks[0].averages = {"ema:w": [now, "float32", 4]}
    assert kinds_of(marks, save) == ([("copy", "warning", ())] if is_lost else [])
    save.marks[0].averages = {"ema:w": ["1", "float32", 4]}  # as the parameters were
    assert kinds_of(marks, save) == []


def test_a_tied_parameter_that_is_a_tensor_of_its_own_now_is_named() -> None:
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    save, now = kept(5), begun({**rows, "head": ["1", "float32", 4]}, [("model", ""), ("optimizer", "")])
    report = compared(now, save)
    assert report and [(row.kind, row.level) for row in report.differences] == [("parameters-untied", "warning")]
    assert report.differences[0].values == {"tensors": "head", "other": "w", "step": 5}
    for values in (["3", "float32", 4], ["1", "float32", 2], ["2", "float32", 2]):  # a new one; the bias is frozen
        save.marks[0].trained, now[0].model = ["w"], {**rows, "head": values}
        report = compared(now, save)
        assert report and [row.kind for row in report.differences] == ["parameters-added"]


def test_another_number_of_workers_of_an_iterable_data_set_is_noted() -> None:
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    save, now = kept(5), begun(rows, [("model", "")])
    save.marks[0].loaders = [LoaderMark(e=0, y=5, workers=2)]
    for workers, kinds in ((2, []), (3, ["data-workers"]), (-1, [])):
        now[0].loaders = [LoaderMark(e=0, y=6, workers=workers)]
        report = compared(now, save)
        assert report and [row.kind for row in report.differences] == kinds
    indices = LoaderMark(size=64, e=0, y=1, workers=3, crc=[5], last=[1], first=[4])
    now[0].loaders, save.marks[0].loaders = [indices], [LoaderMark(size=64, e=0, y=1, workers=2, ahead=[5])]
    report = compared(now, save)  # of samples with numbers the order is the sampler's
    assert report and report.differences == ()


def test_moments_that_each_rank_has_of_its_own_are_compared_rank_by_rank() -> None:
    """As DeepSpeed's: a share of all parameters, under one name."""
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    save = kept(5)
    save.world = save.marks[0].w = 2
    save.marks.append(Mark("saved", 1, w=2, s=5, at=100.0))
    now = {rank: Mark("begun", rank, w=2, at=200.0, model=rows, loads=[("optimizer", "")]) for rank in (0, 1)}
    for rank, mark in enumerate(save.marks):
        mark.model, mark.states = rows, {"exp_avg of optimizer tensor 0": [f"{rank + 5}", "float32", 3]}
        now[rank].states = mark.states
    report = compared(now, save)
    assert report and report.differences == ()
    now[1].states = {"exp_avg of optimizer tensor 0": ["9", "float32", 3]}
    report = compared(now, save)
    assert report and [(row.kind, row.ranks) for row in report.differences] == [("moments", (1,))]


def shared_and_own(digest: str) -> dict[str, list[object]]:
    return {"w": [digest, "float32", 4], "b": ["3", "float32", 2], "c": ["4", "float32", 2]}


def of_ranks(
    paths: tuple[str, str], step: int = 5, at: float = 100.0, digests: tuple[str, str] = ("1", "1")
) -> KeptSave:
    """Two ranks, each of which saved a file."""
    save = kept(step, at=at)
    save.world = 2
    save.marks = [
        Mark("saved", rank, w=2, s=step, at=at, paths=[path] if path else [], model=shared_and_own(digests[rank]))
        for rank, path in enumerate(paths)
    ]
    return save


def loaded(paths: tuple[str, str], digests: tuple[str, str] = ("1", "1")) -> dict[int, Mark]:
    return {
        rank: Mark("begun", rank, w=2, at=200.0, loads=[("file", path)], model=shared_and_own(digests[rank]))
        for rank, path in enumerate(paths)
    }


def kinds_of(now: dict[int, Mark], *saves: KeptSave) -> list[tuple[str, str, tuple[int, ...]]]:
    report = compared(now, *saves)
    assert report
    return [(row.kind, row.level, row.ranks) for row in report.differences]


def test_a_rank_that_loads_an_older_step_is_named() -> None:
    older, newer = of_ranks(("/ck/3-0", "/ck/3-1"), 3, 50.0, ("7", "7")), of_ranks(("/ck/5-0", "/ck/5-1"))
    now = loaded(("/ck/5-0", "/ck/3-1"), ("1", "7"))
    rows = kinds_of(now, older, newer)
    assert rows[0][::2] == ("file-step", (1,)) and ("parameters", (1,)) in [row[::2] for row in rows]
    assert kinds_of(loaded(("/ck/5-0", "/ck/5-1")), older, newer) == []
    assert kinds_of(loaded(("/ck/3-0", "/ck/3-1"), ("7", "7")), older, newer) == []
    # A file that was written again is that of the newer save.
    now = loaded(("/ck/a", "/ck/b"))
    assert kinds_of(now, of_ranks(("/ck/a", "/ck/b"), 3, 50.0), of_ranks(("/ck/a", "/ck/b"))) == []
    now[1].loads = []
    assert kinds_of(now, newer) == []


def test_a_rank_that_holds_other_parameters_than_the_others_is_named_without_a_file() -> None:
    save = of_ranks(("", ""))
    now = loaded(("", ""), ("1", "7"))
    assert [row[::2] for row in kinds_of(now, save)] == [("parameters", (1,))]
    del save.marks[1]  # what rank 1 had is not known: it may be a stage of its own
    assert [row[0] for row in kinds_of(now, save)] == ["unrecorded"]


def test_ranks_that_load_each_others_file_are_named_where_each_has_parts_of_its_own() -> None:
    swapped = loaded(("/ck/1", "/ck/0"), ("2", "1"))
    rows = kinds_of(swapped, of_ranks(("/ck/0", "/ck/1"), digests=("1", "2")))
    assert [row[::2] for row in rows[:2]] == [("file-rank", (0,)), ("file-rank", (1,))]
    # Replicas: any file serves.
    assert kinds_of(loaded(("/ck/0", "/ck/0")), of_ranks(("/ck/0", "/ck/1"))) == []
    # A file that its writer loads as well is for all of them.
    common = of_ranks(("/ck/0", "/ck/1"), digests=("1", "2"))
    assert kinds_of(loaded(("/ck/0", "/ck/0"), ("1", "2")), common) == []
    # One rank saves for all, and its file is no other's.
    assert kinds_of(loaded(("/ck/0", "/ck/0"), ("1", "2")), of_ranks(("/ck/0", ""), digests=("1", "2"))) == []


def test_another_type_is_told_and_is_no_loss() -> None:
    save, now = (
        kept(5),
        begun({"w": ["7", "bfloat16", 4], "b": ["8", "bfloat16", 2]}, [("file", "/run/ck.pt"), ("model", "")]),
    )
    assert compared(now, save) is None  # nothing says that it is this training
    save.marks[0].numbers = now[0].numbers = {"step of w": 5.0}
    report = compared(now, save)
    assert report and [(row.kind, row.level) for row in report.differences] == [("cast", "note")]
    now[0].unapplied = [("ck: net", 2)]  # its values are there, in the other type
    assert compared(now, save) == report
    assert report.differences[0].values == {"tensors": "b, w", "now": "bfloat16", "before": "float32", "step": 5}
    (line,) = resume_lines(report)
    assert line.startswith("this training goes on from what step 5 saved; of type bfloat16, and of type float32 at")


@pytest.mark.parametrize(
    ("frozen", "frozen0", "now", "kinds"),
    [(["b"], ["b"], [], ["unfrozen"]), (["b"], ["b"], ["b"], []), (["b"], [], [], []), ([], ["b"], [], []),
     (["old"], ["old"], [], [])],
)  # fmt: skip
def test_a_parameter_that_was_frozen_all_the_time_and_is_trained_now_is_named(
    frozen: list[str], frozen0: list[str], now: list[str], kinds: list[str]
) -> None:
    """Not one that was thawed before the save, nor one that a step freezes for a while, nor one that is gone."""
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    save, marks = kept(5), begun(rows, [("model", "")])
    save.marks[0].frozen, save.marks[0].frozen0, save.marks[0].evaluating0 = frozen, frozen0, []
    marks[0].frozen = now
    assert [row[0] for row in kinds_of(marks, save)] == kinds
    save.marks[0].evaluating0 = None  # as earlier releases recorded it
    assert kinds_of(marks, save) == []


def test_modules_in_evaluation_mode_are_named_where_the_first_run_trained_them() -> None:
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    save, marks = kept(5), begun(rows, [("model", "")])
    marks[0].evaluating = ["norm", "teacher"]
    save.marks[0].evaluating0, save.marks[0].evaluating = ["teacher"], ["norm", "teacher"]  # saved after a validation
    assert kinds_of(marks, save) == [("evaluating", "warning", ())]
    report = compare_with_saves(marks, joined_saves([save]), "finetune.py")
    assert report and [row.level for row in report.differences] == ["note"]


def test_gradients_that_no_step_had_used_are_named_where_the_next_batch_follows() -> None:
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    save, marks = kept(5), begun(rows, [("model", ""), ("optimizer", "")])
    save.marks[0].open = 2
    save.marks[0].loaders = [LoaderMark(size=64, y=6, crc=[1, 2, 3, 4, 5, 6], ahead=[7, 8, 9], first=[1], last=[5])]

    def told(batch: int, grads: bool = False) -> list[str]:
        marks[0].grads = grads
        marks[0].loaders = [LoaderMark(size=64, y=1, crc=[batch], last=[9], first=[1])]
        return [row[0] for row in kinds_of(marks, save)]

    assert told(9) == ["gradients"]
    assert told(9, grads=True) == []
    assert told(7) == []  # the whole step is made again
    assert told(8) == ["data-other"]
    save.marks[0].loaders, marks[0].loaders = [], []
    save.marks[0].later, marks[0].in0, marks[0].grads = [["4"]], ["4"], False
    assert [row[0] for row in kinds_of(marks, save)] == ["gradients"]


def test_an_epoch_that_was_over_is_told_also_where_batches_are_skipped() -> None:
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    save, marks = kept(5), begun(rows, [("model", "")])
    save.marks[0].loaders = [LoaderMark(size=64, e=1, y=2, crc=[31, 32], ahead=[33], first=[11, 31], last=[5])]
    for first, batches, kinds in (([11], [11, 12, 13], ["data-epoch"]), ([31], [31, 32, 33], [])):
        marks[0].loaders = [LoaderMark(size=64, y=3, crc=batches, last=[9], first=first)]
        assert [row[0] for row in kinds_of(marks, save)] == kinds
    save.marks[0].loaders[0].first = [11, 11]  # in no order that was drawn
    marks[0].loaders = [LoaderMark(size=64, y=3, crc=[11, 12, 13], last=[9], first=[11])]
    assert "data-epoch" not in [row[0] for row in kinds_of(marks, save)]


def test_ranks_that_recorded_nothing_at_the_save_are_named() -> None:
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    now = {rank: Mark("begun", rank, w=2, at=200.0, model=rows, g={"torch": "9"}) for rank in (0, 1)}
    save = kept(5)
    save.world = save.marks[0].w = 2
    report = compared(now, save)
    assert report and [(row.kind, row.level, row.ranks) for row in report.differences] == [("unrecorded", "note", (1,))]
    assert any("rank 1 recorded nothing" in note for note in resume_notes(report))
    save.marks.append(Mark("saved", 1, w=2, s=5, at=100.0, g={"torch": "9"}))
    report = compared(now, save)
    assert report and report.differences == ()


def test_the_state_folder_keeps_the_newest_saves_and_no_damage_stops_it(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    with SaveFolder.opened(environ, create=True) as folder:
        assert folder
        for step in range(MAX_FILES_OF_JOB + 3):
            folder.write(kept(step, at=100.0 + step))
        folder.prune()
        assert [save.step for save in folder.saves()][:2] == [MAX_FILES_OF_JOB + 2, MAX_FILES_OF_JOB + 1]
        assert len(folder.names()) == MAX_FILES_OF_JOB
    paths = sorted((tmp_path / "doctor" / "resume").iterdir())
    paths[-1].write_bytes(b"nonsense")
    os.unlink(paths[-2])
    paths[-2].symlink_to("/etc/passwd")
    with SaveFolder.opened(environ, create=False) as folder:
        assert folder and len(list(folder.saves())) == MAX_FILES_OF_JOB - 2


def test_what_a_killed_run_left_half_written_goes_and_what_is_being_written_stays(tmp_path: Path) -> None:
    with SaveFolder.opened({"XDG_STATE_HOME": str(tmp_path)}, create=True) as folder:
        assert folder
        folder.write(kept(1))
        drafts = [Path(folder.path, f".{folder.names()[0][:-6]}{end}") for end in ("1.save", "2.save")]
        others = [Path(folder.path, name) for name in (".notes", ".0123.save")]
        for path in (*drafts, *others):
            path.touch()
        for path in (drafts[0], *others):
            os.utime(path, (0, 0))
        folder.prune()
        assert [path.exists() for path in drafts] == [False, True]
        assert all(path.exists() for path in others) and len(folder.names()) == 1


def test_without_a_home_nothing_is_kept_and_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "host-1-saved-3.mark").write_text(json.dumps({"k": "saved", "r": 0, "s": 3}))
    (tmp_path / "link.mark").symlink_to("/etc/passwd")
    live = LiveResume(tmp_path, {}, "python train.py", "h")
    live.look(is_last=True)
    assert live.report is None


def test_the_script_of_a_command() -> None:
    assert script_of("python -m torch.distributed.run /a/b/pretrain.py --resume x.py") == "pretrain.py"
    assert script_of("torchrun -m team.train --resume a") == script_of("torchrun -m team.train") == "team.train"
    assert script_of("./run.sh") == "./run.sh"


def test_an_average_of_which_nonsense_was_recorded_is_not_compared() -> None:
    rows: dict[str, list[object]] = {"w": ["1", "float32", 4], "b": ["2", "float32", 2]}
    save, now = kept(5), begun(rows, [("model", ""), ("optimizer", "")])
    save.marks[0].averaged, now[0].averaged = [3], [3]
    save.marks[0].averages = {"0:w": ["5", "float32", 4], "0:b": [], "0:c": ["6", "float32", 2]}
    now[0].averages = {"0:w": ["5", "float32", 4], "0:b": ["x"], "0:c": ["7", "bfloat16", 2]}
    report = compared(now, save)
    assert report and report.differences == ()
    now[0].averages["0:w"] = ["6", "float32", 4]
    report = compared(now, save)
    assert report and [(row.kind, row.level) for row in report.differences] == [("average", "warning")]
    now[0].averaged = [4]
    report = compared(now, save)
    assert report and report.differences == ()


@pytest.mark.torch
@pytest.mark.parametrize(("size", "least"), [(23, 38), (8, 10), (4, 0), (2, 0)])
def test_a_running_mean_that_has_taken_in_a_batch_is_that_of_the_checkpoint(size: int, least: int) -> None:
    """One of a normaliser, which has a new tensor before the model first runs: near zero it moves by half its size.

    Of 40 each; few elements tell less, and accuse none for that.
    """
    import torch

    from doctor.watch.hook.loaded_contents import LoadedContents

    generator = torch.Generator().manual_seed(4)

    def follow(mean: torch.Tensor, batches: int) -> torch.Tensor:
        for _ in range(batches):
            mean = 0.9 * mean + 0.1 * torch.randn(size, generator=generator) / 2
        return mean

    def is_accused(is_lost: bool) -> bool:
        saved = follow(torch.zeros(size), 20)
        contents = LoadedContents(torch)
        contents.look({"norm": {"mean": saved.clone()}}, "ck.pt")
        live = follow(torch.zeros(size) if is_lost else saved, 1)
        del saved
        return [place for place, _ in contents.unapplied([])] == ["ck.pt: norm"] * (live.numel() == size)

    assert sum(is_accused(is_lost=False) for _ in range(40)) == 0
    assert sum(is_accused(is_lost=True) for _ in range(40)) >= least
