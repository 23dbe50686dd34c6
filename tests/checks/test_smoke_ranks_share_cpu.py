from __future__ import annotations

from collections.abc import Mapping

from doctor.facts.smoke.first_stages import CpuBinding, SmokeBinding
from tests.checks.smoke import BY_HOST, findings_of, page, ran, run_check

NAME = "smoke_ranks_share_cpu"
HOST = frozenset(range(64))


def bound(cpus: Mapping[int, frozenset[int]], permitted: frozenset[int] = HOST, host: str = "w1") -> BY_HOST:
    return {
        host: SmokeBinding(by_rank={rank: CpuBinding(own_entries, permitted) for rank, own_entries in cpus.items()})
    }


def test_ranks_on_cpus_of_their_own_and_ranks_that_nothing_binds_are_fine() -> None:
    run = ran(8, 1)
    facts = bound({rank: frozenset({rank}) for rank in range(8)})
    assert run_check(NAME, run, facts).complete and not findings_of(NAME, run, facts)
    assert not findings_of(NAME, run, bound(dict.fromkeys(range(8), HOST)))
    blocks = {rank: frozenset(range(rank * 8, rank * 8 + 8)) for rank in range(8)}
    assert not findings_of(NAME, run, bound(blocks))
    sockets = {rank: frozenset(range(32 * (rank % 2), 32 * (rank % 2) + 32)) for rank in range(8)}
    assert not findings_of(NAME, run, bound(sockets))


def test_all_ranks_on_one_cpu_of_many() -> None:
    run = ran(8, 1)
    (finding,) = findings_of(NAME, run, bound(dict.fromkeys(range(8), frozenset({0}))))
    assert finding.hosts == ("w1",) and finding.values["ranks"] == list(range(8))
    assert str(finding) == (
        "ranks 0, 1, 2, 3, 4, 5, 6 and 7 may run on CPU 0 alone, of 64 CPUs; expected a CPU for each of them"
    )
    assert "Start the ranks of w1 without the binding" in page(NAME, finding)


def test_some_ranks_on_fewer_cpus_than_they_are() -> None:
    run = ran(8, 1)
    cpus = {rank: frozenset({rank}) for rank in range(5)} | dict.fromkeys((5, 6, 7), frozenset({8, 9}))
    (finding,) = findings_of(NAME, run, bound(cpus))
    assert finding.values["ranks"] == [5, 6, 7] and finding.values["cpus"] == [8, 9]


def test_a_set_within_another_is_one_finding_and_two_apart_are_two() -> None:
    run = ran(6, 1)
    within = {0: frozenset({0}), 1: frozenset({0}), 2: frozenset({0, 1}), **dict.fromkeys((3, 4, 5), HOST)}
    (finding,) = findings_of(NAME, run, bound(within))
    assert finding.values["ranks"] == [0, 1, 2]
    apart = {rank: frozenset({rank // 3}) for rank in range(6)}
    assert [finding.values["ranks"] for finding in findings_of(NAME, run, bound(apart))] == [[0, 1, 2], [3, 4, 5]]


def test_what_the_control_group_permits_no_more_of_is_no_binding() -> None:
    run = ran(4, 1)
    two = frozenset({0, 1})
    assert not findings_of(NAME, run, bound(dict.fromkeys(range(4), two), permitted=two))
    assert not findings_of(NAME, run, bound(dict.fromkeys(range(4), frozenset({0})), permitted=two))


def test_as_many_cpus_as_ranks_are_enough_and_all_on_one_of_them_is_a_binding() -> None:
    run, two = ran(2, 1), frozenset({0, 1})
    assert not findings_of(NAME, run, bound(dict.fromkeys(range(2), two), permitted=two))
    (finding,) = findings_of(NAME, run, bound(dict.fromkeys(range(2), frozenset({1})), permitted=two))
    assert str(finding) == "ranks 0 and 1 may run on CPU 1 alone, of 2 CPUs; expected a CPU for each of them"


def test_a_rank_that_could_not_be_read_is_unknown() -> None:
    run = ran(2, 1)
    cpus = {0: CpuBinding(frozenset({0}), HOST)}
    outcome = run_check(NAME, run, {"w1": SmokeBinding(by_rank=cpus, unread={"rank 1": "it reported nothing"})})
    assert not outcome.findings and "rank 1" in outcome.unknown["w1"].text
