from __future__ import annotations

from doctor.facts.smoke.first_stages import RankDevice, RankJoined
from tests.checks.smoke import alter, findings_of, page, ran, run_check, start_events, started

NAME = "smoke_device_wrong"


def test_each_rank_on_its_own_device_is_fine() -> None:
    run = ran(8, 2, devices=True)
    assert run_check(NAME, run, started(run)).complete
    assert not findings_of(NAME, run, started(run))


def test_a_rank_on_another_device_than_planned() -> None:
    run = ran(8, 2, devices=True)
    events = alter(start_events(run), 6, RankJoined, device=RankDevice(0, "NVIDIA H100", "GPU-w2-0"))
    (finding,) = findings_of(NAME, run, started(run, events))
    assert finding.hosts == ("w2",)
    assert str(finding) == "rank 6 has GPU 0; expected GPU 2"
    assert "set_device" in page(NAME, finding)


def test_two_ranks_on_one_device_under_two_numbers() -> None:
    run = ran(8, 2, devices=True)
    events = alter(start_events(run), 3, RankJoined, device=RankDevice(3, "NVIDIA H100", "GPU-w1-1"))
    (finding,) = findings_of(NAME, run, started(run, events))
    assert finding.hosts == ("w1",)
    assert str(finding) == "ranks 1 and 3 are all on GPU GPU-w1-1; expected one rank on each"


def test_the_same_number_on_two_hosts_is_two_devices() -> None:
    run = ran(2, 2, devices=True)
    events = alter(start_events(run), (0, 1), RankJoined, device=RankDevice(0, "Ascend910B3", 0))
    assert not findings_of(NAME, run, started(run, events))


def test_devices_that_the_plan_shares_may_be_shared() -> None:
    run = ran(2, 1, places=ran(2, 1).plan.places, backend="nccl")
    shared = [RankJoined(rank, 0.1, "w1", 2, RankDevice(-1, "H200", "GPU-1")) for rank in range(2)]
    assert not findings_of(NAME, run, started(run, shared))


def test_cpus_are_nobodys_devices() -> None:
    run = ran(4, 2)
    assert run_check(NAME, run, started(run)).skipped


def test_devices_that_nobody_used_are_not_known_to_be_right() -> None:
    """The job that needs them ends: never green."""
    run = ran(4, 2, unused_devices={"w1": "GPU", "w2": "GPU"})
    (reason,) = run_check(NAME, run, started(run)).unknown.values()
    assert "the environment hides every GPU of w[1-2]; with `--backend gloo` CPUs are meant" in str(reason)
