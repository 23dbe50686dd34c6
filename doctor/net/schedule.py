"""Which hosts try each other when: rounds of disjoint pairs, so that a host is in at most one pair at a time.

`full` is a 1-factorization of all pairs by the circle method: with an even number N of hosts N-1 rounds of N/2 pairs,
with an odd number N rounds, and one host rests in each round. Source: M. Reiss, "Ueber eine Steinersche combinatorische
Aufgabe" (1859); E. Lucas, "Recreations mathematiques" II (1883), the round-robin tournament. `quick` is the ring of the
rank order and a few of these rounds, drawn by a seed after the hosts are shuffled.

A pair is tried in both directions. Everything follows from a few numbers: a host works out its own partners, one for
each round, without the rest of the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Literal

import msgspec

from doctor.engine.texts import filled, joined

ALL_PORTS_UP_TO = 128
"""Hosts up to which `full` tries every port of every pair; above, each host's work stays what it is at this number."""
LEAST_PORTS = 4
"""Ports that every pair tries, however many hosts there are."""

Pair = tuple[int, int]


class Schedule(msgspec.Struct, frozen=True):
    """Rounds of disjoint pairs.

    >>> schedule = full(4, ports=34)
    >>> [schedule.pairs(number) for number in range(schedule.rounds)]
    [[(0, 3), (1, 2)], [(0, 1), (2, 3)], [(0, 2), (1, 3)]]
    >>> print(schedule)
    6 of 6 pairs both ways in 3 rounds, 34 of 34 ports
    """

    kind: Literal["full", "quick"]
    hosts: int
    ports: int
    """Ports that there are to try."""
    ports_each: int
    """Ports that a host tries with a partner that is no neighbour of its rank; with a neighbour it tries all."""
    seed: int
    order: tuple[int, ...] = ()
    """Of `quick`: the place of each host among the shuffled ones. Empty: the hosts as they are."""
    by_place: tuple[int, ...] = ()
    """The host at each of these places."""
    factors: tuple[int, ...] = ()
    """Of `quick`: the rounds of the 1-factorization that are used."""
    strides: tuple[int, ...] = ()
    """Distances, in hosts, at which same-position peers stand: with data parallelism the hosts of one replica."""
    degree: int = 0
    """The least number of partners that any host has."""
    pair_count: int = 0

    @property
    def ring_rounds(self) -> int:
        """Rounds that the ring of the rank order takes; `full` has it among all the others."""
        return 0 if self.kind == "full" or self.hosts < 2 else 1 if self.hosts == 2 else 2 + self.hosts % 2

    @property
    def rounds(self) -> int:
        factors = _factors(self.hosts) if self.kind == "full" else len(self.factors)
        return self.ring_rounds + factors

    def partner(self, host: int, number: int) -> int | None:
        """The host that ``host`` is paired with in round ``number``; None where it rests."""
        ring = self.ring_rounds
        if number < ring:
            return _ring_partner(host, number, self.hosts)
        factor = number if self.kind == "full" else self.factors[number - ring]
        if not self.order:
            return _factor_partner(host, factor, self.hosts)
        shuffled = _factor_partner(self.order[host], factor, self.hosts)
        if shuffled is None:
            return None
        partner = self.by_place[shuffled]
        return None if _on_ring(host, partner, self.hosts) else partner

    def pairs(self, number: int) -> list[Pair]:
        """The pairs of round ``number``, the lower host first; no host stands in two of them."""
        partners = ((host, self.partner(host, number)) for host in range(self.hosts))
        return [(host, partner) for host, partner in partners if partner is not None and host < partner]

    def partners(self, host: int) -> list[tuple[int, int]]:
        """Round and partner of all that ``host`` takes part in."""
        every = ((number, self.partner(host, number)) for number in range(self.rounds))
        return [(number, partner) for number, partner in every if partner is not None]

    def ports_of(self, source: int, target: int, number: int) -> list[int]:
        """The ports that ``source`` tries at ``target`` in round ``number``, by their places.

        Every port of every target gets its turn equally often, for any number of hosts.
        """
        if self.ports_each >= self.ports or self.is_neighbour(source, target):
            return list(range(self.ports))
        start = (number * self.ports_each + Random(self.seed * 1_000_003 + target).randrange(self.ports)) % self.ports
        return sorted((start + step) % self.ports for step in range(self.ports_each))

    def is_neighbour(self, source: int, target: int) -> bool:
        """Whether ranks of these hosts talk to each other in a ring: of the rank order, or of same-position peers."""
        return any((source - target) % self.hosts in (step, self.hosts - step) for step in (1, *self.strides))

    @property
    def all_pair_count(self) -> int:
        return self.hosts * (self.hosts - 1) // 2

    @property
    def chance_to_miss_pair(self) -> float:
        """The chance that one bad pair, any of all being as likely, is not among those tried. Exact.

        A pair is tried in both directions, so it is also the chance to miss one bad direction.
        """
        return 1 - self.pair_count / self.all_pair_count if self.all_pair_count else 0.0

    @property
    def chance_to_miss_port(self) -> float:
        """The chance that one bad port of one direction is not among those tried; neighbours of a rank left out."""
        share = self.ports_each / self.ports if self.ports else 1.0
        return 1 - share * (1 - self.chance_to_miss_pair)

    def __str__(self) -> str:
        text = filled("{0} of {1} pairs both ways in {2} rounds, ", self.pair_count, self.all_pair_count, self.rounds)
        text = joined("", (text, filled("{0} of {1} ports", self.ports_each, self.ports)))
        if self.kind == "quick":
            text = joined("", (text, filled(", each host in at least {0} pairs; ", self.degree)))
            more = filled("chance to miss a single bad pair or direction: {0}", _percent(self.chance_to_miss_pair))
            text = joined("", (text, more))
        elif self.ports_each < self.ports:
            text = joined("", (text, " of each pair, all of a rank's neighbours; "))
            more = filled("chance to miss a single bad port of one direction: {0}", _percent(self.chance_to_miss_port))
            text = joined("", (text, more))
        return text


def full(hosts: int, ports: int, strides: Sequence[int] = (), seed: int = 0, ports_each: int = 0) -> Schedule:
    """All pairs, both ways; above 128 hosts a sample of the ports, but all of them between a rank's neighbours.

    ``strides``: see `Schedule`. ``ports_each`` overrides the number of ports.
    """
    most = max(LEAST_PORTS, math.ceil(ports * ALL_PORTS_UP_TO / max(hosts, 1)))
    each = min(ports, ports_each or most)
    near = tuple(sorted({stride % hosts for stride in strides} - {0, 1, hosts - 1})) if hosts else ()
    degree = max(hosts - 1, 0)
    return Schedule("full", hosts, ports, each, seed, strides=near, degree=degree, pair_count=hosts * degree // 2)


def quick(hosts: int, ports: int, seed: int, degree: int = 0) -> Schedule:
    """The ring of the rank order, and as many drawn rounds as give every host ``degree`` partners at least.

    Without ``degree`` twice the binary logarithm of the number of hosts, at least six: a bad host is tried by so many
    others that it cannot be missed, nor mistaken for its partners.

    >>> schedule = quick(64, ports=34, seed=1)
    >>> schedule.degree, schedule.pair_count, schedule.all_pair_count
    (12, 435, 2016)
    """
    least = min(degree or default_degree(hosts), hosts - 1)
    if least >= hosts - 1:
        return full(hosts, ports, (), seed, ports)
    random = Random(seed)
    order = list(range(hosts))
    random.shuffle(order)
    candidates = list(range(_factors(hosts)))
    random.shuffle(candidates)
    by_place = _inverse(order)
    degrees = [len({(host + 1) % hosts, (host - 1) % hosts} - {host}) for host in range(hosts)]
    factors: list[int] = []
    while min(degrees) < least and candidates:
        factor = candidates.pop()
        factors.append(factor)
        for host in range(hosts):
            place = _factor_partner(order[host], factor, hosts)
            if place is not None and not _on_ring(host, by_place[place], hosts):
                degrees[host] += 1
    return Schedule(
        "quick",
        hosts,
        ports,
        ports,
        seed,
        tuple(order),
        by_place,
        tuple(factors),
        degree=min(degrees),
        pair_count=sum(degrees) // 2,
    )


def default_degree(hosts: int) -> int:
    """Partners of each host in `quick`, unless the user says otherwise."""
    return max(6, 2 * math.ceil(math.log2(hosts))) if hosts > 1 else 0


def _factors(hosts: int) -> int:
    """Rounds of the 1-factorization."""
    return 0 if hosts < 2 else hosts - 1 + hosts % 2


def _factor_partner(host: int, factor: int, hosts: int) -> int | None:
    """The circle method: the numbers of a pair sum up to the round's, modulo the length of the circle.

    The last host stands outside the circle, and takes who would meet itself; with an odd number that one rests.
    """
    circle = _factors(hosts)
    outside = circle
    if host == outside:
        return factor * ((circle + 1) // 2) % circle
    partner = (factor - host) % circle
    if partner != host:
        return partner
    return outside if outside < hosts else None


def _ring_partner(host: int, number: int, hosts: int) -> int | None:
    """The partner in one round of the ring: even edges, odd edges, and with an odd number of hosts the last edge."""
    for edge, partner in ((host, (host + 1) % hosts), ((host - 1) % hosts, (host - 1) % hosts)):
        last = hosts % 2 == 1 and edge == hosts - 1
        if (2 if last else edge % 2) == number:
            return partner
    return None


def _on_ring(host: int, partner: int, hosts: int) -> bool:
    return (host - partner) % hosts in (1, hosts - 1)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    inverse = [0] * len(order)
    for host, place in enumerate(order):
        inverse[place] = host
    return tuple(inverse)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
