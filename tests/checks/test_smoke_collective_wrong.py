from __future__ import annotations

from typing import Any

import pytest

from doctor.engine.result import accused_hosts
from doctor.facts.smoke.collectives import CollectiveWrong, SecondRound, SoakCounts
from doctor.smoke.numerics.collective_values import lone_value, sent_value, without_part
from tests.checks.smoke import collectives, findings_of, page, ran, run_check

NAME = "smoke_collective_wrong"


def wrong(rank: int, op: str = "all_reduce", **more: Any) -> CollectiveWrong:
    chosen = {"gid": 0, "dtype": "float32", "numel": 1021, "root": -1, "index": 17, "expected": 22.0, "got": 23.0}
    return CollectiveWrong(rank=rank, op=op, **{**chosen, "wrong": 1, **more})


def test_right_numbers_are_fine() -> None:
    run = ran(4, 2)
    assert run_check(NAME, run, collectives(run)).complete
    assert not findings_of(NAME, run, collectives(run))


def test_a_wrong_sum_on_one_rank() -> None:
    run = ran(4, 2)
    (finding,) = findings_of(NAME, run, collectives(run, wrong(2, wrong=1), wrong(2, dtype="int8")))
    assert finding.hosts == ("w2",)
    assert str(finding) == (
        "the fault lies with rank 2: all_reduce (1021 x float32, group world) returned 23.0 at element 17 on rank 2, "
        "expected 22.0, a single element: a flipped bit; wrong elements in total: 2, in all_reduce"
    )
    assert "ECC" in page(NAME, finding)


@pytest.mark.parametrize(
    ("backend", "ranks", "hosts"),
    [("nccl", "0, 1, 2, 3, 4 and 5", ("w1", "w2", "w3")), ("gloo", "1 and 2", ("w1", "w2"))],
)
def test_one_element_may_have_changed_on_its_way(backend: str, ranks: str, hosts: tuple[str, ...]) -> None:
    """Of gloo it is known by whom it was sent: it takes the sum from the next rank."""
    run = ran(6, 3, backend=backend)
    (finding,) = findings_of(NAME, run, collectives(run, wrong(1)))
    assert finding.hosts == hosts
    assert str(finding).startswith(f"the fault lies with one of ranks {ranks}:")


@pytest.mark.parametrize(
    ("op", "observers", "ranks"),
    [
        ("all_reduce", (3, 2, 1), [3, 4]),  # the sum's first sixth: rank 3 gave it to 2, and 2 to 1, the last one
        ("all_reduce", (1,), [1, 2]),
        ("all_reduce", (2,), [2]),  # it has given 1 the right values
        ("all_reduce", (5, 4, 3, 2, 1), [0, 5]),  # rank 0 was the last to add
        ("all_reduce", (1, 0, 5), [0, 1, 2, 3, 4, 5]),  # 0 got it from none
        ("broadcast", (1, 2), [1]),  # of rank 0, which gave both of them theirs: rank 1 has given 3 and 5 the right one
        ("all_gather", (3, 4), [2, 3]),  # of rank 0; rank 5 has it right, and is the last to get it
        ("all_gather", (3, 5), [0]),  # rank 4 has it right: no way leads from 3 to 5
        ("all_gather", (3,), [3]),  # it has given 4 the right values, and so had them
        ("all_gather", (5,), [4, 5]),  # the last to get it
        ("broadcast", (1,), [1]),  # 3 and 5 have the right values from it
        ("broadcast", (5,), [1, 5]),  # rank 1 gives it to 5
        ("broadcast", (1, 3, 5), [0, 1]),
        ("broadcast", (3, 5), [1]),  # rank 1 sent it to both, and has it right
        ("broadcast", (1, 2, 3, 4, 5), [0]),
    ],
)
def test_damage_that_ranks_pass_on_came_from_the_first_or_from_who_sent_it_there(
    op: str, observers: tuple[int, ...], ranks: list[int]
) -> None:
    run = ran(6, 6)
    root = 0 if op == "broadcast" else -1
    (finding,) = findings_of(NAME, run, collectives(run, *(wrong(rank, op, root=root) for rank in observers)))
    assert finding.values["ranks"] == ranks
    unlike = [wrong(rank, op, root=root, got=30.0 + rank) for rank in observers]
    (finding,) = findings_of(NAME, run, collectives(run, *unlike))
    assert len(observers) == 1 or finding.values["ranks"] in ([0], list(range(6)))


def test_what_is_wrong_in_two_of_many_calls_is_of_each_for_itself() -> None:
    """The same call was repeated: rank 1 passed the one on, and the other may have been spoilt on its way."""
    run = ran(6, 6)
    twice = [wrong(1, index=3, got=9.0), wrong(2, index=5), wrong(1, index=5)]
    (finding,) = findings_of(NAME, run, collectives(run, *twice))
    assert finding.values["ranks"] == [2]
    assert findings_of(NAME, run, collectives(run, wrong(1, wrong=200)))[0].values["ranks"] == [1]


def test_whose_own_memory_gave_two_readings() -> None:
    """Who received it, and who else was in the sum, had no part in that."""
    run = ran(4, 2)
    given = wrong(2, "reduce_scatter", numel=4084, reread="input")
    received = wrong(0, "reduce_scatter")
    (finding,) = findings_of(NAME, run, collectives(run, received, given))
    assert (finding.hosts, accused_hosts(finding, 2)) == (("w2",), ("w2",))
    assert "what the rank gave to the call has changed in its memory" in str(finding)
    (finding,) = findings_of(NAME, run, collectives(run, wrong(3, "send_recv", reread="result")))
    assert finding.hosts == ("w2",) and "gave two values when it was read twice" in str(finding)


def test_a_library_that_works_in_its_input_accuses_no_memory() -> None:
    run = ran(4, 2)
    everywhere = [wrong(rank, "reduce_scatter", reread="input") for rank in range(4)]
    assert not findings_of(NAME, run, collectives(run, *everywhere))
    (finding,) = findings_of(NAME, run, collectives(run, *everywhere, wrong(1, "broadcast", root=0)))
    assert "broadcast" in str(finding)


def test_a_host_whose_ranks_have_every_element_of_their_sums_wrong_and_no_other_any() -> None:
    """What another rank gave would hardly be wrong for exactly this host, from the first element to the last."""
    run = ran(6, 3)

    def sums(*ranks: int, count: int = 1021) -> list[CollectiveWrong]:
        return [wrong(rank, "reduce_scatter", index=0, wrong=count) for rank in ranks]

    (finding,) = findings_of(NAME, run, collectives(run, *sums(2, 3)))
    assert finding.hosts == ("w2",)
    for unsure in (sums(2), sums(2, 3, count=1020), sums(3, 4), sums(2, 3, 4)):
        (finding,) = findings_of(NAME, run, collectives(run, *unsure))
        assert len(finding.hosts) > 1
    two = ran(4, 2)
    (finding,) = findings_of(NAME, two, collectives(two, *sums(2, 3)))
    assert finding.hosts == ("w1", "w2")


@pytest.mark.parametrize("op", ["all_reduce", "all_gather"])
def test_ranks_of_one_host_that_have_different_places_wrong_once(op: str) -> None:
    """What one of them had given on to the other would be wrong in the same place."""
    run = ran(6, 3)
    (finding,) = findings_of(NAME, run, collectives(run, wrong(4, op, index=17), wrong(5, op, index=30)))
    assert finding.hosts == ("w3",)
    same = collectives(run, wrong(4, op, index=17), wrong(5, op, index=17))
    passed_on = collectives(run, wrong(4, op, index=17, wrong=2), wrong(5, op, index=30))
    sent_apart = collectives(run, *(wrong(rank, "all_to_all", index=rank) for rank in (4, 5)))
    for unsure in (same, passed_on, sent_apart):
        (finding,) = findings_of(NAME, run, unsure)
        assert len(finding.hosts) > 1
    two = ran(4, 2)
    (finding,) = findings_of(NAME, two, collectives(two, wrong(2, op, index=17), wrong(3, op, index=30)))
    assert finding.hosts == ("w1", "w2")


def averages(*ranks: int, **more: Any) -> list[CollectiveWrong]:
    return [wrong(rank, "all_reduce avg", expected=5.5, got=22.0, wrong=1021, **more) for rank in ranks]


def test_averages_that_are_the_sum_everywhere_are_no_ranks_fault() -> None:
    run = ran(4, 2)
    (finding,) = findings_of(NAME, run, collectives(run, *averages(0, 1, 2, 3)))
    assert str(finding).startswith("all_reduce with ReduceOp.AVG returns the sum on every rank (22.0 for 5.5)")
    assert finding.hosts == ("w1", "w2")
    assert "ranks" not in finding.values


def test_an_average_that_is_the_sum_on_one_rank_is_its_own() -> None:
    run = ran(4, 2)
    (finding,) = findings_of(NAME, run, collectives(run, *averages(2)))
    assert (finding.hosts, finding.values["ranks"]) == (("w2",), [2])
    both = collectives(run, *averages(0, 1, 2, 3), wrong(2, wrong=1), wrong(2, dtype="int8"))
    assert [finding.values.get("ranks") for finding in findings_of(NAME, run, both)] == [None, [2]]


def test_the_counts_of_a_soak_are_told() -> None:
    run = ran(4, 2)
    counts = [SoakCounts(rank, {"all_reduce": 900}, {"all_reduce": 2} if rank == 2 else {}, 60.0) for rank in range(4)]
    (finding,) = findings_of(NAME, run, collectives(run, wrong(2, offset=3), wrong(2, offset=450), *counts))
    assert finding.values["ranks"] == [2]
    assert "wrong in 60 s of repeating: rank 2 2 of 900 all_reduce" in str(finding)


def isolated(**results: Any) -> SecondRound:
    """A second round that was wrong again."""
    return SecondRound(
        0, **{"recurred": True, "calls": 60, "wrong": 4, "groups": 5, "total": 400, "seconds": 1.0, **results}
    )


def everywhere() -> list[CollectiveWrong]:
    """A sum that is wrong on all ranks tells nobody."""
    return [wrong(rank, index=0) for rank in range(6)]


@pytest.mark.parametrize(
    ("found_ranks", "hosts", "message"),
    [
        ({"culprits": ((3,),)}, ("w2",), "the fault lies with rank 3: "),
        ({"culprits": ((2, 3),)}, ("w2",), "the fault lies with ranks 2 and 3: "),
        ({"outward": ((2, 3),)}, ("w2",), "the fault lies with what w2 exchanges with other hosts, and not with what"),
        ({"links": (((0, 1), (4, 5)),)}, ("w1", "w3"), "the fault lies with the way between w1 and w3: "),
    ],
)
def test_a_second_round_tells_who(found_ranks: dict[str, Any], hosts: tuple[str, ...], message: str) -> None:
    run = ran(6, 3)
    (finding,) = findings_of(NAME, run, collectives(run, *everywhere(), isolated(**found_ranks)))
    assert finding.hosts == hosts
    assert str(finding).startswith(message)
    assert str(finding).endswith("; found by a second round: 5 tests of parts of the world, 400 calls")


@pytest.mark.parametrize(
    ("found_ranks", "accused"),
    [
        ({"culprits": ((3,),)}, ("w2",)),
        ({"culprits": ((0, 1, 2, 3),)}, ("w1", "w2")),
        ({"links": (((0, 1), (4, 5)),)}, ()),
        ({"unclear": (0, 1, 4, 5)}, ()),
        ({"recurred": False}, ()),
    ],
)
def test_hosts_of_which_one_is_to_blame_are_not_bad(found_ranks: dict[str, Any], accused: tuple[str, ...]) -> None:
    (finding,) = findings_of(NAME, ran(6, 3), collectives(ran(6, 3), *everywhere(), isolated(**found_ranks)))
    assert accused_hosts(finding, 3) == accused


def test_each_culprit_of_a_second_round_is_a_finding() -> None:
    run = ran(6, 3)
    findings = findings_of(NAME, run, collectives(run, *everywhere(), isolated(culprits=((1,), (4,)))))
    assert [finding.values["ranks"] for finding in findings] == [[1], [4]]


@pytest.mark.parametrize(("observers", "further"), [((4, 5), []), ((2, 4, 5), [[3]])])
def test_what_isolated_ranks_alone_have_wrong_is_laid_at_nobody_else(
    observers: tuple[int, ...], further: list[list[int]]
) -> None:
    """Elements that are shifted by one look as if the rank before had sent them."""
    run = ran(6, 3)
    run.groups[1] = ("dp3", (3, 4, 5))
    calls = [wrong(rank, "all_to_all", gid=1, numel=3063, index=0, wrong=3063) for rank in observers]
    findings = findings_of(NAME, run, collectives(run, *everywhere(), *calls, isolated(culprits=((4, 5),))))
    assert [finding.values["ranks"] for finding in findings] == [[4, 5], *further]


@pytest.mark.parametrize(("backend", "further"), [("gloo", [[4, 5]]), ("nccl", [[4]])])
def test_what_an_isolated_rank_gave_on_is_laid_at_nobody_else(backend: str, further: list[list[int]]) -> None:
    """Two packets of one call that changed behind it; what a group without it has wrong is another's."""
    run = ran(6, 6, backend=backend, groups={0: ("world", tuple(range(6))), 1: ("dp3", (3, 4, 5))})
    calls = [wrong(rank, "all_gather", numel=6000, index=1000 * rank + 1100, got=rank) for rank in (1, 3)]
    calls += [wrong(4, "all_to_all", gid=1, numel=3063, index=2042)]
    findings = findings_of(NAME, run, collectives(run, *everywhere(), *calls, isolated(culprits=((0,),))))
    assert [finding.values["ranks"] for finding in findings] == [[0], *further]


def test_a_second_round_that_was_right_says_so_and_blames_nobody_more() -> None:
    run = ran(6, 3)
    (finding,) = findings_of(NAME, run, collectives(run, *everywhere(), isolated(recurred=False, wrong=0)))
    assert finding.hosts == ("w1", "w2", "w3")
    assert str(finding).endswith("; a second round of 400 calls was right throughout")
    (finding,) = findings_of(NAME, run, collectives(run, *everywhere(), isolated(unclear=tuple(range(6)))))
    assert "was wrong again and did not tell which" in str(finding) and str(finding).startswith(
        "the fault lies with one of ranks 0"
    )


def test_all_that_one_rank_gets_wrong_is_one_finding() -> None:
    run = ran(4, 2, groups={0: ("world", (0, 1, 2, 3)), 1: ("dp2 2,3", (2, 3))})
    collective_wrongs = [wrong(3, dtype=dtype, wrong=count) for dtype in ("float16", "float32") for count in (5, 900)]
    (finding,) = findings_of(
        NAME, run, collectives(run, *collective_wrongs, wrong(3, gid=1), wrong(3, "all_gather", numel=4084, index=5))
    )
    assert finding.hosts == ("w2",) and finding.values["ranks"] == [3]
    assert finding.values["ops"] == ["all_gather", "all_reduce"]


def test_what_one_rank_sent_wrong_is_its_own_fault_wherever_it_arrives() -> None:
    run = ran(4, 2)
    collective_wrongs = [wrong(rank, "all_gather", numel=4084, index=3 * 1021 + 5, got=3.5) for rank in (0, 1, 2)]
    (finding,) = findings_of(NAME, run, collectives(run, *collective_wrongs))
    assert finding.hosts == ("w2",) and finding.values["ranks"] == [3]


def test_a_sum_that_is_wrong_everywhere_does_not_tell_whose_part_it_is() -> None:
    run = ran(4, 2)
    (finding,) = findings_of(NAME, run, collectives(run, *(wrong(rank, wrong=1021, index=0) for rank in range(4))))
    assert finding.hosts == ("w1", "w2")
    assert str(finding).startswith("the fault lies with one of ranks 0, 1, 2 and 3")


def test_groups_together_tell_whose_part_it_is() -> None:
    groups = {0: ("world", (0, 1, 2, 3)), 1: ("dp2 0,2", (0, 2)), 2: ("tp2 2,3", (2, 3)), 3: ("dp2 1,3", (1, 3))}
    run = ran(4, 2, groups=groups)
    collective_wrongs = [wrong(rank, gid=gid, wrong=1021) for gid in (0, 1, 2) for rank in groups[gid][1]]
    (finding,) = findings_of(NAME, run, collectives(run, *collective_wrongs))
    assert finding.values["ranks"] == [2]


@pytest.mark.parametrize("op", ["all_gather", "all_to_all", "broadcast"])
def test_who_sends_what_one_host_alone_has_wrong_is_not_to_blame(op: str) -> None:
    """All others have the right values of the same ranks: such as results that lie one place too far on one host."""
    run = ran(8, 4, groups={1: ("pairs", (2, 3, 6, 7))})
    events = [wrong(rank, op, gid=gid, root=root, index=0) for gid, root in ((0, 0), (1, 2)) for rank in (6, 7)]
    (finding,) = findings_of(NAME, run, collectives(run, *events))
    assert finding.hosts == ("w4",)
    found_again = isolated(culprits=((6, 7),))
    (finding,) = findings_of(NAME, run, collectives(run, *events, found_again))
    assert (finding.hosts, finding.values["ranks"]) == (("w4",), [6, 7])


@pytest.mark.parametrize("op", ["all_gather", "all_to_all", "broadcast"])
def test_who_sends_what_all_others_have_wrong_is(op: str) -> None:
    run = ran(4, 2)
    (finding,) = findings_of(NAME, run, collectives(run, *(wrong(rank, op, root=1, index=300) for rank in (0, 2, 3))))
    assert (finding.hosts, finding.values["ranks"]) == (("w1",), [1])


def test_a_wrong_root() -> None:
    run = ran(4, 2)
    values = {
        "root": 3,
        "index": 0,
        "numel": 1,
        "expected": float(sent_value(4, 3, 0)),
        "got": float(sent_value(4, 0, 0)),
    }
    (finding,) = findings_of(NAME, run, collectives(run, *(wrong(rank, "broadcast", **values) for rank in range(4))))
    assert "it is the data of rank 0: ranks or devices are swapped" in str(finding)


def untouched(rank: int, op: str = "broadcast", **more: Any) -> CollectiveWrong:
    """A result that the call left as it was: of one in place, what the rank gave to it."""
    own = float(sent_value(4, rank, 0)) if op == "broadcast" else 35.0
    return wrong(rank, op, index=0, got=own, wrong=1021, **more)


@pytest.mark.parametrize("op", ["broadcast", "all_gather", "reduce_scatter"])
def test_a_result_that_nothing_was_written_to_is_its_own_ranks(op: str) -> None:
    run = ran(4, 4)
    (finding,) = findings_of(NAME, run, collectives(run, untouched(1, op, root=2)))
    assert (finding.hosts, finding.values["ranks"]) == (("w2",), [1])
    events = [untouched(1, op, root=2)]
    assert without_part(events, run.groups, 4) == {1: op}
    assert without_part([*events, wrong(3, op, root=2, index=0, got=7.0, wrong=1021)], run.groups, 4) == {}, (
        "a wrong root, maybe"
    )
    assert without_part([wrong(1, op, root=2, got=12.0, wrong=1021)], run.groups, 4) == {}, "damage in transit"
    assert without_part([untouched(rank, op) for rank in range(4)], run.groups, 4) == {}, "the library's"
    assert without_part([untouched(1, op, dtype="bool")], run.groups, 4) == {} or op != "broadcast"


def test_ranks_that_changed_places_are_recognised_by_what_they_send() -> None:
    run = ran(4, 2)
    values = {
        "numel": 4084,
        "index": 1021,
        "wrong": 2042,
        "got": float(sent_value(4, 2, 0)),
        "expected": float(sent_value(4, 1, 0)),
    }
    (finding,) = findings_of(NAME, run, collectives(run, *(wrong(rank, "all_gather", **values) for rank in range(4))))
    assert "it is the data of rank 2" in str(finding)


@pytest.mark.parametrize(
    ("more", "looks"),
    [
        ({"index": 900, "wrong": 121, "op": "all_gather", "got": 1.0}, "an incomplete transfer"),
        ({"got": 35.0, "op": "all_to_all"}, "nothing was written"),
        ({"got": "nan", "dtype": "float16"}, ""),
        ({"got": None}, ""),
        ({"got": 3.0, "wrong": 300}, ""),
    ],
)
def test_damage_of_known_kinds_is_named(more: dict[str, Any], looks: str) -> None:
    run = ran(4, 2)
    (finding,) = findings_of(NAME, run, collectives(run, wrong(1, **more)))
    assert looks in finding.values["looks"] and bool(looks) == bool(finding.values["looks"])


@pytest.mark.parametrize("op", ["all_gather", "all_to_all"])
def test_what_came_from_several_hosts_is_wrong_where_it_lies(op: str) -> None:
    """Once, on one rank alone: no single sender had a part in all of it."""
    run = ran(8, 4)
    (finding,) = findings_of(NAME, run, collectives(run, wrong(6, op, numel=8, index=0, wrong=8)))
    assert (finding.hosts, finding.values["ranks"]) == (("w4",), [6])
    one_host_gave_it = wrong(6, op, numel=8, index=0, wrong=2)
    (finding,) = findings_of(NAME, run, collectives(run, one_host_gave_it))
    assert finding.hosts == ("w1", "w4") if op == "all_to_all" else ("w3", "w4")
    of_two = ran(2, 2)
    (finding,) = findings_of(NAME, of_two, collectives(of_two, wrong(1, op, numel=2042, index=0, wrong=1500)))
    assert finding.hosts == ("w2",)
    (finding,) = findings_of(NAME, of_two, collectives(of_two, wrong(1, op, numel=2042, index=0, wrong=900)))
    assert finding.hosts == ("w1", "w2")


@pytest.mark.parametrize(
    ("backend", "giver", "index", "ranks"),
    [("gloo", 4, 17, [4]), ("gloo", 5, 17, [4, 5]), ("gloo", 0, 700, [0]), ("nccl", 4, 17, [0, 1, 2, 3, 4, 5])],
)
def test_a_sum_tells_whose_part_of_it_is_wrong(backend: str, giver: int, index: int, ranks: list[int]) -> None:
    """Of gloo it is known who adds to that part as the first one, and had it alone in hand."""
    run = ran(6, 3, backend=backend)
    events = [wrong(rank, wrong=16, giver=giver, index=index) for rank in range(6)]
    (finding,) = findings_of(NAME, run, collectives(run, *events))
    assert finding.values["ranks"] == ranks
    assert f"all that differs is how much it has of what rank {giver} gave" in str(finding)


def test_a_rank_that_left_a_sum_of_one_element_has_what_it_gave() -> None:
    run = ran(4, 2)
    (finding,) = findings_of(NAME, run, collectives(run, wrong(3, numel=1, index=0, got=float(lone_value(3)))))
    assert finding.hosts == ("w2",)
    assert without_part([wrong(3, numel=1, index=0, got=float(lone_value(3)))], {}, 4) == {3: "all_reduce"}
