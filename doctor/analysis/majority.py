"""The one way in which ranks, hosts and devices outvote each other. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from doctor.engine.check import Skip
from doctor.engine.grouping import lists_by_key
from doctor.engine.result import Finding

Value = TypeVar("Value", bound=Hashable)
Item = TypeVar("Item")


def leader(votes: Mapping[Value, int], *casting: Value) -> tuple[Value, ...]:
    """The value with most votes, alone in a tuple, since it may be None; empty at a tie, and without votes.

    ``casting``: a value that decides a tie that it is part of.

    >>> leader({"a": 2, "b": 1}), leader({"a": 1, "b": 1}), leader({"a": 1, "b": 1}, "b"), leader({None: 2, "b": 1})
    (('a',), (), ('b',), (None,))
    """
    most = max(votes.values(), default=0)
    top = [value for value, count in votes.items() if count == most]
    return tuple(top) if len(top) == 1 else tuple(value for value in casting if value in top)


def most_common_value(values: Iterable[Value]) -> Value | None:
    """The commonest value; None when two are equally common, or there is none."""
    return next(iter(leader(Counter(values))), None)


def agreed_value(values: Iterable[Value]) -> Value | None:
    """The commonest value, where at least two have it: what one host says is in no command for another host.

    >>> agreed_value(["550", "550", "535"]), agreed_value(["550"])
    ('550', None)
    """
    votes = Counter(values)
    return next((value for value in leader(votes) if votes[value] > 1), None)


class Split(msgspec.Struct, Generic[Item], frozen=True):
    """Items with two or more values, divided by the value that most of them have."""

    differing: tuple[Item, ...]
    """Those that have another value; all of them at a tie: which is wrong cannot be decided."""
    agreeing: tuple[Item, ...]
    """Those that have the value of most; empty at a tie."""
    common: Hashable = None
    """The value of most; of no meaning at a tie."""
    kinds: int = 2
    """How many values there are."""
    names: tuple[str, ...] = ()
    """Of values that have names: those that differ."""

    @property
    def tie(self) -> bool:
        """No value has most of the votes."""
        return not self.agreeing

    @property
    def majority(self) -> bool:
        """More than half agree."""
        return len(self.agreeing) > len(self.differing)

    @property
    def norm(self) -> Item:
        """An item that has the value which the others lack; at a tie the first one."""
        return (self.agreeing or self.differing)[0]


def split(
    items: Iterable[Item],
    value: Callable[[Item], Hashable],
    *casting: Hashable,
    voter: Callable[[Item], Hashable] | None = None,
) -> Split[Item] | None:
    """Who differs from most others; None where all have one value. ``casting``: a value that decides a tie.

    ``voter``: of several items with one voter and one value one counts, unless all items have one voter.

    >>> split([1, 3, 4, 5], lambda number: number % 2).differing
    (4,)
    >>> split([1, 2, 3, 4], lambda number: number % 2).tie
    True
    >>> split([1, 3], lambda number: number % 2) is None
    True
    """
    rows = [(value(item), item) for item in items]
    votes = Counter(key for key, _ in rows)
    kinds = len(votes)
    if kinds < 2:
        return None
    if voter and len({voter(item) for _, item in rows}) > 1:
        votes = Counter(key for key, _ in {(key, voter(item)) for key, item in rows})
    leading = leader(votes, *casting)
    agreeing = tuple(item for key, item in rows if key in leading)
    others = tuple(item for key, item in rows if key not in leading)
    return Split(others, agreeing, leading[0] if leading else None, kinds)


FEWEST, SHARE = 4, 0.75
"""So many ports that are alike show what is usual, and such a part of their hosts must have it."""


def unlike_most(by_port: Mapping[tuple[str, str], Value]) -> Iterator[tuple[str, str, Value, Value, int]]:
    """Host, port and value of ports that differ from the others, then the usual value, and how many have it.

    Each host has one vote, that of most of its ports; without three quarters of them for one value nothing differs.

    >>> list(unlike_most({**{(f"w{n}", "eth0"): "RS" for n in range(4)}, ("w9", "eth0"): "Off"}))
    [('w9', 'eth0', 'Off', 'RS', 4)]
    """
    of_host: dict[str, Counter[Value]] = {}
    for (host, _), value in by_port.items():
        of_host.setdefault(host, Counter())[value] += 1
    leading = [ports.most_common(1)[0] + (ports.total(),) for ports in of_host.values()]
    votes = Counter(value for value, count, total in leading if count >= SHARE * total)
    usual = [value for value, count in votes.most_common(1) if count >= SHARE * len(of_host)]
    if not usual or len(by_port) < FEWEST:
        return
    count = sum(value == usual[0] for value in by_port.values())
    for (host, port), value in by_port.items():
        if value != usual[0]:
            yield host, port, value, usual[0], count


def differing_devices(
    values: Mapping[tuple[str, Any], Value], template: str, of_one: str, device: str, **more: Any
) -> Iterator[Finding]:
    """`differing` of what each host's devices have, then the devices that differ from most of their own host's.

    ``values``: by host and device. ``of_one``: the template of one device, which it names ``device``.

    >>> versions = {("w1", gpu): "96.00.89" for gpu in range(8)} | {("w1", 3): "96.00.74"}
    >>> print(*differing_devices(versions, "", "{gpu} has {observed}; {count} of {total} have {expected}", "gpu"))
    3 has 96.00.74; 7 of 8 have 96.00.89
    """
    of_host = lists_by_key((host, value) for (host, _), value in values.items())
    usual = {host: most_common_value(own) or " and ".join(sorted({*map(str, own)})) for host, own in of_host.items()}
    if len(usual) > 1:
        yield from differing(usual, template, **more)
    for host, which, observed, expected, count in unlike_most(values):
        if observed != usual[host]:
            counted = {"observed": observed, "expected": expected, "count": count, "total": len(values)}
            yield Finding(of_one, hosts=[host], **{device: which}, **counted, **more)


NEARLY = 0.95
"""Such a part of the usual number, or more, is as usual: memory that is reserved, and rounding, differ by less."""


def below_usual(numbers: Mapping[tuple[str, Any], float], template: str, device: str, **more: Any) -> Iterator[Finding]:
    """A finding for each device, by host and number or name, with clearly less of something than most of its kind.

    Each host has one vote for each number that it has. At a tie the larger one is usual on a single host; of several
    hosts none is named. A device that has no more on most of the other hosts either is meant so. ``device``: under
    which name the template has it, beside ``observed``, ``expected``, ``count`` (devices that have ``expected``) and
    ``total``.

    >>> rates = {("w1", port): 400.0 for port in range(8)} | {("w1", 3): 200.0, ("w1", 4): 390.0}
    >>> print(*below_usual(rates, "{port} has {observed}; {count} of {total} have {expected}", "port"))
    3 has 200; 7 of 8 have 400
    >>> print(*below_usual(rates | {("w2", 3): 200.0}, "{port}", "port"))
    <BLANKLINE>
    """
    level, head = dict[float, float](), 0.0
    for number in sorted({*numbers.values()}):
        head = level[number] = head if head >= NEARLY * number else number
    of_device = lists_by_key((device, (host, level[number])) for (host, device), number in numbers.items())
    casting = [head] if len({host for host, _ in numbers}) == 1 else []
    parts = split(numbers, lambda place: level[numbers[place]], *casting, voter=lambda place: place[0])
    if not parts or parts.tie:
        return
    for host, which in parts.differing:
        number, usual = numbers[host, which], numbers[parts.norm]
        others = [each <= level[number] for other, each in of_device[which] if other != host]
        if number < usual and 2 * sum(others) <= len(others):
            measured = {"observed": number, "expected": usual}
            values = {name: int(value) if value == int(value) else value for name, value in measured.items()} | more
            counts = {"count": len(parts.agreeing), "total": len(numbers), device: which}
            yield Finding(template, hosts=[host], **counts, **values)


def slower_sibling(numbers: Mapping[tuple[str, Any], float], template: str, device: str) -> Iterator[Finding]:
    """`below_usual`, where the device is the only one among `FEWEST` or more of its host: two are meant so.

    >>> lanes = {("w1", slot): 4.0 for slot in "abcd"} | {("w1", "b"): 2.0}
    >>> print(*slower_sibling(lanes, "{slot} has {observed} lanes; {count} of {total} have {expected}", "slot"))
    b has 2 lanes; 3 of 4 have 4
    """
    of_host = lists_by_key((host, number) for (host, _), number in numbers.items())
    for finding in below_usual(numbers, template, device):
        siblings = of_host[finding.hosts[0]]
        if len(siblings) >= FEWEST and sum(number < finding.values["expected"] for number in siblings) == 1:
            yield finding


def unlike_fec(ports: Mapping[tuple[str, str], tuple[str, str, str]]) -> Iterator[Finding]:
    """Ports with another forward error correction than those of their speed and kind of cable; in each its mode."""
    alike: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    for port, (speed, kind, fec) in ports.items():
        if fec:
            alike.setdefault((speed, kind), {})[port] = fec
    for (speed, _), by_port in alike.items():
        for host, device, fec, usual, count in unlike_most(by_port):
            yield Finding(
                "{device} uses FEC {observed} at {speed}; {count} of {total} ports like it use {expected}",
                hosts=[host],
                device=device,
                interface=device,
                observed=fec,
                speed=speed,
                count=count,
                total=len(by_port),
                expected=usual,
                encoding=usual.lower(),
                case="Another FEC",
            )


class Crossed(msgspec.Struct, frozen=True):
    """What one host has at one place, and most hosts at another place."""

    host: str
    place: str
    observed: Any
    expected: Any
    usual_place: str
    """Where most hosts have what was observed: so many, of so many."""
    count: int
    total: int


def crossed(values: Mapping[str, Mapping[str, Any]]) -> Iterator[Crossed]:
    """Of values by place and host, those that belong to another place: cables or addresses that were exchanged.

    A plan is read from the values: at each place two thirds of the hosts agree, and no two places on the same value.

    >>> plan = {"mlx5_0": dict(a=1, b=1, c=2, d=1), "mlx5_1": dict(a=2, b=2, c=1, d=2)}
    >>> [(each.host, each.place, each.usual_place) for each in crossed(plan)]
    [('c', 'mlx5_0', 'mlx5_1'), ('c', 'mlx5_1', 'mlx5_0')]
    """
    agreed: dict[str, tuple[Any, int]] = {}
    for place, by_host in values.items():
        parts = split(by_host, by_host.__getitem__) if len(by_host) > 2 else None
        if parts and not parts.tie and 3 * len(parts.agreeing) >= 2 * len(by_host):
            agreed[place] = (parts.common, len(parts.agreeing))
        elif by_host and len({*by_host.values()}) == 1:
            agreed[place] = (next(iter(by_host.values())), len(by_host))
    usual = {value: place for place, (value, _) in agreed.items()}
    if len(usual) < len(agreed):
        return
    for place, (expected, _) in agreed.items():
        for host, observed in values[place].items():
            if observed != expected and observed in usual:
                other = usual[observed]
                yield Crossed(host, place, observed, expected, other, agreed[other][1], len(values[other]))


def tied(groups: Mapping[str, list[str]], hosts: Iterable[str] = (), **more: Any) -> Finding:
    """The finding of hosts, by value, that differ while no value has a majority: a difference without a culprit.

    ``hosts``: in which order they are named, where that is not by groups.
    """
    return Finding(
        "the hosts differ, and no value has a majority: {groups}; expected one",
        hosts=list(hosts) or [host for group in groups.values() for host in group],
        groups=dict(groups),
        **more,
    )


def differing(values: Mapping[str, Any], template: str, *casting: Hashable, **more: Any) -> Iterator[Finding]:
    """A finding for each value that fewer hosts have than the commonest one; for a tie, one that blames all hosts.

    ``casting``: a value that decides a tie that it is part of.

    The template may name ``observed``, ``expected``, ``count`` (hosts that have ``expected``) and ``total``.
    Raises: Skip for a fleet of one.
    """
    if len(values) < 2:
        raise Skip("a single host cannot be compared")
    groups = lists_by_key((value, host) for host, value in values.items())
    ranked = sorted(groups, key=lambda value: (-len(groups[value]), str(value)))
    parts = split(values, values.__getitem__, *casting)
    if parts is None:
        return
    if parts.tie:
        yield tied({str(value): groups[value] for value in ranked}, values, **more)
        return
    counts = {"expected": parts.common, "count": len(parts.agreeing), "total": len(values)}
    for observed in (value for value in ranked if value != parts.common):
        yield Finding(template, hosts=groups[observed], observed=observed, **counts, **more)
