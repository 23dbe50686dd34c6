from __future__ import annotations

import pytest

from doctor.facts.smoke.collectives import CollectiveTimes
from doctor.smoke.model import SmokeRun
from tests.checks.smoke import (
    BY_HOST,
    collectives,
    device_events,
    devices,
    findings_of,
    ran,
    run_check,
    start_events,
    started,
)

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


def summed(seconds: float, ranks: int = 8, hosts: int = 1, size: int = 1 << 30) -> tuple[SmokeRun, BY_HOST]:
    """Eight devices of one host that add up so many bytes in this time."""
    run = ran(ranks, hosts, devices=True)
    times = [CollectiveTimes(rank, 0, "all_reduce", size, (seconds,) * 3) for rank in range(ranks)]
    return run, collectives(run, events=times)


def test_a_sum_over_pcie_in_place_of_nvlink() -> None:
    run, sums = summed(0.047)
    [finding] = findings_of(NAME, run, sums, started(run))
    assert finding.hosts == ("w1",)
    assert str(finding) == (
        "ranks 0, 1, 2, 3, 4, 5, 6 and 7: a sum of 1074 MB among the NVIDIA H100 80GB HBM3 runs at 40 GB/s of bus "
        "bandwidth; expected at least 345 GB/s"
    )


def test_a_sum_over_nvlink_is_quick_enough() -> None:
    run, sums = summed(0.0043)
    assert run_check(NAME, run, sums, started(run)).complete and not findings_of(NAME, run, sums, started(run))


@pytest.mark.parametrize(
    ("model", "ranks", "hosts", "size"),
    [
        ("Ascend910B3", 8, 1, 1 << 30),
        ("NVIDIA H100 PCIe", 8, 1, 1 << 30),
        ("NVIDIA H100 80GB HBM3", 4, 1, 1 << 30),
        ("NVIDIA H100 80GB HBM3", 8, 2, 1 << 30),
        ("NVIDIA H100 80GB HBM3", 8, 1, 1 << 26),
    ],
)
def test_of_other_products_sizes_and_groups_nothing_is_expected(model: str, ranks: int, hosts: int, size: int) -> None:
    run, sums = summed(10.0, ranks, hosts, size)
    assert run_check(NAME, run, sums, started(run, start_events(run, model))).skipped
