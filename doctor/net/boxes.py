"""Where a cause may lie: boxes of cells, each the hosts, groups and directions that would fail together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from doctor.analysis.outliers.pairs import Way
from doctor.net.cause import CauseKind
from doctor.net.grid import CellMap, Grid, Rectangle, mask_of
from doctor.net.host_groups import HostGroup

MOST_GROUP_PAIRS = 1024
"""Pairs of groups with failures between them up to which they are weighed as causes: more than these are not between
groups."""
_ORDER: tuple[CauseKind, ...] = ("direction", "link", "host", "address", "groups", "border", "group", "fleet")


class Box(msgspec.Struct, frozen=True):
    """The cells of one possible cause, on every port."""

    kind: CauseKind
    rectangles: tuple[Rectangle, ...]
    """Without a common cell."""
    hosts: tuple[int, ...] = ()
    groups: tuple[HostGroup, ...] = ()
    way: Way = "both"

    @property
    def area(self) -> int:
        return sum(side.sources.bit_count() * side.targets.bit_count() for side in self.rectangles)

    @property
    def rank(self) -> tuple[int, int]:
        """Of two boxes that explain as much the smaller comes first, then the simpler."""
        return self.area, _ORDER.index(self.kind)


def host_box(host: int, way: Way, everyone: int) -> Box:
    """All attempts to a host, from it, or both."""
    self_mask, others = 1 << host, everyone & ~(1 << host)
    inward, outward = Rectangle(others, self_mask), Rectangle(self_mask, others)
    sides = {"both": (inward, outward), "inbound": (inward,), "outbound": (outward,)}[way]
    return Box("host", sides, (host,), (), way)


def one_way(box: Box, side: int) -> Box:
    """One of the two rectangles of a box of both ways: 0 or 1."""
    ways: tuple[Way, Way] = ("inbound", "outbound") if box.kind == "host" else ("outbound", "inbound")
    return msgspec.structs.replace(box, rectangles=box.rectangles[side : side + 1], way=ways[side])


def link_box(first: int, second: int) -> Box:
    """One pair, both ways."""
    low, high = sorted((first, second))
    forth, back = Rectangle(1 << low, 1 << high), Rectangle(1 << high, 1 << low)
    return Box("link", (forth, back), (low, high))


def direction_box(source: int, target: int) -> Box:
    """From one host to another."""
    return Box("direction", (Rectangle(1 << source, 1 << target),), (source, target))


def fleet_boxes(cells: CellMap) -> Iterator[Box]:
    """Every pair, of three hosts at least."""
    if cells.hosts > 2:
        yield Box("fleet", (Rectangle(cells.everyone, cells.everyone),))


def host_and_group_boxes(cells: CellMap, remaining: Grid, groups: Sequence[HostGroup]) -> Iterator[Box]:
    """Every box of one host, and of one or two groups, in which a failure remains."""
    rows, columns = _any_port(remaining.rows, cells.hosts), _any_port(remaining.by_target, cells.hosts)
    for host in range(cells.hosts):
        if rows[host] and columns[host]:
            yield host_box(host, "both", cells.everyone)
        if columns[host]:
            yield host_box(host, "inbound", cells.everyone)
        if rows[host]:
            yield host_box(host, "outbound", cells.everyone)
    yield from _group_boxes(cells.everyone, rows, _masks(groups, cells.hosts))


def one_to_group_boxes(cells: CellMap, remaining: Grid, groups: Sequence[HostGroup]) -> Iterator[Box]:
    """One host against a group, where nothing that was tried worked: a route, or a list of addresses."""
    rows, columns = _any_port(remaining.rows, cells.hosts), _any_port(remaining.by_target, cells.hosts)
    masks = _masks(groups, cells.hosts)
    open_rows = _any_port(cells.open.rows, cells.hosts)
    open_columns = _any_port(cells.open.by_target, cells.hosts)
    for host in range(cells.hosts):
        for group, mask in masks:
            if mask >> host & 1:
                continue
            least = min(3, len(group.hosts))
            to = (rows[host] & mask).bit_count() >= least and not open_rows[host] & mask
            back = (columns[host] & mask).bit_count() >= least and not open_columns[host] & mask
            forth = Rectangle(1 << host, mask)
            if to:
                yield Box("groups", (forth,), (host,), (group,), "outbound")
            if back:
                yield Box("groups", (Rectangle(mask, 1 << host),), (host,), (group,), "inbound")
            if to and back:
                yield Box("groups", (forth, Rectangle(mask, 1 << host)), (host,), (group,))


def _masks(groups: Sequence[HostGroup], hosts: int) -> list[tuple[HostGroup, int]]:
    """Groups with their masks, one of those with the same hosts; a single host, or all, is no group."""
    by_hosts = {group.hosts: group for group in reversed(groups) if 1 < len(group.hosts) < hosts}
    return [(group, mask_of(group.hosts)) for group in by_hosts.values()]


def _group_boxes(everyone: int, rows: Sequence[int], masks: Sequence[tuple[HostGroup, int]]) -> Iterator[Box]:
    for group, mask in masks:
        rest = everyone & ~mask
        outward, inward = Rectangle(mask, rest), Rectangle(rest, mask)
        yield Box("border", (outward, inward), (), (group,))
        yield Box("border", (outward,), (), (group,), "outbound")
        yield Box("border", (inward,), (), (group,), "inbound")
        yield Box("group", (Rectangle(mask, mask),), (), (group,))
    yield from _pair_boxes(rows, masks)


def group_pair_boxes(cells: CellMap, remaining: Grid, groups: Sequence[HostGroup]) -> Iterator[Box]:
    """Every box of two groups in which a failure remains."""
    yield from _pair_boxes(_any_port(remaining.rows, cells.hosts), _masks(groups, cells.hosts))


def cut_box(parts: Sequence[HostGroup], groups: Sequence[HostGroup]) -> Box:
    """All that is between these parts, which have the names of the groups with the same hosts."""
    named = {group.hosts: group for group in groups}
    masks = [mask_of(part.hosts) for part in parts]
    sides = tuple(Rectangle(mask, other) for mask in masks for other in masks if mask != other)
    return Box("groups", sides, (), tuple(named.get(part.hosts, part) for part in parts))


def _pair_boxes(rows: Sequence[int], masks: Sequence[tuple[HostGroup, int]]) -> Iterator[Box]:
    reached = {group.hosts: _union(rows[host] for host in group.hosts) for group, _ in masks}
    blocks = sum(bool(reached[group.hosts] & mask) for group, _ in masks for _, mask in masks)
    for group, mask in masks if blocks <= MOST_GROUP_PAIRS else ():
        for other, other_mask in masks:
            if other_mask & mask or not reached[group.hosts] & other_mask:
                continue
            forth, back = Rectangle(mask, other_mask), Rectangle(other_mask, mask)
            yield Box("groups", (forth,), (), (group, other), "outbound")
            if group.hosts < other.hosts or not reached[other.hosts] & mask:
                yield Box("groups", (forth, back), (), (group, other))


def _any_port(masks: Sequence[Sequence[int]], hosts: int) -> list[int]:
    return [_union(port[host] for port in masks) for host in range(hosts)]


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def peers(box: Box, sides: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """How many sources, and how many targets, the given cells (source, targets) have; of one host its peers."""
    sources = targets = 0
    for source, mask in sides:
        sources |= 1 << source
        targets |= mask
    if len(box.hosts) != 1:
        return sources.bit_count(), targets.bit_count()
    number = ((sources | targets) & ~(1 << box.hosts[0])).bit_count()
    return number, number
