from __future__ import annotations

import msgspec

from tests.checks.smoke import findings_of, pace, page, ran, run_check
from tests.checks.test_smoke_rank_slow import fleet

NAME = "smoke_input_slow"


def test_ranks_that_are_alike_are_fine() -> None:
    run = ran(4, 2)
    assert run_check(NAME, run, pace(run, fleet(4), fleet(4))).complete
    assert not findings_of(NAME, run, pace(run, fleet(4), fleet(4)))


def test_a_rank_whose_input_is_slow() -> None:
    run = ran(4, 2)
    (finding,) = findings_of(NAME, run, pace(run, fleet(4), fleet(4, r3=1.3)))
    assert finding.hosts == ("w2",) and finding.values["ranks"] == [3]
    assert str(finding).startswith("rank 3 took 1.")
    assert "nfsiostat" in page(NAME, finding)


def test_a_slow_cpu_is_not_the_inputs_fault() -> None:
    run = ran(4, 2)
    both = pace(run, fleet(4, r3=1.3), fleet(4, r3=1.3))
    assert not findings_of(NAME, run, both)
    assert findings_of("smoke_rank_slow", run, both)


def test_an_input_that_is_much_slower_than_its_cpu_is_told_as_well() -> None:
    run = ran(4, 2)
    both = pace(run, fleet(4, r3=1.3), fleet(4, r3=1.8))
    assert findings_of(NAME, run, both) and findings_of("smoke_rank_slow", run, both)


def test_without_times_of_computing_the_input_is_judged_alone() -> None:
    run = ran(4, 2)
    assert findings_of(NAME, run, pace(run, {}, fleet(4, r0=1.4)))[0].hosts == ("w1",)


def test_where_no_watched_rank_waits_for_input_nothing_is_known_of_it() -> None:
    run = msgspec.structs.replace(ran(4, 2), watched=True)
    nothing = dict.fromkeys(range(4), (0.0,) * 60)
    assert run_check(NAME, run, pace(run, fleet(4), nothing, attempts=1)).status.value == "skipped"
    assert run_check(NAME, run, pace(run, fleet(4), fleet(4), attempts=1)).status.value == "passed"
