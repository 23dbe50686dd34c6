from __future__ import annotations

import pytest

from doctor.facts.smoke.further_stages import DeviceTimes
from tests.checks.smoke import alter, device_events, devices, findings_of, page, ran, run_check

NAME = "smoke_device_slow"


def test_devices_that_differ_by_two_percent_are_alike() -> None:
    run = ran(16, 2, devices=True)
    assert run_check(NAME, run, devices(run)).complete
    assert not findings_of(NAME, run, devices(run))


def test_a_slow_device_is_named_with_the_work_that_is_slow() -> None:
    run = ran(16, 2, devices=True)
    events = device_events(run, slow={(11, "product bfloat16"): 1.4, (11, "memory"): 1.2})
    (finding,) = findings_of(NAME, run, devices(run, events=events))
    assert finding.hosts == ("w2",)
    assert str(finding).startswith(
        "rank 11 (GPU 3): slower than the median device of the same model: product bfloat16 1.40 times (387 TFLOPS "
        "against 542 TFLOPS) and memory 1.20 times (441 GB/s against 529 GB/s) (confidence 99.99 %)"
    )
    assert "On w2, " in page(NAME, finding)


def test_a_device_that_was_slow_in_one_of_its_measurements_is_not_named() -> None:
    run = ran(16, 2, devices=True)
    slow = device_events(run, slow={(11, "memory"): 2.0}, attempts=4)
    assert findings_of(NAME, run, devices(run, events=slow))
    assert not findings_of(NAME, run, devices(run, events=[event for event in slow if not event.attempt]))  # type: ignore[attr-defined]
    alike = device_events(run, attempts=4)
    mixed = [pair[pair[0].attempt == 2] for pair in zip(slow, alike, strict=True)]  # type: ignore[attr-defined]
    assert not findings_of(NAME, run, devices(run, events=mixed))


def test_one_finding_for_each_host() -> None:
    run = ran(16, 2, devices=True)
    events = device_events(run, slow={(1, "host to device"): 2.0, (2, "host to device"): 2.1, (9, "memory"): 1.5})
    first, second = findings_of(NAME, run, devices(run, events=events))
    assert (first.hosts, first.values["ranks"]) == (("w1",), [1, 2])
    assert (second.hosts, second.values["ranks"]) == (("w2",), [9])


def test_only_devices_of_one_model_are_compared() -> None:
    run = ran(4, 2, devices=True)
    events = alter(device_events(run, slow={(3, "memory"): 3.0}), 3, DeviceTimes, model="Ascend910B4")
    assert not findings_of(NAME, run, devices(run, events=events))
    lone = ran(1, 1, devices=True)
    assert run_check(NAME, lone, devices(lone)).skipped


@pytest.mark.parametrize(("times", "slow"), [(1.3, False), (1.8, True)])
def test_copies_of_cpus_have_a_wider_margin_than_products(times: float, slow: bool) -> None:
    run = ran(4, 4)
    events = device_events(run, "CPU Kunpeng-920", slow={(2, "memory"): times, (1, "product bfloat16"): 1.3})
    hosts = {finding.hosts[0] for finding in findings_of(NAME, run, devices(run, events=events))}
    assert hosts == ({"w2", "w3"} if slow else {"w2"})


def test_copies_of_a_cpu_that_others_had_for_longer_are_not_judged() -> None:
    run = ran(4, 4)
    events = device_events(run, "CPU Kunpeng-920", slow={(2, "memory"): 6.0, (1, "product bfloat16"): 1.3})
    events = alter(alter(events, 2, DeviceTimes, waited=9.0), 1, DeviceTimes, waited=9.0)
    assert {finding.hosts[0] for finding in findings_of(NAME, run, devices(run, events=events))} == {"w2"}


def test_exchanges_between_ranks_on_cpus_are_no_devices_speed() -> None:
    run = ran(4, 2)
    exchange = [DeviceTimes(rank, "device to device", "CPU x", 1e6, (0.1 * (rank + 1),) * 20) for rank in range(4)]
    assert not findings_of(NAME, run, devices(run, *exchange))


def test_too_few_times_are_unknown() -> None:
    run = ran(4, 2, devices=True)
    events = [DeviceTimes(rank, "memory", "Ascend910B3", 1e9, (0.002,) * 3) for rank in range(4)]
    assert run_check(NAME, run, devices(run, events=events)).unknown
