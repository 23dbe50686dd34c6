from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from doctor.facts.smoke.further_stages import PairTimes
from tests.checks.smoke import findings_of, page, pairs, ran, run_check

NAME = "smoke_host_slow"


def collective_run(
    ends: Iterable[int],
    slow: Mapping[int, float] | None = None,
    links: Mapping[tuple[int, int], float] | None = None,
    alone: bool = True,
) -> list[PairTimes]:
    """Everybody with everybody; ``slow``: times, of an end; ``links``: of a pair. Slow ones again, where ``alone``."""
    noise, events, ranks = random.Random(1), [], sorted(ends)
    factors = slow or {}
    for number, (low, high) in enumerate((a, b) for a in ranks for b in ranks if a < b):
        times = max(factors.get(low, 1.0), factors.get(high, 1.0)) * (links or {}).get((low, high), 1.0)
        for again in (False, True) if alone and times > 1 else (False,):
            seconds = tuple(0.002 * times * noise.lognormvariate(0, 0.03) for _ in range(6 if again else 3))
            events += [
                PairTimes(low, high, number, 1 << 20, seconds, again),
                PairTimes(high, low, number, 1 << 20, seconds, again),
            ]
    return events


def test_hosts_that_are_alike_are_fine() -> None:
    run = ran(6, 6)
    assert run_check(NAME, run, pairs(run, collective_run(range(6)))).complete
    assert not findings_of(NAME, run, pairs(run, collective_run(range(6))))


def test_a_host_that_is_slow_with_everybody() -> None:
    run = ran(12, 6)  # the first rank of each host speaks for it
    (finding,) = findings_of(NAME, run, pairs(run, collective_run(range(0, 12, 2), {4: 3.0})))
    assert finding.hosts == ("w3",)
    assert 2.8 < finding.values["ratio"] < 3.2
    assert finding.values["slow"] == finding.values["tried"] == 5
    assert str(finding).startswith("exchanges of 1.05 MB with w3 (rank 4) take ")
    assert "ip -s link" in page(NAME, finding)


def test_a_host_that_was_not_measured_again_is_not_named() -> None:
    """The run ended before: what slowed it may have been over a moment later."""
    run = ran(12, 6)
    assert not findings_of(NAME, run, pairs(run, collective_run(range(0, 12, 2), {4: 3.0}, alone=False)))


def test_two_slow_hosts_of_six() -> None:
    run = ran(6, 6)
    both = findings_of(NAME, run, pairs(run, collective_run(range(6), {1: 2.0, 4: 3.0})))
    assert [finding.hosts for finding in both] == [("w5",), ("w2",)]


def test_one_bad_link_makes_no_host_slow() -> None:
    run = ran(6, 6)
    facts = pairs(run, collective_run(range(6), links={(1, 4): 4.0}))
    assert not findings_of(NAME, run, facts)
    assert findings_of("smoke_link_slow", run, facts)


def test_a_slow_rank_of_the_only_host() -> None:
    run = ran(4, 1)
    (finding,) = findings_of(NAME, run, pairs(run, collective_run(range(4), {2: 1.6})))
    assert finding.hosts == ("w1",) and finding.values["rank"] == 2
    assert "with rank 2 take" in str(finding)


def test_two_hosts_do_not_tell_whose_fault_it_is() -> None:
    run = ran(2, 2)
    (why,) = run_check(NAME, run, pairs(run, collective_run(range(2), {1: 5.0}))).skipped.values()
    assert "a third host" in why
