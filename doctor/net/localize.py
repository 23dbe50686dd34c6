"""The fewest causes that explain every failure of a matrix. Pure.

A cause is a box of cells: all attempts to a host, from a group to another, of one pair. It is constant when every
attempt in it failed, on the ports that it names. Constant boxes of several pairs are taken first, the one that explains
most before all others (greedy set cover); then boxes in which failures come and go, or in which a single host reports
success; what is left are single links and directions.

What was not tried, or is unknown, counts neither as healthy nor as failed: it contradicts no box, and supports none.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain, islice
from operator import or_

import msgspec

from doctor.net.assemble import NO_ROUTE
from doctor.net.boxes import (
    MOST_GROUP_PAIRS,
    Box,
    cut_box,
    direction_box,
    fleet_boxes,
    group_pair_boxes,
    host_and_group_boxes,
    host_box,
    link_box,
    one_to_group_boxes,
    one_way,
    peers,
)
from doctor.net.cause import NetworkCause
from doctor.net.grid import CellMap, Grid, Rectangle, mask_of, members
from doctor.net.host_groups import PART, HostGroup, connected_parts, partitions, parts_without_majority
from doctor.net.matrix import FAILING, LETTERS, OUTCOMES, AttemptOutcome, Matrix

MOST_CAUSES = 200
"""Links and directions named one by one; what is more is counted."""
PARTIAL_PASSES = 16
PARTIAL_PEERS, PARTIAL_SHARE, PARTIAL_GROUP_SHARE = 3, 0.5, 0.8
"""A host whose failures come and go fails with so many peers, and with such a share of them; two groups with such
a share of their pairs."""


class Localization(msgspec.Struct, frozen=True):
    """The causes of a matrix's failures."""

    causes: tuple[NetworkCause, ...] = ()
    """What explains most first."""
    more: int = 0
    """Pairs of hosts with failures that are not among the causes, because there are too many."""


class _Pick(msgspec.Struct):
    """A box that was chosen, and the ports that it explains."""

    box: Box
    ports: list[int]
    possible: frozenset[int] = frozenset()
    """The ports on which it would explain all that failed in the box, be that explained by another one or not."""

    def may_explain(self, port: int, source: int, targets: int) -> bool:
        """Whether it explains the failures from a source to these targets, on this port or as well there."""
        inside = any(side.sources >> source & 1 and not targets & ~side.targets for side in self.box.rectangles)
        return inside and (port in self.ports or port in self.possible)


def localize(matrix: Matrix, groups: Sequence[HostGroup] = ()) -> Localization:
    """The fewest causes of all failures of ``matrix``; none when nothing failed.

    >>> from doctor.net.matrix import TestedPort
    >>> rows = ("-oodo", "o-odo", "oo-do", "ooo-o", "oood-")
    >>> for cause in localize(Matrix(tuple("abcde"), (TestedPort("master", 29500),), (rows,))).causes:
    ...     print(cause.kind, cause.hosts, cause.way, cause.outcomes)
    host (3,) inbound {'dropped': 4}
    """
    cells = CellMap(matrix)
    located = _Search(matrix, cells, groups).result() if cells.failing_ports else Localization()
    to_itself = tuple(_to_themselves(matrix, located.causes))
    return msgspec.structs.replace(located, causes=(*located.causes, *to_itself)) if to_itself else located


def _to_themselves(matrix: Matrix, causes: Sequence[NetworkCause]) -> Iterator[NetworkCause]:
    """Hosts whose attempts to themselves failed, unless what fails to them from others is the cause of that as well."""
    for host, letters in matrix.to_itself.items():
        outcomes = Counter(OUTCOMES[letter].value for letter in letters if letter in FAILING)
        ports = tuple(port for port, letter in enumerate(letters) if letter in FAILING)
        inbound = (cause for cause in causes if cause.kind == "host" and cause.way != "outbound")
        if ports and not any(cause.hosts == (host,) and {*ports} <= {*cause.ports} for cause in inbound):
            yield NetworkCause(
                "itself",
                (host,),
                ports=ports,
                all_ports="o" not in letters,
                failed=len(ports),
                outcomes=dict(outcomes.most_common()),
            )


class _Search:
    """Chooses boxes until every failed cell is explained."""

    def __init__(self, matrix: Matrix, cells: CellMap, groups: Sequence[HostGroup]) -> None:
        self.matrix, self.cells, self.groups = matrix, cells, groups
        self.refused = list(self._refused_by_sources())
        self.remaining = cells.failed.copy()
        self.picks: list[_Pick] = []
        self.more = 0

    def result(self) -> Localization:
        self._own_statements()
        self._shared_addresses()
        fleet = list(fleet_boxes(self.cells))
        self._constant(fleet)
        boxes = list(host_and_group_boxes(self.cells, self.remaining, self.groups))
        divisions = partitions(self.cells.open, self.cells.failing_ports)
        parts = connected_parts(divisions, self.matrix.hosts)
        self._constant([*boxes, *self._cuts_of_groups(parts), *self._cuts_without_majority(divisions)])
        one_sided = list(islice(one_to_group_boxes(self.cells, self.remaining, self.groups), MOST_GROUP_PAIRS + 1))
        self._constant(one_sided if len(one_sided) <= MOST_GROUP_PAIRS else ())
        cuts = list(group_pair_boxes(self.cells, self.remaining, parts))
        self._constant(cuts)
        self._partial([*boxes, *cuts, *fleet])
        self._more_of_hosts()
        self._pairs()
        self._join_ports()
        exclusive = self._drop_redundant()
        counts = {letter: Grid.of(self.matrix, letter) for letter in FAILING if self._occurs(letter)}
        causes = [self._cause(pick, cells, counts) for pick, cells in zip(self.picks, exclusive, strict=True)]
        causes += [self._cause(pick, cells, counts) for pick, cells in self.refused]
        return Localization(tuple(sorted(causes, key=lambda cause: (-cause.failed, cause.hosts))), self.more)

    def _cuts_of_groups(self, parts: Iterable[HostGroup]) -> list[Box]:
        """Between parts of a cut fleet that are larger than any group: else each pair of groups were a cause."""
        largest = max((len(group.hosts) for group in self.groups), default=0)
        return list(group_pair_boxes(self.cells, self.remaining, [part for part in parts if len(part.hosts) > largest]))

    def _cuts_without_majority(self, divisions: Iterable[Sequence[int]]) -> Iterator[Box]:
        """Between three parts or more; a host without any report is not a part."""
        for masks in divisions:
            reported = [
                mask for mask in masks if any(rows[host] for rows in self.cells.failed.rows for host in members(mask))
            ]
            if parts := parts_without_majority(reported, self.matrix.hosts):
                yield cut_box(parts, self.groups)

    def _occurs(self, letter: str) -> bool:
        return any(letter in row for rows in self.matrix.rows for row in rows)

    def _take(self, box: Box, ports: list[int], possible: Sequence[int] = ()) -> None:
        self.picks.append(_Pick(box, ports, frozenset(possible)))
        for port in ports:
            for side in box.rectangles:
                self.remaining.clear(port, side)

    def _refused_by_sources(self) -> Iterator[tuple[_Pick, list[tuple[int, int, int]]]]:
        """Takes out what the kernel of one source alone refuses to send to one target: no box of others has it."""
        refused: dict[tuple[int, int], list[int]] = {}
        for attempt in self.matrix.attempts:
            if attempt.detail.startswith(NO_ROUTE) and attempt.source != attempt.target:
                refused.setdefault((attempt.source, attempt.target), []).append(attempt.port)
        ends = Counter(chain.from_iterable(refused))
        for (source, target), ports in refused.items():
            if ends[source] == ends[target] == 1:
                pick = _Pick(direction_box(source, target), sorted(ports))
                for port in pick.ports:
                    self.cells.failed.clear(port, pick.box.rectangles[0])
                yield pick, [(port, source, 1 << target) for port in pick.ports]

    def _own_statements(self) -> None:
        """A port that its own host cannot listen on is that host's, whoever tried it."""
        letters = LETTERS[AttemptOutcome.BOUND] + LETTERS[AttemptOutcome.NO_LISTENER]
        if not any(map(self._occurs, letters)):
            return
        stated = Grid.of(self.matrix, letters)
        for host in range(self.cells.hosts):
            if ports := [port for port in self.cells.failing_ports if stated.by_target[port][host]]:
                self._take(host_box(host, "inbound", self.cells.everyone), ports)

    def _shared_addresses(self) -> None:
        """Two hosts with one address: all that fails to or from them, as both of their configurations say.

        Else what is meant for the one reaches the other, as at least two sources say.
        """
        for pair in self.matrix.shared:
            mask = mask_of(pair)
            everyone = self.cells.everyone
            box = Box("address", (Rectangle(everyone, mask), Rectangle(mask, everyone & ~mask)), pair)
            if ports := [port for port in self.cells.failing_ports if self._gain(box, [port])]:
                self._take(box, ports)
        wrong: dict[tuple[int, int], dict[tuple[int, int], list[int]]] = {}
        for attempt in self.matrix.attempts:
            if attempt.outcome is AttemptOutcome.WRONG_HOST and attempt.answered_by not in (-1, attempt.target):
                low, high = sorted((attempt.target, attempt.answered_by))
                cell = (attempt.source, attempt.target)
                wrong.setdefault((low, high), {}).setdefault(cell, []).append(attempt.port)
        for pair, cells in wrong.items():
            if pair in self.matrix.shared or len({source for source, _ in cells}) < 2:
                continue
            sides = tuple(
                Rectangle(mask_of(source for source, to in cells if to == target), 1 << target)
                for target in pair
                if any(to == target for _, to in cells)
            )
            ports = sorted({port for tried in cells.values() for port in tried})
            self._take(Box("address", sides, pair), ports)

    # -- constant boxes

    def _constant(self, boxes: Sequence[Box]) -> None:
        """Greedy: the box that explains most of what remains. That only shrinks, so an old count is a bound."""
        ports_of = [self._constant_ports(box) for box in boxes]
        heap = [
            (-self._gain(box, ports), *box.rank, place)
            for place, (box, ports) in enumerate(zip(boxes, ports_of, strict=True))
            if ports
        ]
        heapq.heapify(heap)
        while heap:
            bound, *_, place = heapq.heappop(heap)
            box, ports = boxes[place], ports_of[place]
            gain = self._gain(box, ports)
            if not gain:
                continue
            if -gain > bound:
                heapq.heappush(heap, (-gain, *box.rank, place))
            elif self._is_spread(box, ports):
                self._take(box, [port for port in ports if self._gain(box, [port])], ports)

    def _constant_ports(self, box: Box) -> list[int]:
        """The ports on which nothing in the box worked and something failed, on each of its sides on one of them."""
        failed, opened = self.cells.failed, self.cells.open
        ports = [
            port
            for port in self.cells.failing_ports
            if any(failed.any(port, side) for side in box.rectangles)
            and not any(opened.any(port, side) for side in box.rectangles)
        ]
        both = all(any(failed.any(port, side) for port in ports) for side in box.rectangles)
        return ports if both else []

    def _gain(self, box: Box, ports: Sequence[int]) -> int:
        return sum(self.remaining.count(port, side) for port in ports for side in box.rectangles)

    def _is_spread(self, box: Box, ports: Sequence[int]) -> bool:
        """Whether what remains in the box is of two hosts at least, on either end that the box leaves open."""
        rest = [cell for port in ports for side in box.rectangles for cell in self.remaining.cut(port, side)]
        sources, targets = peers(box, rest)
        return min(sources, targets) >= 2

    # -- boxes in which failures come and go

    def _partial(self, boxes: Sequence[Box]) -> None:
        """Greedy as well, in passes: a box that shares cells with one that was taken is weighed again in the next."""
        for _ in range(PARTIAL_PASSES):
            if not any(map(any, self.remaining.rows)):
                return
            failed, decided = self._by_pair()
            numbers = [(_partial_pairs(box, failed, decided), box) for box in boxes]
            likely = sorted((item for item in numbers if item[0]), key=lambda item: (-item[0], item[1].rank))
            for number, box in likely:
                if _partial_pairs(box, failed, decided) == number:
                    self._take(box, [port for port in self.cells.failing_ports if self._gain(box, [port])])
                    for side in box.rectangles:
                        failed.clear(0, side)
            if not likely:
                return

    def _by_pair(self) -> tuple[Grid, Grid]:
        """What remains, and what remains or worked, on any port."""

        def joined(*tables: Sequence[Sequence[int]]) -> list[list[int]]:
            return [[reduce(or_, masks) for masks in zip(*chain(*tables), strict=True)]]

        failed, worked = self.remaining, self.cells.open
        remaining = Grid(joined(failed.rows), joined(failed.by_target))
        return remaining, Grid(joined(failed.rows, worked.rows), joined(failed.by_target, worked.by_target))

    # -- single links and directions

    def _more_of_hosts(self) -> None:
        """What is left with two others of a host that is named already, the same way, is no cause of its own."""
        rest = self._by_pair()[0]
        for box in [pick.box for pick in self.picks if pick.box.kind == "host"]:
            remaining_cells = [cell for side in box.rectangles for cell in rest.cut(0, side)]
            if remaining_cells and min(peers(box, remaining_cells)) >= 2:
                self._take(box, [port for port in self.cells.failing_ports if self._gain(box, [port])])

    def _pairs(self) -> None:
        rest = self._by_pair()[0]
        for source in range(self.cells.hosts):
            for target in members(rest.rows[0][source]):
                back = rest.rows[0][target] >> source & 1
                if back and target < source:
                    continue
                if len(self.picks) >= MOST_CAUSES:
                    self.more += 1
                    continue
                box = link_box(source, target) if back else direction_box(source, target)
                self._take(box, [port for port in self.cells.failing_ports if self._gain(box, [port])])

    # -- from boxes to causes

    def _join_ports(self) -> None:
        """Joins the picks of one box on different ports; and those of a host's two ways, on the same ports."""
        joined: dict[tuple[object, ...], _Pick] = {}
        for pick in self.picks:
            box = pick.box
            key = (box.kind, box.hosts, box.way, tuple(group.hosts for group in box.groups))
            if key in joined:
                joined[key].ports = sorted({*joined[key].ports, *pick.ports})
            else:
                joined[key] = pick
        for place, pick in list(joined.items()):
            back = joined.get(("host", pick.box.hosts, "outbound", ()))
            inward = pick.box.kind == "host" and pick.box.way == "inbound"
            if inward and back is not None and back.ports == pick.ports:
                del joined[place]
                back.box = host_box(pick.box.hosts[0], "both", self.cells.everyone)
        self.picks = list(joined.values())

    def _drop_redundant(self) -> list[list[tuple[int, int, int]]]:
        """Leaves out what others explain whole; returns what each of the rest alone explains: port, source, targets."""
        while True:
            once: dict[tuple[int, int], int] = {}
            twice: dict[tuple[int, int], int] = {}
            for pick in self.picks:
                for port, source, targets in self._cells_of(pick):
                    before = once.get((port, source), 0)
                    twice[port, source] = twice.get((port, source), 0) | before & targets
                    once[port, source] = before | targets
            exclusive = [
                [
                    (port, source, alone)
                    for port, source, targets in self._cells_of(pick)
                    if (alone := targets & ~twice.get((port, source), 0))
                ]
                for pick in self.picks
            ]
            empty = [place for place, cells in enumerate(exclusive) if not cells]
            if empty:
                del self.picks[min(empty, key=lambda place: self.picks[place].box.area)]
            elif not self._narrow(exclusive):
                return exclusive

    def _narrow(self, exclusive: Sequence[Sequence[tuple[int, int, int]]]) -> bool:
        """Leaves out one way of a box of both ways, where others may explain all that failed that way."""
        for pick, cells in zip(self.picks, exclusive, strict=True):
            if len(pick.box.rectangles) != 2 or pick.box.kind not in ("host", "border", "groups"):
                continue
            for number, side in enumerate(pick.box.rectangles):
                inside = [cell for cell in cells if side.sources >> cell[1] & 1 and side.targets & cell[2]]
                others = [self._other_pick(pick, cell) for cell in inside]
                if len(inside) < len(cells) and all(others):
                    for other, (port, _, _) in zip(others, inside, strict=True):
                        if other is not None:
                            other.ports = sorted({*other.ports, port})
                    pick.box = one_way(pick.box, 1 - number)
                    rest = pick.box.rectangles[0]
                    pick.ports = [port for port in pick.ports if self.cells.failed.any(port, rest)]
                    return True
        return False

    def _other_pick(self, pick: _Pick, cell: tuple[int, int, int]) -> _Pick | None:
        return next((other for other in self.picks if other is not pick and other.may_explain(*cell)), None)

    def _cells_of(self, pick: _Pick) -> Iterator[tuple[int, int, int]]:
        for port in pick.ports:
            for side in pick.box.rectangles:
                for source, targets in self.cells.failed.cut(port, side):
                    yield port, source, targets

    def _cause(self, pick: _Pick, exclusive: Sequence[tuple[int, int, int]], counts: dict[str, Grid]) -> NetworkCause:
        """What failed in another way only where another cause explains it as well says nothing of this one."""
        sides, box = pick.box.rectangles, pick.box
        outcomes = {
            OUTCOMES[letter].value: number
            for letter, grid in counts.items()
            if any(grid.rows[port][source] & targets for port, source, targets in exclusive)
            and (number := sum(grid.count(port, side) for port in pick.ports for side in sides))
        }
        opened = sum(self.cells.open.count(port, side) for port in pick.ports for side in sides)
        others = (port for port in range(self.cells.ports) if port not in set(pick.ports))
        return NetworkCause(
            box.kind,
            box.hosts,
            box.groups,
            box.way,
            tuple(pick.ports),
            not any(self.cells.open.any(port, side) for port in others for side in sides),
            sum(outcomes.values()),
            opened,
            dict(sorted(outcomes.items(), key=lambda item: -item[1])),
            tuple(self._candidates(box, exclusive)),
            self._blamed(box),
        )

    def _blamed(self, box: Box) -> tuple[int, ...]:
        """Of a border, or a cut between two parts of the fleet: see `NetworkCause.blamed`."""
        sides = [mask_of(group.hosts) for group in box.groups]
        if box.kind == "border":
            sides.append(self.cells.everyone & ~sides[0])
        elif len(sides) != 2 or any(group.kind != PART for group in box.groups):
            return ()
        small, large = sorted(sides, key=lambda mask: (mask.bit_count(), mask))
        return tuple(members(small if 2 * small.bit_count() <= large.bit_count() else small | large))

    def _candidates(self, box: Box, exclusive: Sequence[tuple[int, int, int]]) -> Iterator[NetworkCause]:
        """What else explains the same, when too few hosts were tried to tell."""
        if box.kind == "fleet" and self.cells.hosts <= 3:
            yield from (NetworkCause("host", (host,)) for host in range(self.cells.hosts))
        if box.kind not in ("link", "direction"):
            return
        ports = sorted({port for port, _, _ in exclusive})
        first, second = box.hosts
        ways = (("both", "both"),) if box.kind == "link" else (("outbound", "inbound"),)
        for host, way in zip((first, second), ways[0], strict=True):
            other = host_box(host, way, self.cells.everyone)  # type: ignore[arg-type]
            if not any(self.cells.open.any(port, side) for port in ports for side in other.rectangles):
                yield NetworkCause("host", (host,), (), other.way, tuple(ports))


def _partial_pairs(box: Box, failed: Grid, decided: Grid) -> int:
    """Failed pairs of the box if they are many enough, with each of its sides for itself; else 0."""
    total = 0
    for side in box.rectangles:
        bad, tried = failed.count(0, side), decided.count(0, side)
        share = PARTIAL_SHARE if box.kind == "host" else PARTIAL_GROUP_SHARE
        if bad < PARTIAL_PEERS or bad < share * tried:
            return 0
        if box.kind != "host" and min(peers(box, failed.cut(0, side))) < 2:
            return 0
        total += bad
    return total
