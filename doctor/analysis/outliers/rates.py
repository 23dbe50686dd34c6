"""Which ports count errors far more often than the others of the fleet. Pure: counts and uptimes in, verdicts out.

Counters of links have no limit that holds for all: each is divided by the days since its host was started, and compared
with the middle of the hosts that have the same counter, each with the middle of its ports: a host with many ports, or
one that invents some, counts once. One port among few has nothing to be compared with; there only counters are judged
that stand still on every sound link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

import msgspec

from doctor.engine.grouping import lists_by_key
from doctor.engine.quantities import DAY
from doctor.engine.texts import filled

Port = tuple[str, str]
"""The host, and the port's name there."""

LEAST = 10
"""Of a count; fewer say nothing."""
FACTOR = 10
"""Times the middle of the fleet's ports."""
FEWEST = 4
"""Ports from which on there is a middle to compare with."""
DAMAGED_DAILY = 10_000.0
"""Damaged symbols or packets a day that no sound link has: 10^-12 (IEEE 802.3) of 100 Gbit/s are 8640 bits a day."""


class Count(msgspec.Struct, frozen=True):
    """What one port has counted."""

    value: int
    uptime: float
    """Seconds since its host was started; 0 where that is not known."""


class HighRate(msgspec.Struct, frozen=True):
    """A port that counts far more than the others."""

    count: int
    daily: float
    expected: float
    """A day, in the middle of all hosts; 0 where there are too few ports."""

    @property
    def days(self) -> str:
        """In which the errors were counted.

        >>> HighRate(412, 13.733, 0.0666).days, HighRate(7, 7.0, 0.0).days
        ('30 days', 'at most a day')
        """
        return "at most a day" if self.count == self.daily else filled("{0} days", round(self.count / self.daily))

    @property
    def usual(self) -> str:
        """`expected`, with a decimal where it is small.

        >>> HighRate(412, 13.7, 0.0666).usual, HighRate(7, 7.0, 0.0).usual, HighRate(7, 99.0, 12.4).usual
        ('0.1', '0', '12')
        """
        return f"{self.expected:.1f}" if 0.05 <= self.expected < 10 else f"{self.expected:.0f}"


def high_rates(
    counts: Mapping[Port, Count], *, few_daily: float | None = None, least: int = LEAST, daily: float = 1.0
) -> dict[Port, HighRate]:
    """The ports whose counter grows far faster than that of the others; a count of the first day counts as a day's.

    ``daily``: the least rate of interest. ``few_daily``: the same where there are fewer than `FEWEST` ports; None for a
    counter that is then not judged.

    >>> fleet = {(f"w{n}", "eth0"): Count(2, 30 * DAY) for n in range(4)} | {("w9", "eth0"): Count(412, 30 * DAY)}
    >>> list(high_rates(fleet))
    [('w9', 'eth0')]
    >>> high_rates({("w1", "eth0"): Count(412, 30 * DAY)})
    {}
    """
    rates = {port: count.value / max(count.uptime / DAY, 1.0) for port, count in counts.items() if count.uptime > 0}
    is_few = len(rates) < FEWEST
    least_rate = few_daily if is_few else daily
    if not rates or least_rate is None:
        return {}
    of_host = lists_by_key((host, rate) for (host, _), rate in rates.items())
    expected = median([median(ports) for ports in of_host.values()]) if not is_few else 0.0
    return {
        port: HighRate(counts[port].value, rate, expected)
        for port, rate in rates.items()
        if counts[port].value >= least and rate >= least_rate and rate > FACTOR * expected
    }


def worst_of_ports(
    rates: Mapping[str, Mapping[Port, HighRate]], counts: Mapping[str, Mapping[Port, Count]]
) -> Iterator[tuple[Port, dict[str, object]]]:
    """Each port with high rates, and the values of one finding: all its counters, and the figures of the fastest.

    Both by the name of the counter.

    >>> high, count = HighRate(412, 13.7, 0.1), Count(412, 30 * DAY)
    >>> port = ("w9", "eth0")
    >>> [(place, values["observed"]) for place, values in worst_of_ports({"crc": {port: high}}, {"crc": {port: count}})]
    [(('w9', 'eth0'), {'crc': 412})]
    """
    for place in sorted({port for ports in rates.values() for port in ports}):
        own = {counter: ports[place] for counter, ports in sorted(rates.items()) if place in ports}
        counter, worst = max(own.items(), key=lambda item: item[1].daily)
        yield (
            place,
            {
                "observed": {name: rate.count for name, rate in own.items()},
                "counter": counter,
                "days": worst.days,
                "expected": worst.usual,
                "total": len(counts[counter]),
            },
        )
