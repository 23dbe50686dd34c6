"""What data-parallel ranks choose alike, hold besides the model, and how they shuffle: pure, and by real programs."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.watch.data.data_report import DataReport, analyze_records
from tests.watch.test_data import lines, replica

Record = dict[str, Any]
OWN_CALLS = ["all_gather", "all_reduce", "broadcast"]


def judged(*records_of_rank: list[Record]) -> DataReport:
    return analyze_records(replica(rank, *records) for rank, records in enumerate(records_of_rank))


def told(report: DataReport) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(cause.check, cause.level, cause.ranks) for cause in report.causes]


def steps(kind: str, values: list[Any], **fields: Any) -> list[Record]:
    name = {"update": "lr", "backward": "f", "outputs": "d"}[kind]
    return [{"k": kind, "s": step, name: value, **fields} for step, value in enumerate(values)]


@pytest.mark.parametrize(
    ("kind", "odd", "usual", "text"),
    [
        ("update", [[0.3], [0.2], [0.1]], [[0.1], [0.09], [0.08]], "the learning rate of rank 2 is 0.3 from step 0 on"),
        ("backward", [1.0] * 3, [1024.0] * 3, "the loss of rank 2 is multiplied by 1.0 from step 0 on"),
        ("outputs", [["torch.bfloat16"]] * 3, [["torch.float32"]] * 3, "returns torch.bfloat16 from step 0 on"),
    ],
)
def test_a_rank_that_chooses_otherwise_in_each_step_is_named(
    kind: str, odd: list[Any], usual: list[Any], text: str
) -> None:
    fields = {"how": "mean", "v": 1.0} if kind == "backward" else {}
    report = judged(*(steps(kind, odd if rank == 2 else usual, **fields) for rank in range(3)))
    (cause,) = report.causes
    assert (cause.ranks, cause.tie) == ((2,), False) and text in cause.text
    assert cause.level == ("error" if kind == "update" else "warning")


@pytest.mark.parametrize(
    ("kind", "rows", "fields"),
    [
        pytest.param(
            "backward", [[1.0, 2.0, 1.5], [2.0, 1.0, 1.5]], {"how": "mean"}, id="weights by numbers of tokens"
        ),
        pytest.param("backward", [[0.0] * 3, [1.0] * 3], {"how": "sum"}, id="losses that are no means"),
        pytest.param("backward", [[1.0] * 2, [2.0] * 2], {"how": "mean"}, id="two steps"),
        pytest.param("update", [[[0.1]] * 3, [[0.1, 0.2]] * 3], {}, id="groups of parameters by rank"),
        pytest.param("update", [[[0.1], [0.2], [0.2]], [[0.1]] * 3], {}, id="rates that were alike once"),
        pytest.param("outputs", [[["torch.float32"]] * 3] * 2, {}, id="one type"),
    ],
)
def test_what_ranks_may_choose_otherwise_accuses_nobody(kind: str, rows: list[list[Any]], fields: Record) -> None:
    report = judged(*(steps(kind, rows[min(rank, 1)], **fields) for rank in range(3)))
    assert (report.causes, report.notes) == ((), ())


def own(rank: int, calls: list[str]) -> list[Record]:
    table = {"w": "same", "optimizer tensor 0": f"value of {rank}"}
    return [
        {"k": "begun", "s": 0, "t": table, "loose": ["optimizer tensor 0"]},
        {"k": "update", "s": 0, "lr": [0.1], "calls": calls},
    ]


@pytest.mark.parametrize(
    ("calls", "causes", "notes"),
    [(OWN_CALLS, 1, 0), ([*OWN_CALLS, "all_to_all"], 0, 1), ([*OWN_CALLS, "send"], 0, 1), ([], 0, 0)],
)
def test_tensors_of_each_rank_are_a_warning_where_no_rank_uses_those_of_another(
    calls: list[str], causes: int, notes: int
) -> None:
    report = judged(*(own(rank, calls) for rank in range(3)))
    assert told(report) == [("smoke-parameters-not-broadcast", "warning", (0, 1, 2))] * causes
    assert sum("train tensors of their own" in note.text for note in report.notes) == notes


def epochs(rank: int, shuffled_by: tuple[int, int], orders: tuple[str, str], *, whole: bool = True) -> list[Record]:
    records: list[Record] = []
    for epoch, (number, order) in enumerate(zip(shuffled_by, orders, strict=True)):
        about = {"size": 12, "shares": 3, "share": rank, "shuffle": number, "batch": 2, "workers": 0}
        records.append({"k": "loader", "l": 0, "e": epoch, **about})
        samples = [3 * place + rank for place in map(int, order)]
        pairs = (samples[:2], samples[2:])
        records += [{"k": "batch", "l": 0, "e": epoch, "i": i, "ix": pair, "count": 2} for i, pair in enumerate(pairs)]
        if whole:
            records.append({"k": "epoch", "l": 0, "e": epoch, "size": 12, "ix": sorted(samples), "count": 4})
    return records


@pytest.mark.parametrize(
    ("shuffled_by", "orders", "whole", "found"),
    [
        pytest.param((0, 0), ("2031", "2031"), True, True, id="set_epoch was not called"),
        pytest.param((0, 1), ("2031", "1320"), True, False, id="it was"),
        pytest.param((-1, -1), ("0123", "0123"), True, False, id="samplers that do not shuffle"),
        pytest.param((0, 0), ("2031", "2031"), False, False, id="a trial before the first epoch"),
        pytest.param((0, 0), ("2031", "3102"), True, False, id="shuffled by the program itself"),
    ],
)
def test_an_epoch_in_the_order_of_the_one_before_is_a_warning(
    shuffled_by: tuple[int, int], orders: tuple[str, str], whole: bool, found: bool
) -> None:
    report = judged(*(epochs(rank, shuffled_by, orders, whole=whole) for rank in range(3)))
    assert told(report) == [("smoke-shards-wrong", "warning", ())] * found
    assert all(
        "epoch 1 is read in the order of the epoch before by every rank" in cause.text for cause in report.causes
    )


@pytest.mark.parametrize(("passes", "found"), [((2, 3, 2), 0), ((2, 2, 2), 1)])
def test_losses_are_compared_where_ranks_make_as_many_of_them_in_a_step(
    passes: tuple[int, int, int], found: int
) -> None:
    """Each rank may divide its losses by the number of its own batches of a step."""

    def losses(rank: int) -> list[Record]:
        factor = 1 / 3 if rank == 1 else 0.5
        about = {"k": "backward", "f": factor, "how": "mean", "v": 1.0}
        return [{**about, "s": step} for step in range(3) for _ in range(passes[rank])]

    assert len(judged(*map(losses, range(3))).causes) == found


@pytest.mark.parametrize(
    ("copies", "ranks"),
    [
        pytest.param("aab", [(2,)], id="a model that stays as it is, and another one on a rank"),
        pytest.param("aaa", [], id="alike"),
        pytest.param("aa-", [], id="kept by some"),
        pytest.param("AAB", [(2,)], id="another average"),
        pytest.param("AAa", [(2,)], id="an average that a rank alone leaves as it is"),
        pytest.param("Aaa", [], id="averaged by rank 0 alone"),
    ],
)
def test_a_copy_of_the_parameters_that_differs_on_a_rank_is_a_warning(
    copies: str, ranks: list[tuple[int, ...]]
) -> None:
    """Large letters: a copy that changes in each step. A rank that keeps none differs in nothing."""

    def tables(letter: str) -> list[Record]:
        values = [letter.lower() + str(step) * letter.isupper() for step in range(3)]
        return [{"k": "copies", "s": s, "t": {"ema:w": v} if letter != "-" else {}} for s, v in enumerate(values)]

    report = judged(*map(tables, copies))
    assert [(cause.level, cause.ranks) for cause in report.causes] == [("warning", each) for each in ranks]


@pytest.mark.parametrize(("left", "checks"), [(["up"], []), ([], ["smoke-parameters-not-broadcast"])])
def test_parameters_that_the_program_reduces_over_no_such_group_are_each_ranks_own(
    left: list[str], checks: list[str]
) -> None:
    """As the columns of a layer are, where the gradients of an embedding alone are added up over its ranks."""

    def records(rank: int) -> list[Record]:
        table = {"emb": "same", "up": f"columns of {rank}"}
        same_rows = {"0": ["c1", [8, 4], "torch.int64", list(range(64))]}
        inputs = [{"k": "inputs", "s": step, "i": 1, "m": "M", "a": same_rows} for step in range(3)]
        use = {"k": "use", "g": 1, "u": "gradients", "why": "all_reduce of gradients"}
        return [use, {"k": "left", "g": 1, "n": left}, {"k": "begun", "s": 0, "t": table}, *inputs]

    report = analyze_records(lines(rank, *records(rank)) for rank in range(3))
    assert [cause.check for cause in report.causes] == checks
    assert ("a part of their gradients" in str(report.inferred)) == bool(left)


@pytest.mark.parametrize(
    ("rows", "draws", "found"), [("same", "abc", True), ("same", "aaa", False), ("own", "abc", False)]
)
def test_ranks_with_shards_of_their_own_and_the_same_rows_hold_one_model(rows: str, draws: str, found: bool) -> None:
    """Where the program itself adds up the gradients of what its shards have in common: masks must be alike there."""

    def records(rank: int) -> list[Record]:
        records: list[Record] = [{"k": "use", "g": 1, "u": "gradients", "why": "all_reduce of gradients"}]
        records += [{"k": "left", "g": 1, "n": ["up"]}, {"k": "begun", "s": 0, "t": {"up": f"columns of {rank}"}}]
        for step in range(3):
            value = [f"c{step}{rank * (rows == 'own')}", [8, 4], "torch.int64", list(range(64))]
            records.append({"k": "inputs", "s": step, "i": 1, "m": "M", "a": {"0": value}})
            records.append({"k": "random", "s": step, "i": 1, "at": "forward", "g": {"torch": draws[rank]}})
            records.append({"k": "backward", "s": step, "v": ord(draws[rank]), "how": "mean", "f": 1.0})
        return records

    report = analyze_records(lines(rank, *records(rank)) for rank in range(3))
    assert [cause.check for cause in report.causes] == ["smoke-mask-differs"] * found


@pytest.mark.parametrize(
    ("uses", "begun", "role"),
    [
        pytest.param({"rows": "of a batch", "gradients": "all_reduce"}, "own", "model", id="columns of its own"),
        pytest.param({"activations": "all_reduce", "gradients": "all_reduce"}, "own", "", id="sums of no rows"),
        pytest.param({"rows": "of a batch", "gradients": "all_reduce"}, "same", "", id="the same parameters"),
        pytest.param({"rows": "all_reduce of a batch"}, "same", "model", id="no gradients"),
        pytest.param({"gradients": "all_reduce of gradients"}, "same", "data", id="gradients"),
        pytest.param({"gradients": "reduce of gradients"}, "same", "data", id="gradients, for one rank"),
    ],
)  # fmt: skip
def test_what_a_group_reduces_tells_what_it_is_for(uses: dict[str, str], begun: str, role: str) -> None:
    def records(rank: int) -> list[Record]:
        own = {"up": f"columns of {rank}" if begun == "own" else "columns"}
        calls = {"k": "update", "s": 0, "calls": ["all_reduce", "barrier", "reduce"]}
        reductions = [{"k": "use", "g": 1, "u": purpose, "why": why} for purpose, why in uses.items()]
        return [*reductions, {"k": "left", "g": 1, "n": ["up"]}, {"k": "begun", "s": 0, "t": own}, calls]

    report = analyze_records(lines(rank, *records(rank)) for rank in range(3))
    words = {"model": "tensor-parallel group", "data": "data-parallel group", "": "nothing is demanded of it"}
    assert words[role] in str(report.inferred)


@pytest.mark.parametrize("call", ["broadcast", "send", "all_gather"])
def test_who_gets_the_sum_of_gradients_alone_and_hands_on_what_it_makes_of_them_is_healthy(call: str) -> None:
    """As a server of parameters does."""

    def records(rank: int) -> list[Record]:
        use = {"k": "use", "g": 1, "u": "gradients", "why": "reduce of gradients"}
        update = {"k": "update", "s": 0, "calls": ["reduce", call]}
        return [use, update, {"k": "reduced", "s": 0, "t": {"w": f"of {rank}"}}]

    report = analyze_records(lines(rank, *records(rank)) for rank in range(3))
    assert (report.causes, report.inferred) == ((), ())


@pytest.mark.parametrize(
    ("held", "found"),
    [
        pytest.param(["zzzzz", "zzzkk"], [(3, (1,))], id="from a step on"),
        pytest.param(["zzzzz", "kkkkk"], [(0, (1,))], id="always"),
        pytest.param(["zzzzz", "zzkzz"], [], id="once"),
        pytest.param(["zzzzz", "zzzzk"], [], id="in the last step"),
        pytest.param(["kkkkk", "kkkkk"], [], id="alike, as of two models whose losses meet"),
    ],
)
def test_gradients_that_a_rank_leaves_for_the_next_step_are_a_warning(
    held: list[str], found: list[tuple[int, tuple[int, ...]]]
) -> None:
    words = {"z": "set to zero", "k": "kept"}
    rows = [held[rank == 1] for rank in range(3)]
    report = judged(*(
        [{"k": "backward", "s": s, "v": 1.0, "how": "mean", "f": 1.0, "z": words[z]} for s, z in enumerate(row)]
        for row in rows
    ))  # fmt: skip
    assert [(cause.step, cause.ranks) for cause in report.causes] == found


@pytest.mark.parametrize(
    ("scales", "found"),
    [
        pytest.param(["0123", "0000", "0123"], [(1,)], id="one rank leaves it"),
        pytest.param(["0123", "0456", "0789"], [], id="each keeps a mean of its own rows"),
        pytest.param(["0000", "0000", "0000"], [], id="constants"),
        pytest.param(["0011", "0000", "0011"], [], id="set once, later than the others"),
    ],
)
def test_a_buffer_that_a_rank_alone_leaves_as_it_is_is_a_warning(scales: list[str], found: list[Any]) -> None:
    report = judged(*(
        [{"k": "buffers", "s": step, "t": {"scale": digest}} for step, digest in enumerate(digests)]
        for digests in scales
    ))  # fmt: skip
    assert told(report) == [("smoke-parameters-diverge", "warning", ranks) for ranks in found]


@pytest.mark.parametrize(
    ("contents", "about", "found"),
    [
        pytest.param(["abcdef", "cdefgh", "ijklmn"], {}, [(0, 1)], id="ranges that overlap"),
        pytest.param(["abcdef", "ghijkl", "mnopqr"], {}, [], id="none in common"),
        pytest.param(["abcdef", "abcghi", "jklmno"], {}, [], id="few in common"),
        pytest.param(["abcdea", "bcdefa", "bcdefg"], {}, [], id="a data set with equal rows"),
        pytest.param(["abcdef", "cdefgh", "ijklmn"], {"replacement": True}, [], id="drawn with replacement"),
        pytest.param(["abcdef", "cdefgh", "ijklmn"], {"shares": 3}, [], id="shares of equal samples"),
    ],
)
def test_rows_that_loaders_without_shares_give_to_two_ranks_are_a_warning(
    contents: list[str], about: Record, found: list[Any]
) -> None:
    def records(rank: int) -> list[Record]:
        share = {"share": rank} if "shares" in about else {}
        rows = [{"k": "rows", "l": 0, "i": at, "d": list(contents[rank][2 * at : 2 * at + 2])} for at in range(3)]
        return [{"k": "loader", "l": 0, "e": 0, "size": 6, "batch": 2, **about, **share}, *rows]

    report = judged(*map(records, range(3)))
    assert told(report) == [("smoke-shards-wrong", "warning", ranks) for ranks in found]


@pytest.mark.parametrize(
    ("calls", "found"),
    [(["broadcast", "reduce"], []), (["gather", "scatter"], []), (["all_reduce"], [(2,)]), (["broadcast"], [(2,)])],
)
def test_ranks_without_updates_are_healthy_where_another_makes_these_for_them(
    calls: list[str], found: list[tuple[int, ...]]
) -> None:
    def records(rank: int) -> list[Record]:
        places = [(step, 1) if rank < 2 else (0, step + 1) for step in range(3)]
        passes = [{"k": "inputs", "s": step, "i": number, "m": "M", "a": {}} for step, number in places]
        return passes + [{"k": "update", "s": step, "calls": calls} for step in range(3) if rank < 2]

    report = analyze_records(lines(rank, *records(rank)) for rank in range(3))
    assert [cause.ranks for cause in report.causes if cause.kind == "no-step"] == found


@pytest.mark.parametrize(
    ("about", "found"),
    [
        pytest.param({"sampler": "SequentialSampler"}, 1, id="all that there are"),
        pytest.param({"sampler": "DistributedSampler", "shares": 3}, 1, id="shares of all"),
        pytest.param({"sampler": "WeightedRandomSampler", "replacement": True}, 0, id="drawn with replacement"),
        pytest.param({"sampler": "SubsetRandomSampler"}, 0, id="a part of a data set"),
    ],
)
def test_samples_that_nobody_reads_are_an_error_where_the_samplers_draw_all(about: Record, found: int) -> None:
    def records(rank: int) -> list[Record]:
        share = {"share": rank} if "shares" in about else {}
        loader = {"k": "loader", "l": 0, "e": 0, "size": 90, "batch": 2, **about, **share}
        return [loader, {"k": "epoch", "l": 0, "e": 0, "size": 90, "ix": [rank, rank + 3], "count": 2}]

    causes = judged(*map(records, range(3))).causes
    assert [cause.kind for cause in causes] == ["missing"] * found
