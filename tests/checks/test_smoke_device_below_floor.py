from __future__ import annotations

from tests.checks.smoke import device_events, devices, findings_of, ran, run_check

NAME = "smoke_device_below_floor"
H100 = "NVIDIA H100 80GB HBM3"


def test_a_gib_in_half_a_millisecond_is_enough_for_an_h100() -> None:
    run = ran(4, 2, devices=True)
    quick = {(rank, "memory"): 0.2 for rank in range(4)}
    assert run_check(NAME, run, devices(run, events=device_events(run, H100, quick))).complete
    assert not findings_of(NAME, run, devices(run, events=device_events(run, H100, quick)))


def test_a_whole_fleet_below_its_vendors_limit() -> None:
    run = ran(4, 2, devices=True)
    first, second = findings_of(NAME, run, devices(run, events=device_events(run, H100)))
    assert (first.hosts, second.hosts) == (("w1",), ("w2",))
    assert str(first) == (
        "ranks 0 and 1: the memory of NVIDIA H100 80GB HBM3 moves 529 GB/s; expected at least 1.91 TB/s"
    )


def test_a_model_without_a_limit_or_a_part_of_a_gpu_is_skipped() -> None:
    run = ran(4, 2, devices=True)
    for model in ("Ascend910B3", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "CPU x"):
        assert run_check(NAME, run, devices(run, events=device_events(run, model))).skipped
