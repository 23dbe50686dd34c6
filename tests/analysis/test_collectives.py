"""Who differs, is behind, silent, awaited, and died first: each decided once, whatever the source."""

from __future__ import annotations

import doctest
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.analysis import majority
from doctor.analysis.collectives import calls, deaths, waits
from doctor.analysis.collectives.calls import Call, behind, differing, few_silent, lag
from doctor.analysis.collectives.deaths import SAME_LOOK, Death, EndCause, follows
from doctor.analysis.collectives.waits import chain_end, find_circle, most_awaited
from doctor.analysis.majority import split

VALUES = st.lists(st.sampled_from("aabc"), max_size=12)
NUMBERS = st.lists(st.one_of(st.none(), st.integers(5, 8)), max_size=12)
GRAPHS = st.dictionaries(st.integers(0, 6), st.sets(st.integers(0, 6), max_size=3), max_size=7)
TIMES = st.tuples(st.floats(0, 10), st.floats(0, 10)).map(sorted)
DEATHS = st.builds(lambda times, cause: Death(*times, cause), TIMES, st.sampled_from(EndCause))


@pytest.mark.parametrize("module", [majority, calls, waits, deaths])
def test_the_examples_hold(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@given(VALUES)
def test_a_split_divides_all_and_the_order_of_ranks_decides_nothing(values: list[str]) -> None:
    parts = split(enumerate(values), lambda row: row[1])
    assert (parts is None) == (len(set(values)) < 2)
    if parts is None:
        return
    assert sorted((*parts.agreeing, *parts.differing)) == list(enumerate(values))
    ranked = Counter(values).most_common()
    assert parts.tie == (ranked[0][1] == ranked[1][1])
    if not parts.tie:
        assert len(parts.agreeing) == ranked[0][1]
        shuffled = random.Random(1).sample(list(enumerate(values)), len(values))
        again = split(shuffled, lambda row: row[1])
        assert again and sorted(again.differing) == sorted(parts.differing)


def test_what_is_not_known_of_a_call_is_not_compared() -> None:
    assert differing([Call(0, 7, "all_reduce"), Call(1, 7, None, "8"), Call(2, None, "all_reduce", "8")]) is None
    result = differing([Call(0, 7, "all_reduce", "8"), Call(1, 7, None, "8"), Call(2, None, "all_reduce", "4")])
    assert result and result[0] == "size" and [call.member for call in result[1].differing] == [2]


@given(NUMBERS)
def test_those_behind_are_at_the_lowest_number_and_fewer_than_the_others(numbers: list[int | None]) -> None:
    counted = [number for number in numbers if number is not None]
    result = behind([Call(rank, number) for rank, number in enumerate(numbers)])
    if result is None:
        half = 2 * counted.count(min(counted, default=0)) >= len(counted)
        assert len(set(counted)) < 2 or half
        return
    where, late = result
    assert {call.sequence for call in late} == {min(counted)} and where.highest == max(counted)
    assert 2 * len(late) < len(counted) or len(counted) == 2
    assert lag(Counter(counted)) == where


@given(st.integers(0, 20), st.integers(0, 20))
def test_the_larger_part_is_not_silent(silent: int, waiting: int) -> None:
    named = few_silent(range(silent), waiting)
    assert named == (silent > 0 and (silent == 1 or 2 * silent <= waiting))


@given(GRAPHS)
def test_a_chain_ends_where_nobody_is_waited_for_and_a_circle_is_one(graph: dict[int, set[int]]) -> None:
    circle = find_circle(graph)
    assert all(after in graph[before] for before, after in zip(circle, [*circle[1:], *circle[:1]], strict=True))
    assert len(set(circle)) == len(circle)
    for start in graph:
        end = chain_end(start, graph)
        assert end is None or not graph.get(end) or end in graph[end]
        if not circle and len({node for node in range(7) if not graph.get(node)}) == 1:
            assert end is not None


@given(st.lists(st.integers(0, 3), max_size=9))
def test_the_most_awaited_is_awaited_more_than_any_other(targets: list[int]) -> None:
    counts = Counter(targets)
    best = [node for node in counts if all(counts[node] > counts[other] for other in counts if other != node)]
    assert most_awaited(targets) == (best[0] if best else None)


@given(st.lists(DEATHS, min_size=1, max_size=6))
def test_of_two_deaths_at_most_one_came_first_and_what_was_alive_later_follows(ends: list[Death]) -> None:
    for death in ends:
        for other in ends:
            assert not (death.precedes(other) and other.precedes(death))
            if other.alive_at > death.found_at + SAME_LOOK:
                assert death.precedes(other) and follows(other, ends)
            elif abs(death.found_at - other.found_at) < SAME_LOOK and death.cause == other.cause:
                assert not death.precedes(other)
