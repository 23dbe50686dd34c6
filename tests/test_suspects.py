"""Who is to blame for failures between pairs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.pairwise_blame import suspects

HOSTS = [(name,) for name in "abcdef"]


def all_pairs(*broken: tuple[str, str]) -> list[tuple[tuple[str], tuple[str], bool]]:
    return [(host, two, (host[0], two[0]) not in broken) for host in HOSTS for two in HOSTS if host != two]


def test_where_all_works_nobody_is_blamed() -> None:
    assert suspects(all_pairs()) == {}


def test_one_deaf_end_explains_all_its_failures() -> None:
    broken = [("c", name) for name in "abdef"] + [(name, "c") for name in "abdef"]
    assert suspects(all_pairs(*broken)) == {("c",): [("a",), ("b",), ("d",), ("e",), ("f",)]}


def test_of_a_single_failed_pair_the_one_that_was_to_answer_is_named() -> None:
    assert suspects(all_pairs(("b", "e"))) == {("e",): [("b",)]}


def test_two_deaf_ends_are_both_named() -> None:
    broken = [(name, two) for name in "be" for two in "abcdef"] + [(name, two) for name in "abcdef" for two in "be"]
    assert set(suspects(all_pairs(*broken))) == {("b",), ("e",)}


@given(
    st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS), st.booleans()).filter(lambda p: p[0] != p[1]))
)
def test_every_failure_is_explained_once(pairs: list[tuple[tuple[str], tuple[str], bool]]) -> None:
    failed = {frozenset(pair[:2]) for pair in pairs if not pair[2]}
    explained = [frozenset((end, other)) for end, others in suspects(pairs).items() for other in others]
    assert sorted(map(sorted, explained)) == sorted(map(sorted, failed))
