"""Simulated fleets: faults as sets of cells, and the causes that must be named for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from doctor.net.cause import NetworkCause
from doctor.net.host_groups import HostGroup
from doctor.net.matrix import Matrix, TestedPort, untried_rows
from doctor.net.schedule import Schedule
from doctor.net.slow_paths import SlowPath
from doctor.net.summary import add_metrics

Cells = Callable[[int, int, int], bool]
"""Whether an attempt from a source to a target on a port fails."""


class PlacedFault(msgspec.Struct, frozen=True):
    """A fault at a place: what it breaks, and what must be said of it."""

    kind: str
    breaks: Cells
    hosts: tuple[int, ...] = ()
    way: str = "both"
    groups: tuple[str, ...] = ()
    ports: tuple[int, ...] | None = None
    """None: all."""
    letter: str = "d"

    @property
    def key(self) -> tuple[object, ...]:
        return self.kind, self.hosts, self.way, self.groups, self.ports


def key_of(cause: NetworkCause) -> tuple[object, ...]:
    names = tuple(group.name for group in cause.groups)
    if cause.way == "both":
        names = tuple(sorted(names))
    return cause.kind, cause.hosts, cause.way, names, None if cause.all_ports else cause.ports


def racks(hosts: int, size: int, kind: str = "switch") -> tuple[HostGroup, ...]:
    """Groups of ``size`` neighbouring hosts."""
    starts = range(0, max(hosts - 1, 1), size)  # the last group takes a single host that would stand alone
    return tuple(
        HostGroup(kind, f"s{at // size}", tuple(range(at, hosts if at + size >= hosts - 1 else at + size)))
        for at in starts
    )


def attempts(hosts: int, ports: int, faults: Sequence[PlacedFault], schedule: Schedule | None = None) -> Matrix:
    """The matrix of a fleet with these faults, with all cells tried or those of a schedule."""
    rows = untried_rows(hosts, ports)
    if schedule is None:
        tried: Iterable[tuple[int, int, range | list[int]]] = (
            (s, t, range(ports)) for s in range(hosts) for t in range(hosts) if s != t
        )
    else:
        tried = (
            (source, target, schedule.ports_of(source, target, number))
            for source in range(hosts)
            for number, target in schedule.partners(source)
        )
    letters = [[list(row) for row in port_rows] for port_rows in rows]
    for source, target, some in tried:
        for port in some:
            letters[port][source][target] = "o"
            for fault in faults:
                if fault.breaks(source, target, port):
                    letters[port][source][target] = fault.letter
    return fleet(hosts, ports, [["".join(row) for row in port_rows] for port_rows in letters])


def fleet(hosts: int, ports: int, rows: Sequence[Sequence[str]]) -> Matrix:
    """A matrix with plain names."""
    tested = tuple(TestedPort("hccl", 60000 + port) for port in range(ports))
    return Matrix(tuple(f"n{host}" for host in range(hosts)), tested, tuple(map(tuple, rows)))


def single_faults(hosts: int, ports: int, groups: Sequence[HostGroup], random: Random) -> list[PlacedFault]:
    """One fault of every kind, each at a random place."""
    h, (a, b), p = random.randrange(hosts), random.sample(range(hosts), 2), random.randrange(ports)
    low, high = sorted((a, b))
    some = tuple(sorted(random.sample(range(ports), max(2, ports // 2)))) if ports > 2 else (p,)
    faults = [
        PlacedFault("host", lambda s, t, _: h in (s, t), (h,)),
        PlacedFault("host", lambda s, t, _: t == h, (h,), "inbound"),
        PlacedFault("host", lambda s, t, _: s == h, (h,), "outbound", letter="u"),
        PlacedFault("link", lambda s, t, _: {s, t} == {a, b}, (low, high)),
        PlacedFault("direction", lambda s, t, _: (s, t) == (a, b), (a, b)),
    ]
    if ports > 1:
        faults += [
            PlacedFault("host", lambda s, t, q: t == h and q == p, (h,), "inbound", (), (p,), "b"),
            PlacedFault("host", lambda s, t, q: t == h and q == p, (h,), "inbound", (), (p,), "r"),
            PlacedFault("fleet", lambda s, t, q: q == p, (), "both", (), (p,)),
        ]
    if ports > 2:
        faults.append(PlacedFault("host", lambda s, t, q: t == h and q in some, (h,), "inbound", (), some))
    if len(groups) > 2 and hosts >= 8:
        first, other = random.sample(list(groups), 2)
        mine, theirs = set(first.hosts), set(other.hosts)
        names = tuple(sorted((first.name, other.name)))
        faults += [
            PlacedFault("border", lambda s, t, _: (s in mine) != (t in mine), (), "both", (first.name,)),
            PlacedFault("border", lambda s, t, _: s not in mine and t in mine, (), "inbound", (first.name,)),
            PlacedFault("groups", lambda s, t, _: s in mine and t in theirs, (), "outbound", (first.name, other.name)),
            PlacedFault(
                "groups",
                lambda s, t, _: s == first.hosts[0] and t in theirs,
                first.hosts[:1],
                "outbound",
                (other.name,),
            ),
            PlacedFault(
                "groups", lambda s, t, _: (s in mine and t in theirs) or (s in theirs and t in mine), (), "both", names
            ),
        ]
    return faults


def metrics_of(matrix: Matrix, causes: Sequence[NetworkCause] = (), slow: Sequence[SlowPath] = ()) -> str:
    """The metrics of a network test, as a report shows them."""
    registry = CollectorRegistry()
    add_metrics(registry, matrix, causes, slow)
    return generate_latest(registry).decode()
