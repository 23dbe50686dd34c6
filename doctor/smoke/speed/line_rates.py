"""What a link of known speed carries at least: a floor, far below what it should carry. Pure.

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
from collections.abc import Iterable, Mapping, Sequence

from doctor.facts.smoke.further_stages import PairTimes
from doctor.smoke.speed.link_speeds import exchange_logs

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
    by_size: dict[int, list[PairTimes]] = {}
    for exchange in exchanges:
        if exchange.bytes >= LEAST_BYTES:
            by_size.setdefault(exchange.bytes, []).append(exchange)
    rates = (size / math.exp(min(logs)) for size, events in by_size.items() for logs in exchange_logs(events).values())
    return max(rates, default=0.0)


def slowest_line(interfaces: Mapping[str, int], addresses: Mapping[str, Sequence[str]]) -> int:
    """Mb/s of the slowest interface of a host that has an address; 0 where that of any such is not known.

    ``interfaces``: Mb/s by name, 0 for not known; loopback and those that are down are left out.
    """
    speeds = [speed for name, speed in interfaces.items() if addresses.get(name)]
    return min(speeds) if speeds and min(speeds) > 0 else 0
