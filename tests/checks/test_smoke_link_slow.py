from __future__ import annotations

from tests.checks.smoke import findings_of, page, pairs, ran, run_check
from tests.checks.test_smoke_host_slow import collective_run

NAME = "smoke_link_slow"


def test_pairs_that_are_alike_are_fine() -> None:
    run = ran(6, 6)
    assert run_check(NAME, run, pairs(run, collective_run(range(6)))).complete
    assert not findings_of(NAME, run, pairs(run, collective_run(range(6))))


def test_a_pair_that_is_slow_while_both_are_quick_with_others() -> None:
    run = ran(6, 6)
    (finding,) = findings_of(NAME, run, pairs(run, collective_run(range(6), links={(1, 4): 3.0})))
    assert finding.hosts == ("w2", "w5")
    assert finding.values["ranks"] == [1, 4]
    assert 2.7 < finding.values["ratio"] < 3.3
    assert "w2 (rank 1) and w5 (rank 4) take" in str(finding)
    assert "tracepath w5` from w2" in " ".join(page(NAME, finding).split())


def test_what_was_not_measured_again_alone_is_not_called_slow() -> None:
    run = ran(6, 6)
    assert not findings_of(NAME, run, pairs(run, collective_run(range(6), links={(1, 4): 3.0}, alone=False)))


def test_pairs_of_a_slow_host_are_no_slow_links() -> None:
    run = ran(6, 6)
    facts = pairs(run, collective_run(range(6), {3: 3.0}))
    assert not findings_of(NAME, run, facts)
    assert findings_of("smoke_host_slow", run, facts)


def test_a_slow_host_and_a_bad_link_elsewhere() -> None:
    run = ran(8, 8)
    facts = pairs(run, collective_run(range(8), {3: 2.0}, {(1, 6): 3.0}))
    assert [finding.hosts for finding in findings_of(NAME, run, facts)] == [("w2", "w7")]
    assert [finding.hosts for finding in findings_of("smoke_host_slow", run, facts)] == [("w4",)]


def test_one_pair_has_nothing_to_be_compared_with() -> None:
    run = ran(2, 2)
    assert run_check(NAME, run, pairs(run, collective_run(range(2)))).skipped
