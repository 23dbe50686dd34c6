"""Who is to blame for failures between pairs."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.pairwise_blame import blame
from doctor.facts.peer_connections import connection_partners

HOSTS = [(name,) for name in "abcdef"]


def all_pairs(*broken: tuple[str, str]) -> list[tuple[tuple[str], tuple[str], bool]]:
    return [(host, two, (host[0], two[0]) not in broken) for host in HOSTS for two in HOSTS if host != two]


def test_where_all_works_nobody_is_blamed() -> None:
    assert blame(all_pairs())[0] == {}


def test_one_deaf_end_explains_all_its_failures() -> None:
    broken = [("c", name) for name in "abdef"] + [(name, "c") for name in "abdef"]
    assert blame(all_pairs(*broken))[0] == {("c",): [("a",), ("b",), ("d",), ("e",), ("f",)]}


def test_of_a_single_failed_pair_the_one_that_was_to_answer_is_named() -> None:
    assert blame(all_pairs(("b", "e")))[0] == {("e",): [("b",)]}


def test_what_an_end_tried_of_itself_is_no_pair() -> None:
    """As where a list of addresses has two of one host: beside it the others are judged as ever."""
    assert blame([(("a",), ("a",), False)]) == ({}, [])
    pairs = [(("a",), ("a",), False), (("b",), ("b",), False), *all_pairs(("a", "b"))]
    assert blame(pairs) == blame(all_pairs(("a", "b")))


def test_two_deaf_ends_are_both_named() -> None:
    broken = [(name, two) for name in "be" for two in "abcdef"] + [(name, two) for name in "abcdef" for two in "be"]
    assert set(blame(all_pairs(*broken))[0]) == {("b",), ("e",)}


@given(
    st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS), st.booleans()).filter(lambda p: p[0] != p[1]))
)
def test_every_failure_is_explained_once(pairs: list[tuple[tuple[str], tuple[str], bool]]) -> None:
    failed = {frozenset(pair[:2]) for pair in pairs if not pair[2]}
    explained = [frozenset((end, other)) for end, others in blame(pairs)[0].items() for other in others]
    explained += {frozenset(pair) for cut in blame(pairs)[1] for pair in cut.failed}
    assert sorted(map(sorted, explained)) == sorted(map(sorted, failed))


Pairs = list[tuple[tuple[str], tuple[str], bool]]


def fleet(parts: str, *, places: tuple[int, ...] = (), way: str = "both") -> Pairs:
    """Hosts in parts: ``aab`` is two in one and one in another; ``places``: how far on each tries others; () all.

    way: ``one``: connections from an earlier part to a later one fail, and not back.
    """
    count = len(parts)
    steps = places or tuple(range(1, count))
    pairs = []
    for source in range(count):
        for target in {(source + step) % count for step in steps}:
            apart = parts[source] != parts[target] if way == "both" else parts[source] < parts[target]
            pairs.append(((f"n{source:02}",), (f"n{target:02}",), not apart))
    return pairs


@pytest.mark.parametrize(
    ("parts", "sizes"),
    [
        ("aabb", [2, 2]),
        ("aaabbb", [3, 3]),
        ("aabbc", [2, 2, 1]),
        ("abc", [1, 1, 1]),
        ("aabc", [2, 1, 1]),
        ("aaabbbb" + "c", [4, 3, 1]),
    ],
)
def test_a_fleet_that_is_cut_without_a_majority_accuses_nobody(parts: str, sizes: list[int]) -> None:
    for way in ("both", "one"):
        pairs = fleet(parts, way=way)
        assert blame(pairs)[0] == {}
        (cut,) = blame(pairs)[1]
        assert [len(part) for part in cut.parts] == sizes
        assert len(cut.hosts) == len(parts)


@pytest.mark.parametrize(("parts", "minority"), [("aaaabb", 2), ("aaab", 1), ("aab", 1), ("aaaabc", 2)])
def test_beside_a_majority_the_others_are_to_blame(parts: str, minority: int) -> None:
    pairs = fleet(parts)
    assert blame(pairs)[1] == []
    assert set(blame(pairs)[0]) == {(f"n{place:02}",) for place in range(len(parts) - minority, len(parts))}


@pytest.mark.parametrize("count", [16, 64])
@pytest.mark.parametrize("pattern", ["halves", "every second"])
def test_a_cut_is_seen_where_each_tries_a_sample(count: int, pattern: str) -> None:
    parts = "a" * (count // 2) + "b" * (count // 2) if pattern == "halves" else "ab" * (count // 2)
    places = tuple(1 << power for power in range(count.bit_length() - 1))
    pairs = fleet(parts, places=places)
    assert blame(pairs)[0] == {}
    assert [len(part) for part in blame(pairs)[1][0].parts] == [count // 2] * 2
    dead = fleet("a" * (count - 1) + "b", places=places)
    assert (blame(dead)[1], set(blame(dead)[0])) == ([], {(f"n{count - 1:02}",)})


def test_two_that_failed_with_each_other_alone_and_one_that_all_tried_are_no_cut() -> None:
    assert blame([(("a",), ("b",), False)])[1] == []
    star = [((name,), ("a",), False) for name in "bcdef"]
    assert (blame(star)[1], set(blame(star)[0])) == ([], {("a",)})


def test_a_pair_that_fails_within_a_part_is_judged_beside_the_cut() -> None:
    pairs = [(first, two, worked and (first, two) != (("n00",), ("n02",))) for first, two, worked in fleet("aaabbb")]
    assert blame(pairs)[0] == {("n02",): [("n00",)]}
    assert len(blame(pairs)[1]) == 1


def test_planes_that_never_try_each_other_are_judged_apart() -> None:
    cut = [((*first, 0), (*two, 0), worked) for first, two, worked in fleet("aabb")]
    healthy = [((*first, 1), (*two, 1), True) for first, two, _ in fleet("aaaa")]
    assert [len(found.hosts) for found in blame([*cut, *healthy])[1]] == [4]


@pytest.mark.parametrize(("hosts", "size", "is_cut"), [(10, 5, True), (32, 16, True), (17, 9, None), (64, 4, False)])
def test_a_cut_of_one_way_in_a_sample_accuses_nobody_of_the_larger_side(
    hosts: int, size: int, is_cut: bool | None
) -> None:
    """With an odd number it may not be seen which side is larger: then nobody is accused."""
    for seed in range(20):
        names = [f"n{number:02d}" for number in range(hosts)]
        side = set(Random(seed).sample(names, size))
        pairs = [
            ((host,), (other,), not (host in side and other not in side))
            for host, others in connection_partners(names).items()
            for other in others
        ]
        suspected = {host for (host,) in blame(pairs)[0]}
        assert is_cut is None or bool(blame(pairs)[1]) is is_cut
        assert suspected <= min(side, {*names} - side, key=len)
        assert bool(suspected) is not bool(blame(pairs)[1])


def test_half_of_the_hosts_that_nobody_reaches_are_no_side() -> None:
    """They do not reach each other either."""
    names = [f"n{number:02d}" for number in range(16)]
    closed = set(names[::2])
    pairs = [
        ((host,), (other,), other not in closed)
        for host, others in connection_partners(names).items()
        for other in others
    ]
    assert ({host for (host,) in blame(pairs)[0]}, blame(pairs)[1]) == (closed, [])
