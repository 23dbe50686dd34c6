"""Who is to blame for failures between pairs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.pairwise_blame import blame

HOSTS = [(name,) for name in "abcdef"]


def all_pairs(*broken: tuple[str, str]) -> list[tuple[tuple[str], tuple[str], bool]]:
    return [(host, two, (host[0], two[0]) not in broken) for host in HOSTS for two in HOSTS if host != two]


def test_where_all_works_nobody_is_blamed() -> None:
    assert blame(all_pairs()) == ({}, [])


def test_one_deaf_end_explains_all_its_failures() -> None:
    broken = [("c", name) for name in "abdef"] + [(name, "c") for name in "abdef"]
    assert blame(all_pairs(*broken)) == ({("c",): [("a",), ("b",), ("d",), ("e",), ("f",)]}, [])


def test_of_a_single_failed_pair_the_one_that_was_to_answer_is_named() -> None:
    assert blame(all_pairs(("b", "e"))) == ({("e",): [("b",)]}, [])


def test_two_deaf_ends_are_both_named() -> None:
    broken = [(name, two) for name in "be" for two in "abcdef"] + [(name, two) for name in "abcdef" for two in "be"]
    assert set(blame(all_pairs(*broken))[0]) == {("b",), ("e",)}


def cut_into(*parts: str, reverse: bool = False) -> list[tuple[tuple[str], tuple[str], bool]]:
    """All pairs of hosts of some parts; ``reverse``: what goes to an earlier part passes."""
    part_of = {name: number for number, part in enumerate(parts) for name in part}
    return [
        ((one,), (other,), part_of[one] == part_of[other] or (reverse and part_of[one] > part_of[other]))
        for one in part_of
        for other in part_of
        if one != other
    ]


@pytest.mark.parametrize("parts", [("ab", "cd"), ("abc", "def"), ("ab", "cd", "e"), ("ab", "c", "d"), ("a", "b", "c")])
@pytest.mark.parametrize("reverse", [False, True])
def test_of_a_cut_without_a_majority_no_end_is_blamed(parts: tuple[str, ...], reverse: bool) -> None:
    suspects, cuts = blame(cut_into(*parts, reverse=reverse))
    assert suspects == {}
    assert cuts == [[[(name,) for name in part] for part in parts]]


@pytest.mark.parametrize(("parts", "blamed"), [(("abcd", "ef"), "ef"), (("abc", "d", "e"), "de"), (("ab", "c"), "c")])
def test_beside_a_majority_the_others_are_blamed(parts: tuple[str, ...], blamed: str) -> None:
    suspects, cuts = blame(cut_into(*parts))
    assert ({name for (name,) in suspects}, cuts) == (set(blamed), [])


def test_two_that_fail_with_each_other_are_no_cut() -> None:
    assert blame(cut_into("a", "b")) == ({("a",): [("b",)]}, [])


def test_a_cut_is_seen_in_a_sample_of_the_pairs() -> None:
    """Each tries those 1, 2, 4, 8, ... places on."""
    hosts = [(f"n{number:02}",) for number in range(64)]
    pairs = [
        (hosts[place], hosts[(place + step) % 64], (place < 32) == ((place + step) % 64 < 32))
        for place in range(64)
        for step in (1, 2, 4, 8, 16, 32)
    ]
    suspects, cuts = blame(pairs)
    assert (suspects, cuts) == ({}, [[hosts[:32], hosts[32:]]])


def test_planes_that_try_each_other_never_are_judged_each_for_itself() -> None:
    """NPUs of one number: plane 0 is cut, in plane 1 one NPU is deaf."""
    alike = {"a": 1, "b": 1, "c": 2, "d": 2}
    every = [(one, other) for one in alike for other in alike if one != other]
    pairs = [((one, 0), (other, 0), alike[one] == alike[other]) for one, other in every]
    pairs += [((one, 1), (other, 1), "d" not in (one, other)) for one, other in every]
    suspects, cuts = blame(pairs)
    assert list(suspects) == [("d", 1)]
    assert cuts == [[[("a", 0), ("b", 0)], [("c", 0), ("d", 0)]]]


def test_a_pair_that_fails_within_a_part_is_blamed_beside_the_cut() -> None:
    pairs = [(one, other, worked and (one, other) != (("a",), ("b",))) for one, other, worked in cut_into("abc", "def")]
    suspects, cuts = blame(pairs)
    assert list(suspects) == [("b",)]
    assert len(cuts) == 1


@given(
    st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS), st.booleans()).filter(lambda p: p[0] != p[1]))
)
def test_every_failure_is_explained_once(pairs: list[tuple[tuple[str], tuple[str], bool]]) -> None:
    failed = {frozenset(pair[:2]) for pair in pairs if not pair[2]}
    suspects, cuts = blame(pairs)
    explained = {frozenset((end, other)) for end, others in suspects.items() for other in others}
    part_of = {
        end: (number, place) for number, cut in enumerate(cuts) for place, part in enumerate(cut) for end in part
    }
    crossing = {pair for pair in failed if len({part_of.get(end) for end in pair}) == 2 and pair <= part_of.keys()}
    assert not explained & crossing
    assert explained | crossing == failed
