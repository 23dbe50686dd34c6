"""The times of the device test, compared among devices of one model and with what its vendor states. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from statistics import median
from typing import Literal

from doctor.analysis.outliers.peers import MIN_TIMES, SLOW, Straggler, by_attempt, find_confirmed_stragglers
from doctor.analysis.values.splits import majority_split
from doctor.engine.check import Skip
from doctor.engine.fact import Unreadable
from doctor.engine.quantities import number_text
from doctor.engine.smoke_summary import DeviceRate
from doctor.engine.texts import filled
from doctor.engine.toml_compat import read_table
from doctor.facts.smoke.further_stages import DeviceTimes, SmokeDevices

PRODUCT = "product "
"""Tests of products begin with it."""
ON_CPU = "CPU"
"""The model of a CPU begins with it."""
SHARED_ON_CPU = "device to device"
"""On CPUs this goes through the host's own memory, and says nothing of a device."""

COPY_ON_CPU = 1.5
"""Times the peers' time from which on a CPU copies slowly: what shares its caches and memory is often no fault."""

Work = tuple[str, str]
"""Test and model."""


def comparable_times(facts: Iterable[SmokeDevices]) -> dict[Work, dict[int, DeviceTimes]]:
    """By test and model: the first times of each rank that has enough of them."""
    return {
        work: first
        for work, ranks in all_times(facts).items()
        if (first := {rank: attempts[0] for rank, attempts in ranks.items() if 0 in attempts})
    }


def all_times(facts: Iterable[SmokeDevices]) -> dict[Work, dict[int, dict[int, DeviceTimes]]]:
    """By test and model, of each rank: what it measured, by number of the attempt, wherever it has enough times."""
    work: dict[Work, dict[int, dict[int, DeviceTimes]]] = {}
    for fact in facts:
        for event in fact.times:
            through_memory = event.test == SHARED_ON_CPU and event.model.startswith(ON_CPU)
            if len(event.seconds) >= MIN_TIMES and min(event.seconds) > 0 and not through_memory:
                work.setdefault((event.test, event.model), {}).setdefault(event.rank, {})[event.attempt] = event
    return work


def slow_devices(facts: Mapping[str, SmokeDevices]) -> dict[int, dict[str, Straggler]]:
    """By rank: the tests in which its device is slower than others of its model, the slowest test first.

    Raises: Skip where no two ranks have a device of one model; Unreadable where there are too few times.
    """
    work = all_times(facts.values())
    if not work and any(fact.times for fact in facts.values()):
        raise Unreadable(filled("no rank measured any work {0} times", MIN_TIMES))
    if all(len(ranks) < 2 for ranks in work.values()):
        raise Skip("no two ranks have a device of the same model")
    slow: dict[int, dict[str, Straggler]] = {}
    for (test, model), ranks in work.items():
        copies = model.startswith(ON_CPU) and not test.startswith(PRODUCT)
        # Programs that had its CPU for longer than the work had its caches and memory, too.
        times = {
            rank: {
                number: event.seconds
                for number, event in attempts.items()
                if not (copies and event.waited > sum(event.seconds))
            }
            for rank, attempts in ranks.items()
        }
        for rank, straggler in find_confirmed_stragglers(by_attempt(times), COPY_ON_CPU if copies else SLOW).items():
            slow.setdefault(rank, {})[test] = straggler
    return {rank: dict(sorted(tests.items(), key=lambda item: -item[1].ratio)) for rank, tests in sorted(slow.items())}


def rate(event: DeviceTimes) -> float:
    """What the device usually does in a second: operations, or bytes."""
    return event.amount / median(event.seconds)


def device_speeds(facts: Mapping[str, SmokeDevices], world: int) -> tuple[DeviceRate, ...]:
    """Each test in figures, in the order of the tests. ``world``: number of ranks; others are left out."""
    speeds = []
    for (test, model), ranks in comparable_times(facts.values()).items():
        rates = {rank: rate(event) for rank, event in ranks.items() if 0 <= rank < world}
        if not rates:
            continue
        slowest = min(rates, key=lambda rank: (rates[rank], rank))
        unit = "FLOPS" if test.startswith(PRODUCT) else "B/s"
        speeds.append(
            DeviceRate(test, model, unit, median(rates.values()), rates[slowest], slowest, len(rates))  # type: ignore[arg-type]
        )
    return tuple(speeds)


def amounts(facts: Mapping[str, SmokeDevices]) -> dict[str, float]:
    """By test: what one piece of its work amounts to, which is the same on all devices of one kind."""
    return {test: next(iter(ranks.values())).amount for (test, _), ranks in comparable_times(facts.values()).items()}


def describe_rate(amount: float, seconds: float, test: str) -> str:
    """Such as ``312 TFLOPS``, ``129 TOPS`` of integers, ``1.9 TB/s``."""
    value = amount / seconds
    rate = "OPS" if "int8" in test else "FLOPS" if test.startswith(PRODUCT) else "B/s"
    unit, prefix = next(((u, p) for u, p in ((1e12, "T"), (1e9, "G"), (1e6, "M")) if value >= u), (1.0, ""))
    return f"{number_text(value / unit)} {prefix}{rate}"


def other_fingerprints(facts: Mapping[str, SmokeDevices], torch_by_rank: Mapping[int, str]) -> dict[str, list[int]]:
    """By test: ranks whose product of real numbers is not the one that most have with this model and this torch.

    Of three ranks and more, if more than half agree; otherwise it is not known which ranks are wrong.
    """
    groups: dict[tuple[str, str, str], dict[int, int]] = {}
    for fact in facts.values():
        for event in fact.times:
            if event.fingerprint is not None:
                key = (event.test, event.model, torch_by_rank.get(event.rank, ""))
                groups.setdefault(key, {})[event.rank] = event.fingerprint
    others: dict[str, list[int]] = {}
    for (test, _, _), prints in groups.items():
        parts = majority_split(prints)
        if parts and parts.majority:
            others.setdefault(test, []).extend(parts.differing)
    return {test: sorted(ranks) for test, ranks in others.items()}


@cache
def _floors() -> Mapping[str, Mapping[str, int]]:
    return read_table(Path(__file__).with_name("device_floors.toml"), dict[str, dict[str, int]])


def floor_of(work: Literal["memory", "all_reduce"], model: str) -> float | None:
    """Bytes a second of the device's memory, or of a large sum among eight on one host; None where none is stated.

    >>> floor_of("memory", "NVIDIA H100 80GB HBM3")
    1905000000000.0
    """
    floor = _floors()[work].get(model)
    return floor * 1e6 if floor else None
