"""The exchanges of pairs of ranks, as measurements of paths without a direction: slow ends and links. Pure.

With two ends there is one pair, and nothing to measure it against.

What a link of known speed carries at least is a floor, far below what it should carry.

| link | backend | floor | source |
|---|---|---|---|
| Ethernet, speed of sysfs (Mb/s) | gloo: TCP | 25 % of the line rate, at most 100 MB/s | below |
| of a speed that is not known | gloo: TCP | 1.25 MB/s | below |
| InfiniBand, RoCE, HCCS, PCIe | NCCL, HCCL | none | below |

Ethernet: the kernel's `speed` is the line rate (https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-net);
TCP carries 94 % of it at an MTU of 1500 (1448 of 1538 bytes on the wire: RFC 894, RFC 9293, IEEE 802.3). A quarter of
that is a link which is shared, or whose hosts are busy. One connection of gloo is bound by a CPU, not by a fast line:
so no more than 100 MB/s is expected of any, which a line of 1 Gb/s nearly carries: a faster one below it does not do
what it is there for. Where the speed is not known, as of virtual machines and containers: the line rate of the first
Ethernet over twisted pair (IEEE 802.3i, 10 Mb/s), slower than which nothing is that hosts are meant to train over; on
busy hosts a message waits for CPUs, too, for some tenths of a second. The others: the ways that NCCL and HCCL take are
not known here, and messages of the size of the pairs stage tell latency, not rate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from statistics import fmean, median, pstdev

from doctor.analysis.outliers.pairs import MIN_NOISE, Path, PathJudge, PathOutlier, PathTime
from doctor.engine.grouping import lists_by_key
from doctor.facts.smoke.further_stages import PairTimes

MIN_SECONDS, MAX_SECONDS = 1e-9, 1e6
"""Seconds that an exchange can take; other values are none."""
DISTURBED = 0.001
"""The share of measurements in which a disturbance slows all exchanges."""
STEADY = 0.8
"""Of the measurements of a slow end, the share that shows it. What keeps a host busy most of the time leaves more."""


def compare_pairs(events: Iterable[PairTimes]) -> tuple[PathOutlier, ...]:
    """The slow ends (kind ``host``), then the slow links, among pairs that are alike by construction."""
    logs_of = exchange_logs(events)
    times = [
        PathTime(key[0], quick_one(logs), min(logs), key[1], key[2], median(logs)) for key, logs in logs_of.items()
    ]
    first = [logs for key, logs in logs_of.items() if not key[1]]
    return PathJudge(times, directed=False, noise=_noise(first), disturbed=DISTURBED, steady=STEADY).outliers()[0]


def exchange_logs(events: Iterable[PairTimes]) -> dict[tuple[Path, int, bool, int], list[float]]:
    """Logarithms of the seconds of each measurement of a pair: its ends, number, whether a control, and which turn."""
    turns: Counter[tuple[int, int, int]] = Counter()
    measured: dict[tuple[Path, int, bool, int], list[tuple[float, ...]]] = {}
    for event in events:
        pair = (min(event.rank, event.peer), max(event.rank, event.peer))
        number = event.attempt + 1 if event.confirm or event.control else 0
        # A control may be measured several times in one confirmation; its two ends count alike.
        turn = turns[event.rank, event.peer, number]
        turns[event.rank, event.peer, number] += event.control
        measured.setdefault((pair, number, event.control, turn), []).append(event.seconds)
    return {key: logs for key, ends in measured.items() if (logs := usable_logs(ends))}


def _noise(first: Sequence[Sequence[float]]) -> tuple[float, int]:
    """What the lower quartile of a pair's exchanges varies by, and from how many repeats that is known."""
    if not first:
        return MIN_NOISE, 0
    counts = [len(logs) for logs in first]
    spread = 1.36 * fmean([pstdev(logs) for logs in first]) / math.sqrt(median(counts))
    # Of few pairs not even the noise is well known.
    return max(MIN_NOISE, spread) * (1 + 1 / len(counts)), sum(counts) - len(counts)


def usable_logs(ends: Sequence[Sequence[float]]) -> list[float]:
    """Logarithms of the seconds that each end of a pair measured; values that no exchange can take are left out.

    An exchange lasts until its later end is done: on a slow link the other one is done when its own message lies in a
    buffer of the kernel, which holds several.
    """
    later = [max(filter(is_possible, both), default=0.0) for both in zip_longest(*ends, fillvalue=0.0)]
    return [math.log(time) for time in warmed(later) if time]


def warmed(seconds: Sequence[float]) -> Sequence[float]:
    """Without the first exchange of several, which touches fresh memory and wakes the connection.

    >>> warmed([9.0, 1.0, 2.0]), warmed([9.0, 1.0])
    ([1.0, 2.0], [9.0, 1.0])
    """
    return seconds[1:] if len(seconds) > 2 else seconds


def is_possible(seconds: float) -> bool:
    """Whether an exchange can take so long; not NaN, which compares as False."""
    return MIN_SECONDS <= seconds <= MAX_SECONDS


def quick_one(numbers: Sequence[float]) -> float:
    """The lowest of ten numbers, the second of twenty: on a busy machine a disturbance is in most of them.

    Load only adds to a time, so that the quickest ones tell of the path, and the others of the machine.
    """
    return sorted(numbers)[(len(numbers) - 1) // 10]


def lower_quartile(numbers: Sequence[float]) -> float:
    """The lower quartile of numbers: a disturbance makes an exchange slower, never quicker."""
    return sorted(numbers)[(len(numbers) - 1) // 4]


LINE_SHARE = 0.25
TCP_FLOOR = 100e6
"""Bytes a second that suffice for one connection, on any line."""
ANY_LINE = 1.25e6
"""Bytes a second of any line."""
LEAST_BYTES = 1 << 20
"""Of a message: a smaller one tells latency."""


def expected_rate(backend: str, megabits: int) -> float:
    """Bytes a second that two hosts exchange at least, each way; 0 where nothing can be expected.

    ``megabits``: 0 where the speed of the line is not known.
    """
    if backend != "gloo":
        return 0.0
    return min(LINE_SHARE * megabits * 1e6 / 8, TCP_FLOOR) if megabits > 0 else ANY_LINE


def fastest_rate(exchanges: Iterable[PairTimes]) -> float:
    """Bytes a second, each way, of the quickest exchange of any pair, as its later end has it; 0 where none is large.

    >>> fastest_rate([PairTimes(0, 1, 0, 1 << 20, (2.0, 2.0)), PairTimes(1, 0, 0, 1 << 20, (0.01, 0.01))]) / 2**20
    0.5
    """
    by_size = lists_by_key((exchange.bytes, exchange) for exchange in exchanges if exchange.bytes >= LEAST_BYTES)
    rates = (size / math.exp(min(logs)) for size, events in by_size.items() for logs in exchange_logs(events).values())
    return max(rates, default=0.0)


def slowest_line(interfaces: Mapping[str, int], addresses: Mapping[str, Sequence[str]]) -> int:
    """Mb/s of the slowest interface of a host that has an address; 0 where that of any such is not known.

    ``interfaces``: Mb/s by name, 0 for not known; loopback and those that are down are left out.
    """
    speeds = [speed for name, speed in interfaces.items() if addresses.get(name)]
    return min(speeds) if speeds and min(speeds) > 0 else 0
