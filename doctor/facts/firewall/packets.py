"""Sets of packets, and how a rule's condition divides them.

A rule set is followed with all packets of the job at once, not with one after the other: `Packets` says what each
header field may hold, a condition splits it into those that match, those that do not, and those for which it cannot
be known. Nothing is tried out by sample, so no port and no host is missed, and 28000 ports cost as much as one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from operator import itemgetter

import msgspec

Ranges = tuple[tuple[int, int], ...]
"""A set of numbers: sorted, separate ranges, both ends included."""

NUMBER_LIMIT = 1 << 128
ARP = 1
"""The family of a packet by which a host asks for a neighbour's hardware address, beside 4 and 6."""
ENDPOINT_FIELDS = ("saddr", "daddr", "sport", "dport")
"""The fields that distinguish one connection of the job from another."""
VARIED_FIELDS = frozenset(["length"])
"""Fields that vary between the packets of one connection: whether a rule with such a field matches is unclear."""


def to_ranges(spans: Iterable[tuple[int, int]]) -> Ranges:
    """The set that holds all the spans."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(span for span in spans if span[0] <= span[1]):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def union(sets: Iterable[Ranges]) -> Ranges:
    """What any of the sets holds.

    >>> union([((1, 2),), ((3, 9),)])
    ((1, 9),)
    """
    distinct: list[Ranges] = []
    for numbers in sets:
        if numbers not in distinct:
            distinct.append(numbers)
    return distinct[0] if len(distinct) == 1 else to_ranges(span for numbers in distinct for span in numbers)


def intersect(first: Ranges, second: Ranges) -> Ranges:
    """What both sets hold."""
    if first is second:
        return first
    few, many = sorted((first, second), key=len)
    common: list[tuple[int, int]] = []
    for low, high in few:
        part = [*many[bisect_left(many, low, key=itemgetter(1)) : bisect_right(many, high, key=itemgetter(0))]]
        if part:
            part[0] = (max(low, part[0][0]), part[0][1])
            part[-1] = (part[-1][0], min(high, part[-1][1]))
            common += part
    return tuple(common)


def invert(numbers: Ranges) -> Ranges:
    """All numbers that the set does not hold."""
    edges = [-1]
    for low, high in numbers:
        edges += [low, high]
    edges.append(NUMBER_LIMIT)
    return tuple((low + 1, high - 1) for low, high in zip(edges[::2], edges[1::2], strict=True) if low + 1 <= high - 1)


def difference(first: Ranges, second: Ranges) -> Ranges:
    """What the first set holds and the second does not."""
    return intersect(first, invert(second))


def count(numbers: Ranges) -> int:
    """How many numbers the ranges contain."""
    return sum(high - low + 1 for low, high in numbers)


class Packets(msgspec.Struct, frozen=True):
    """All packets whose fields hold one of these values. A field that is not listed may hold anything."""

    fields: Mapping[str, Ranges]
    names: Mapping[str, str]
    """Interfaces: ``iif`` and ``oif``. A name that is not listed may be any; an empty one stands for none."""

    def with_field(self, field: str, values: Ranges | None) -> Packets:
        kept = {name: held for name, held in self.fields.items() if name != field}
        return Packets(kept if values is None else {**kept, field: values}, self.names)

    def is_within(self, other: Packets) -> bool:
        """Whether ``other`` holds all of these."""
        if self.names != other.names or self.fields.keys() != other.fields.keys():
            return False
        return all(not difference(held, other.fields[field]) for field, held in self.fields.items())


def overlap(packets: Packets, other: Packets) -> Packets | None:
    """The packets of ``packets`` that are in ``other``'s region."""
    for field in ENDPOINT_FIELDS:
        both = intersect(packets.fields[field], other.fields[field])
        if not both:
            return None
        packets = packets if both == packets.fields[field] else packets.with_field(field, both)
    return packets


def subtract(many: Iterable[Packets], other: Packets) -> list[Packets]:
    """The packets that are not in ``other``'s region."""
    remaining = []
    for packets in many:
        if overlap(packets, other) is None:
            remaining.append(packets)
            continue
        for field in ENDPOINT_FIELDS:
            outside = difference(packets.fields[field], other.fields[field])
            if outside:
                remaining.append(packets.with_field(field, outside))
            packets = packets.with_field(field, intersect(packets.fields[field], other.fields[field]))
    return remaining


class PacketClasses(msgspec.Struct):
    """What a condition makes of packets."""

    matching: list[Packets] = []
    unmatched: list[Packets] = []
    unclear: list[Packets] = []


class FieldIn(msgspec.Struct, frozen=True):
    """The field, masked, holds one of the values."""

    field: str
    values: Ranges
    mask: int = -1

    def split(self, packets: Packets) -> PacketClasses:
        held = packets.fields.get(self.field)
        if held is None:
            return PacketClasses(unclear=[packets])
        if self.mask != -1:
            if count(held) != 1:
                return PacketClasses(unclear=[packets])
            masked = held[0][0] & self.mask
            return (
                PacketClasses(matching=[packets])
                if intersect(((masked, masked),), self.values)
                else PacketClasses(unmatched=[packets])
            )
        inside = intersect(held, self.values)
        if not inside:
            return PacketClasses(unmatched=[packets])
        if inside == held:
            return PacketClasses(matching=[packets])
        if self.field in VARIED_FIELDS:
            return PacketClasses(unclear=[packets])
        return PacketClasses(
            matching=[packets.with_field(self.field, inside)],
            unmatched=[packets.with_field(self.field, difference(held, self.values))],
        )


class InterfaceIn(msgspec.Struct, frozen=True):
    """The interface has one of these names, ``*`` standing for any end."""

    field: str
    patterns: tuple[str, ...]

    def split(self, packets: Packets) -> PacketClasses:
        name = packets.names.get(self.field)
        if name is None:
            return PacketClasses(unclear=[packets])
        fits = any(_name_matches(name, pattern) for pattern in self.patterns)
        return PacketClasses(matching=[packets]) if fits else PacketClasses(unmatched=[packets])


def _name_matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


class Not(msgspec.Struct, frozen=True):
    """The part does not hold."""

    part: Condition

    def split(self, packets: Packets) -> PacketClasses:
        classes = self.part.split(packets)
        return PacketClasses(classes.unmatched, classes.matching, classes.unclear)


class AllOf(msgspec.Struct, frozen=True):
    """Every part holds; no part at all holds always."""

    parts: tuple[Condition, ...] = ()

    def split(self, packets: Packets) -> PacketClasses:
        total = PacketClasses(matching=[packets])
        for part in self.parts:
            yes, unclear = total.matching, total.unclear
            total.matching, total.unclear = [], []
            for subset in yes:
                classes = part.split(subset)
                total.matching += classes.matching
                total.unmatched += classes.unmatched
                total.unclear += classes.unclear
            for subset in unclear:
                classes = part.split(subset)
                total.unmatched += classes.unmatched
                total.unclear += classes.matching + classes.unclear
        return total


class AnyOf(msgspec.Struct, frozen=True):
    """At least one part holds; no part at all never holds."""

    parts: tuple[Condition, ...] = ()

    def split(self, packets: Packets) -> PacketClasses:
        return Not(AllOf(tuple(Not(part) for part in self.parts))).split(packets)


class Unclear(msgspec.Struct, frozen=True):
    """A condition that cannot be judged: it is not understood, or depends on more than the packet."""

    def split(self, packets: Packets) -> PacketClasses:
        return PacketClasses(unclear=[packets])


Condition = FieldIn | InterfaceIn | Not | AllOf | AnyOf | Unclear


def any_row_matches(rows: Iterable[tuple[Condition, ...]]) -> Condition:
    """One row holds in all its columns; rows that differ in one column's numbers alone are made one."""
    held = set(rows)
    for column in range(max(map(len, held), default=0)):
        merged: dict[tuple[Condition, ...], list[tuple[int, int]]] = {}
        kept: set[tuple[Condition, ...]] = set()
        for row in held:
            part = row[column]
            if isinstance(part, FieldIn):
                blank = FieldIn(part.field, (), part.mask)
                merged.setdefault((*row[:column], blank, *row[column + 1 :]), []).extend(part.values)
            else:
                kept.add(row)
        for row, spans in merged.items():
            part = row[column]
            assert isinstance(part, FieldIn)
            kept.add((*row[:column], FieldIn(part.field, to_ranges(spans), part.mask), *row[column + 1 :]))
        held = kept
    return AnyOf(tuple(AllOf(row) for row in sorted(held, key=repr)))


ALWAYS, NEVER = AllOf(), AnyOf()
