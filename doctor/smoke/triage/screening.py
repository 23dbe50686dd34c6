"""Decides which hosts run together in each round, and which hosts are left out by the results. Pure.

The cells of a phase run at the same time. In phase p the hosts of a cell differ in digit p of their number, in the base
of the cell's size, so that after as many phases as the largest number has digits each host ran with hosts of every
part of the fleet. A cell that fails runs again without the host that it names; one that names no host is divided in
halves, and the last two hosts run with one healthy host each: the one that fails again is the culprit, and where
neither does, the fault lies between the two. A cell that did not end in time runs once more, then in halves. The run of
all healthy hosts is judged as a cell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from doctor.smoke.model import LeftOutHost

CELL_SIZE = 16
"""Hosts of a cell."""
SCREENED_HOSTS = 32
"""Fleets of more hosts than this are screened."""
MIN_CELL = 2
MOST_ROUNDS = 24
"""Then what is not decided stays so: a fleet in which every cell fails is no fleet with sick hosts."""

MIN_APART, APART_SHARE = 3, 16
"""Hosts, and one of so many of the fleet, that reach no others of their cells: they may be a part of a fleet that is
cut, which the run of all hosts tells. Which part is in the majority differs from cell to cell."""
APART = ("smoke-rank-never-joined", "smoke-network-silent")

Cell = tuple[str, ...]


def needs_screening(hosts: int, cell_size: int = 0) -> bool:
    """Whether so many hosts run in cells first; with a size of the user's, any fleet that is larger than a cell."""
    return hosts > (cell_size or SCREENED_HOSTS)


class CellResult(msgspec.Struct, frozen=True):
    """What became of one cell."""

    state: Literal["passed", "failed", "unfinished"]
    """unfinished: nothing is said against its hosts, such as where the time ran out."""
    named: tuple[str, ...] = ()
    """Hosts that the failure names; two where it is one of them, or what lies between."""
    sure: bool = True
    """All that are named are meant."""
    check: str = ""
    why: str = ""


class Screening:
    """Give each cell of `next_round` back to `note`, until there is none."""

    def __init__(self, hosts: Sequence[str], cell_size: int = CELL_SIZE) -> None:
        self.hosts, self.size = tuple(hosts), max(MIN_CELL, cell_size)
        self.left_out: dict[str, LeftOutHost] = {}
        self.links: dict[tuple[str, str], str] = {}
        """Pairs of hosts that fail together and pass apart, with what failed."""
        self.undecided: set[str] = set()
        """Hosts of cells that failed and in which no culprit could be found."""
        self.rounds = self.cells = 0
        self.seconds = 0.0
        self.abandoned = ""
        """Why the first round says nothing of single hosts; empty: it does."""
        self._first: dict[Cell, CellResult] = {}
        self.phase = -1
        self._queue: deque[Cell] = deque()
        self._passed: dict[str, None] = {}
        self._unfinished: set[Cell] = set()
        self._apart: dict[Cell, tuple[str, str]] = {}
        """The cells of a pair that is tried apart, each with the pair."""
        self._outcomes: dict[tuple[str, str], dict[str, CellResult]] = {}
        self._pair_failures: dict[tuple[str, str], CellResult] = {}

    @property
    def healthy(self) -> tuple[str, ...]:
        """Those that the run goes on with, in the fleet's order."""
        return tuple(host for host in self.hosts if host not in self.left_out)

    @property
    def phases(self) -> int:
        """So many times each host runs with others: the digits of the largest number."""
        count, largest = 1, len(self.hosts) - 1
        while largest >= self.size:
            count, largest = count + 1, largest // self.size
        return count

    def next_round(self) -> list[Cell]:
        """Cells without a common host, to run at the same time; none when all is done."""
        self._judge_fleet()
        if self.abandoned or self.rounds >= MOST_ROUNDS:
            return []
        if not self._queue:
            self.phase += 1
            if self.phase >= self.phases:
                return []
            self._queue.extend(self._arranged(self.phase))
        self.rounds += 1
        cells: list[Cell] = []
        busy: set[str] = set()
        for _ in range(len(self._queue)):
            cell = self._queue.popleft()
            if busy.isdisjoint(cell):
                busy.update(cell)
                cells.append(cell)
            else:
                self._queue.append(cell)
        self.cells += len(cells)
        return cells

    def _judge_fleet(self) -> None:
        """What fails everywhere has one cause, such as an interpreter without torch: the run of all hosts tells it."""
        apart = sum(row.check in APART for row in self.left_out.values())
        failed = [result for result in self._first.values() if result.state == "failed"]
        named = {host for result in failed for host in result.named}
        if apart >= max(MIN_APART, len(self.hosts) // APART_SHARE):
            self.abandoned = "many hosts do not reach others: the network may be cut into parts"
        elif self.rounds == 1 and 2 * len(named) > len(self.hosts):
            self.abandoned = "most hosts failed in the first round"
        elif self.rounds == 1 and len(failed) == len(self._first) and not named:
            self.abandoned = "every cell failed in the first round, and named no host"
        if self.abandoned:
            self.left_out.clear()
            self.links.clear()
            self._queue.clear()

    def give_up(self) -> None:
        """There is no more round: hosts that still had to run are not decided."""
        self.undecided.update(host for cell in self._queue for host in cell)
        self.undecided.update(host for cell in self._unfinished for host in cell if host not in self._passed)
        self.undecided.difference_update(self.left_out)
        self._queue.clear()

    def _arranged(self, phase: int) -> list[Cell]:
        """The cells of a phase: hosts whose numbers differ in one digit alone. Smaller ones are joined."""
        stride = self.size**phase
        cells: dict[int, list[str]] = {}
        for number, host in enumerate(self.hosts):
            if host not in self.left_out:
                digit = number // stride % self.size
                cells.setdefault(number - digit * stride, []).append(host)
        joined: list[list[str]] = []
        for cell in cells.values():
            if joined and len(joined[-1]) + len(cell) <= self.size:
                joined[-1] += cell
            else:
                joined.append(list(cell))
        if len(joined) > 1 and len(joined[-1]) < MIN_CELL:
            lone = joined.pop()
            joined[-1] += lone
        return [tuple(cell) for cell in joined]

    def note(self, cell: Cell, result: CellResult) -> None:
        if self.rounds == 1:
            self._first[cell] = result
        if cell in self._apart:
            self._note_apart(cell, self._apart.pop(cell), result)
        elif result.state == "passed":
            self._passed.update(dict.fromkeys(cell))
        elif result.state == "failed":
            self._note_failure(cell, result)
        elif cell not in self._unfinished:
            self._unfinished.add(cell)
            self._repeat(cell)
        elif len(cell) > 1:
            self._unfinished.update(self._halve(cell))

    def leaves_out_more(self, result: CellResult) -> bool:
        """Whether the run of all healthy hosts names some of them, and is worth another one without these."""
        named = [host for host in result.named if host in self.healthy]
        if self.abandoned or not (named and result.sure and 2 * len(named) < len(self.healthy)):
            return False
        self.rounds += 1
        self._leave_out(named, result)
        return True

    def _note_failure(self, cell: Cell, result: CellResult) -> None:
        named = tuple(host for host in result.named if host in cell)
        rest = tuple(host for host in cell if host not in named)
        if named and result.sure and (2 * len(named) <= len(cell) or len(cell) <= MIN_CELL):
            self._leave_out(named, result)
            self._repeat(rest)
        elif len(named) == 2:
            self._try_apart((named[0], named[1]), result)
            self._repeat(rest)
        elif len(cell) == 2:
            self._try_apart((cell[0], cell[1]), result)
        elif len(cell) == 1:
            self._leave_out(cell, result)
        else:
            self._halve(cell)

    def _halve(self, cell: Cell) -> list[Cell]:
        middle = (len(cell) + 1) // 2
        return [self._repeat(cell[:middle]), self._repeat(cell[middle:])]

    def _repeat(self, hosts: Iterable[str]) -> Cell:
        cell = tuple(host for host in hosts if host not in self.left_out)
        if cell:
            self._queue.append(cell)
        return cell

    def _try_apart(self, pair: tuple[str, str], result: CellResult) -> None:
        """Each of the two with a host that passed, another one for each."""
        if pair in self._pair_failures:
            self.links[pair] = result.why
            return
        self._pair_failures[pair] = result
        partners = [host for host in self._passed if host not in pair and host not in self.left_out][-2:]
        if len(partners) < 2:
            self.undecided.update(pair)
            return
        for host, partner in zip(pair, partners, strict=True):
            cell = (host, partner)
            self._apart[cell] = pair
            self._queue.append(cell)

    def _note_apart(self, cell: Cell, pair: tuple[str, str], result: CellResult) -> None:
        outcomes = self._outcomes.setdefault(pair, {})
        outcomes[cell[0]] = result
        if result.state == "failed":
            self._leave_out(cell[:1], result)
        if len(outcomes) == 2 and all(outcome.state == "passed" for outcome in outcomes.values()):
            self.links[pair] = self._pair_failures[pair].why
        if len(outcomes) == 2 and any(outcome.state == "unfinished" for outcome in outcomes.values()):
            self.undecided.update(host for host in pair if host not in self.left_out)

    def _leave_out(self, hosts: Iterable[str], result: CellResult) -> None:
        for host in hosts:
            self.left_out.setdefault(host, LeftOutHost(host, result.check, result.why, self.rounds))
            self._passed.pop(host, None)
