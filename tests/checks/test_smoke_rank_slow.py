from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest

from doctor.facts.smoke.first_stages import RankDevice, RankJoined
from doctor.facts.smoke.further_stages import SmokePace
from doctor.smoke.model import QuotaUse
from tests.checks.smoke import alter, findings_of, pace, page, ran, run_check, start_events, started

NAME = "smoke_rank_slow"


def times(ratio: float = 1.0, seed: int = 0, count: int = 60) -> Sequence[float]:
    noise = random.Random(seed)
    return tuple(0.002 * ratio * noise.lognormvariate(0, 0.03) for _ in range(count))


def fleet(world: int, **ratios: float) -> dict[int, Sequence[float]]:
    return {rank: times(ratios.get(f"r{rank}", 1.0), rank) for rank in range(world)}


def test_ranks_that_are_alike_are_fine() -> None:
    run = ran(4, 2)
    assert run_check(NAME, run, pace(run, fleet(4))).complete
    assert not findings_of(NAME, run, pace(run, fleet(4)))


def test_a_slow_rank_is_named_with_how_slow_and_how_sure() -> None:
    run = ran(4, 2, devices=True)
    (finding,) = findings_of(NAME, run, pace(run, fleet(4, r2=1.3)), started(run))
    assert finding.hosts == ("w2",)
    assert finding.values["ranks"] == [2]
    assert 1.27 < finding.values["ratio"] < 1.33
    assert str(finding).startswith("rank 2 (GPU 0) took 1.")
    assert "(confidence 99.99 %)" in str(finding)
    assert "nvidia-smi -q" in page(NAME, finding)


@pytest.mark.parametrize(("waited", "ratio", "named"), [(0.8, 1.3, []), (0.8, 1.7, [2]), (0.3, 1.3, [2])])
def test_where_all_wait_for_cpus_other_programs_have_the_caches(waited: float, ratio: float, named: list[int]) -> None:
    run = msgspec.structs.replace(ran(4, 2), cpu_quotas={rank: QuotaUse(waited=waited) for rank in range(4)})
    found = findings_of(NAME, run, pace(run, fleet(4, r2=ratio)), started(run))
    assert [finding.values["ranks"] for finding in found] == [named] * bool(named)


def test_ranks_of_one_host_are_one_finding() -> None:
    run = ran(8, 4)
    (finding,) = findings_of(NAME, run, pace(run, fleet(8, r2=1.2, r3=1.3)))
    assert finding.hosts == ("w2",)
    assert finding.values["ranks"] == [2, 3] and finding.values["whole"]
    assert 1.27 < finding.values["ratio"] < 1.33


def test_other_devices_may_be_slower() -> None:
    run = ran(4, 2, devices=True)
    events = alter(start_events(run), (2, 3), RankJoined, device=RankDevice(0, "NVIDIA A30", "GPU-x"))
    slower = pace(run, fleet(4, r2=1.6, r3=1.6))
    assert not findings_of(NAME, run, slower, started(run, events))
    assert findings_of(NAME, run, slower, started(run))[0].hosts == ("w2",)


def test_a_rank_that_runs_at_full_speed_now_and_then_is_disturbed_not_slow() -> None:
    run = ran(4, 2)
    disturbed = fleet(4)
    disturbed[1] = tuple(time * (1.4 if number % 4 else 1) for number, time in enumerate(disturbed[1]))
    assert not findings_of(NAME, run, pace(run, disturbed))


def test_one_rank_alone_has_no_peers() -> None:
    run = ran(1, 1)
    assert run_check(NAME, run, pace(run, fleet(1))).skipped


def test_too_few_times_are_unknown() -> None:
    run = ran(4, 2)
    outcome = run_check(NAME, run, pace(run, {rank: times(count=5) for rank in range(4)}))
    assert outcome.unknown and not outcome.findings


def test_a_host_that_told_nothing_does_not_stand_for_a_sound_one() -> None:
    run = ran(4, 2)
    facts = pace(run, fleet(4, r1=1.4))
    silent = msgspec.structs.replace(facts["w2"], unread={"rank 3": "it reported nothing in the pace stage"})
    outcome = run_check(NAME, run, {**facts, "w2": silent})
    assert outcome.findings and "w2" in outcome.unknown


def test_a_rank_that_was_measured_once_is_not_named() -> None:
    run = ran(4, 2)
    assert not findings_of(NAME, run, pace(run, fleet(4, r2=3.0), attempts=1))


@pytest.mark.parametrize("quick", range(4))
def test_a_rank_that_is_as_quick_as_the_others_in_one_of_the_measurements_is_not_slow(quick: int) -> None:
    run = ran(4, 2)
    slow, alike = (pace(run, fleet(4, r2=ratio), attempts=4) for ratio in (2.0, 1.0))
    facts = {
        host: SmokePace(
            paced=tuple(
                event
                for event in (*slow[host].paced, *alike[host].paced)  # type: ignore[attr-defined]
                if (event in alike[host].paced) == (event.attempt == quick)  # type: ignore[attr-defined]
            )
        )
        for host in slow
    }
    assert not findings_of(NAME, run, facts)
    assert findings_of(NAME, run, slow)


def test_what_slows_all_ranks_in_one_of_the_measurements_hides_no_slow_one() -> None:
    run = ran(8, 2)
    facts = {
        host: msgspec.structs.replace(
            fact,
            paced=tuple(
                msgspec.structs.replace(event, compute=tuple(time * (1 + event.attempt) for time in event.compute))
                for event in fact.paced  # type: ignore[attr-defined]
            ),
        )
        for host, fact in pace(run, fleet(8, r5=1.15), attempts=4).items()
    }
    (finding,) = findings_of(NAME, run, facts)
    assert finding.values["ranks"] == [5] and 1.12 < finding.values["ratio"] < 1.18


def test_the_times_of_a_training_are_of_many_moments_and_judged_as_they_are() -> None:
    run = msgspec.structs.replace(ran(4, 2), watched=True)
    assert findings_of(NAME, run, pace(run, fleet(4, r2=1.3), attempts=1))[0].values["ranks"] == [2]


def test_of_watched_ranks_on_accelerators_a_healthy_verdict_is_not_known() -> None:
    """The host waits for a device's work and for the network in one: a device that is slow looks like the others."""
    run = msgspec.structs.replace(ran(4, 2, devices=True), watched=True)
    outcome = run_check(NAME, run, pace(run, fleet(4), attempts=1))
    assert outcome.status.value == "skipped"
    assert findings_of(NAME, run, pace(run, fleet(4, r2=1.3), attempts=1))[0].values["ranks"] == [2]


def quotas(world: int, **used_up: int) -> dict[int, QuotaUse]:
    """Of each rank 40 periods; ``r3=20``: in 20 of them rank 3 used its quota up."""
    return {rank: QuotaUse(40, used := used_up.get(f"r{rank}", 0), used * 0.08) for rank in range(world)}


def test_a_rank_that_a_quota_holds_back_is_named_though_its_work_is_as_quick() -> None:
    run = ran(4, 2, cpu_quotas=quotas(4, r2=38))
    (finding,) = findings_of(NAME, run, pace(run, fleet(4)))
    assert finding.hosts == ("w2",)
    assert str(finding) == (
        "rank 2: the CPU quota of the control group was used up in 95% of its periods, a delay of 3.04 s; "
        "expected no more than of the median rank, 0%"
    )
    assert "cpu.max" in page(NAME, finding)


def losing(world: int, **lost: float) -> dict[int, QuotaUse]:
    """Quotas that were used up in 15 % of the periods; ``r2=0.6``: they took so much of the time of rank 2."""
    return {rank: QuotaUse(400, 62, 3.0, lost.get(f"r{rank}", 0.0)) for rank in range(world)}


@pytest.mark.parametrize(
    ("used", "named"),
    [
        (losing(6, r2=0.45, r3=0.5), [2, 3]),  # a tenth of a CPU for a host whose ranks mostly wait
        (losing(6, r2=0.25), []),
        (losing(6, r0=0.4, r1=0.4, r2=0.6, r3=0.4, r4=0.4, r5=0.4), []),  # less than twice as much as the others
        (losing(4, r0=0.5, r1=0.5, r2=0.5), []),
    ],
)
def test_a_quota_that_takes_much_of_a_ranks_time_in_few_periods(used: dict[int, QuotaUse], named: list[int]) -> None:
    run = ran(len(used), 2, cpu_quotas=used)
    findings = findings_of(NAME, run, pace(run, fleet(len(used))))
    assert [rank for finding in findings for rank in finding.values["ranks"]] == named


def test_a_rank_that_is_slow_and_held_back_is_one_finding() -> None:
    run = ran(4, 2, cpu_quotas=quotas(4, r2=38))
    assert len(findings_of(NAME, run, pace(run, fleet(4, r2=1.4)))) == 1


@pytest.mark.parametrize(
    "used",
    [
        quotas(4),
        quotas(4, r1=15),  # now and then
        quotas(4, r0=40, r1=40, r2=40, r3=40),  # all alike: no rank is slower than the others
        quotas(4, r0=22, r1=38, r2=22, r3=22),  # less than twice as often
        quotas(4, r0=40, r1=40, r2=40),  # never more than half of the ranks
        {rank: QuotaUse(5, 5 * (rank == 2), 0.4) for rank in range(4)},  # for half a second
        {2: QuotaUse(40, 40, 3.0)},  # nothing is known of the others
        {},
    ],
)
def test_quotas_that_make_no_rank_slow(used: dict[int, QuotaUse]) -> None:
    run = ran(4, 2, cpu_quotas=used)
    assert not findings_of(NAME, run, pace(run, fleet(4)))


def test_ranks_of_a_host_that_its_quota_holds_back_are_one_finding() -> None:
    run = ran(8, 4, cpu_quotas=quotas(8, r4=30, r5=36))
    (finding,) = findings_of(NAME, run, pace(run, fleet(8)))
    assert finding.hosts == ("w3",) and finding.values["ranks"] == [4, 5] and finding.values["observed"] == "90%"
