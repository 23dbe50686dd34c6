"""Sets of packets, and how a rule's condition divides them.

A rule set is followed with all packets of the job at once, not with one after the other: `Packets` says what each
header field may hold, a condition splits it into those that match, those that do not, and those for which it cannot
be told. Nothing is tried out by sample, so no port and no host is missed, and 28000 ports cost as much as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

Ranges = tuple[tuple[int, int], ...]
"""A set of numbers: sorted, separate ranges, both ends included."""

EVERY = 1 << 128
REGION = ("saddr", "daddr", "sport", "dport")
"""The fields by which one connection of the job is told from another."""


def ranges(spans: Iterable[tuple[int, int]]) -> Ranges:
    """The set that holds all the spans."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(span for span in spans if span[0] <= span[1]):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def meet(one: Ranges, other: Ranges) -> Ranges:
    """What both sets hold."""
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low <= high:
            found.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def invert(one: Ranges) -> Ranges:
    """All numbers that the set does not hold."""
    edges = [-1]
    for low, high in one:
        edges += [low, high]
    edges.append(EVERY)
    return tuple((low + 1, high - 1) for low, high in zip(edges[::2], edges[1::2], strict=True) if low + 1 <= high - 1)


def less(one: Ranges, other: Ranges) -> Ranges:
    """What the first set holds and the second does not."""
    return meet(one, invert(other))


def count(one: Ranges) -> int:
    return sum(high - low + 1 for low, high in one)


class Packets(msgspec.Struct, frozen=True):
    """All packets whose fields hold one of these values. A field that is not listed may hold anything."""

    fields: Mapping[str, Ranges]
    names: Mapping[str, str]
    """Interfaces: ``iif`` and ``oif``. A name that is not listed may be any; an empty one stands for none."""

    def with_field(self, field: str, values: Ranges | None) -> Packets:
        kept = {name: held for name, held in self.fields.items() if name != field}
        return Packets(kept if values is None else {**kept, field: values}, self.names)

    def within(self, other: Packets) -> bool:
        """Whether ``other`` holds all of these."""
        if self.names != other.names or self.fields.keys() != other.fields.keys():
            return False
        return all(not less(held, other.fields[field]) for field, held in self.fields.items())


def overlap(one: Packets, other: Packets) -> Packets | None:
    """The packets of ``one`` that are in ``other``'s region."""
    for field in REGION:
        both = meet(one.fields[field], other.fields[field])
        if not both:
            return None
        one = one if both == one.fields[field] else one.with_field(field, both)
    return one


def subtract(many: Iterable[Packets], other: Packets) -> list[Packets]:
    """The packets that are not in ``other``'s region."""
    left = []
    for packets in many:
        if overlap(packets, other) is None:
            left.append(packets)
            continue
        for field in REGION:
            outside = less(packets.fields[field], other.fields[field])
            if outside:
                left.append(packets.with_field(field, outside))
            packets = packets.with_field(field, meet(packets.fields[field], other.fields[field]))
    return left


class Split(msgspec.Struct):
    """What a condition makes of packets."""

    yes: list[Packets] = []
    no: list[Packets] = []
    unclear: list[Packets] = []


class Is(msgspec.Struct, frozen=True):
    """The field, masked, holds one of the values."""

    field: str
    values: Ranges
    mask: int = -1

    def split(self, packets: Packets) -> Split:
        held = packets.fields.get(self.field)
        if held is None:
            return Split(unclear=[packets])
        if self.mask != -1:
            if count(held) != 1:
                return Split(unclear=[packets])
            masked = held[0][0] & self.mask
            return Split(yes=[packets]) if meet(((masked, masked),), self.values) else Split(no=[packets])
        inside = meet(held, self.values)
        if not inside:
            return Split(no=[packets])
        if inside == held:
            return Split(yes=[packets])
        return Split(
            yes=[packets.with_field(self.field, inside)],
            no=[packets.with_field(self.field, less(held, self.values))],
        )


class Named(msgspec.Struct, frozen=True):
    """The interface has one of these names, ``*`` standing for any end."""

    field: str
    patterns: tuple[str, ...]

    def split(self, packets: Packets) -> Split:
        name = packets.names.get(self.field)
        if name is None:
            return Split(unclear=[packets])
        fits = any(_fits(name, pattern) for pattern in self.patterns)
        return Split(yes=[packets]) if fits else Split(no=[packets])


def _fits(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


class Not(msgspec.Struct, frozen=True):
    part: Condition

    def split(self, packets: Packets) -> Split:
        found = self.part.split(packets)
        return Split(found.no, found.yes, found.unclear)


class All(msgspec.Struct, frozen=True):
    """Every part holds; no part at all holds always."""

    parts: tuple[Condition, ...] = ()

    def split(self, packets: Packets) -> Split:
        whole = Split(yes=[packets])
        for part in self.parts:
            yes, unclear = whole.yes, whole.unclear
            whole.yes, whole.unclear = [], []
            for packets in yes:
                found = part.split(packets)
                whole.yes += found.yes
                whole.no += found.no
                whole.unclear += found.unclear
            for packets in unclear:
                found = part.split(packets)
                whole.no += found.no
                whole.unclear += found.yes + found.unclear
        return whole


class OneOf(msgspec.Struct, frozen=True):
    """At least one part holds; no part at all never holds."""

    parts: tuple[Condition, ...] = ()

    def split(self, packets: Packets) -> Split:
        return Not(All(tuple(Not(part) for part in self.parts))).split(packets)


class Unclear(msgspec.Struct, frozen=True):
    """A condition that cannot be judged: it is not understood, or depends on more than the packet."""

    def split(self, packets: Packets) -> Split:
        return Split(unclear=[packets])


Condition = Is | Named | Not | All | OneOf | Unclear


def any_row(rows: Iterable[tuple[Condition, ...]]) -> Condition:
    """One row holds in all its columns; rows that differ in one column's numbers alone are made one."""
    held = set(rows)
    for column in range(max(map(len, held), default=0)):
        merged: dict[tuple[Condition, ...], list[tuple[int, int]]] = {}
        kept: set[tuple[Condition, ...]] = set()
        for row in held:
            part = row[column]
            if isinstance(part, Is):
                blank = Is(part.field, (), part.mask)
                merged.setdefault((*row[:column], blank, *row[column + 1 :]), []).extend(part.values)
            else:
                kept.add(row)
        for row, spans in merged.items():
            part = row[column]
            assert isinstance(part, Is)
            kept.add((*row[:column], Is(part.field, ranges(spans), part.mask), *row[column + 1 :]))
        held = kept
    return OneOf(tuple(All(row) for row in sorted(held, key=repr)))


ALWAYS, NEVER = All(), OneOf()
