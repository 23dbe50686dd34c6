"""The matrix of a network test: each host's attempts to reach each other host, port by port, both ways.

A cell is one attempt: from a source host, to a target host, on a port. Hosts and ports are numbered by their place in
`Matrix.hosts` and `Matrix.ports`. Outcomes are kept as one letter a cell, one text a source and port, so that 256 hosts
and 34 ports (2.2 million cells) stay small in memory and in JSON; what needs more than a letter is an `Attempt`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import msgspec

from doctor.engine.texts import filled, joined

MAX_HOSTS, MAX_PORTS = 10_000, 128
EPHEMERAL = ("ephemeral", "ephemeral-high")
"""Purposes of the two ports that the kernel gives: of the lower half of its range, and of the upper one."""
MAX_DETAIL = 200
"""Characters of a detail."""
ARP_ANSWERED, ARP_SILENT = "ARP is answered", "ARP is not answered"
"""Details of attempts without an answer to hosts on the source's own network, by the source's kernel."""
ARRIVED = "its packet arrives, the answer does not come back"
MAX_BYTES = 1 << 50
MAX_SECONDS = 3600.0


class AttemptOutcome(enum.Enum):
    """What came of one attempt."""

    OPEN = "open"
    """The listener of this run answered with the run's token; for a service that is not ours, it accepted."""
    REFUSED = "refused"
    """A reset, although the target listens: a rule that rejects, or another network namespace."""
    DROPPED = "dropped"
    """No answer within the time limit."""
    UNREACHABLE = "unreachable"
    """An ICMP error, or no route; the detail says which."""
    BOUND = "bound"
    """Another process of the target holds the port, as the target itself says; the detail names the process."""
    NO_LISTENER = "no listener"
    """The target could not listen for another reason, as it says itself: no such address, no permission."""
    STRANGER = "stranger"
    """Something answered that does not know the run's token: another machine, a proxy, another process."""
    HALF_OPEN = "half-open"
    """Small packets pass, full-size ones do not; `Attempt.largest_bytes` is the largest size that passes."""
    SOME_FLOWS = "some flows"
    """It fails each time or passes each time, as the source port is: some flows of the pair are lost, on every port."""
    WRONG_HOST = "wrong host"
    """Another host of this run answered; `Attempt.answered_by` is that host."""
    DISPUTED = "disputed"
    """The source says open, and the target did not see it. Neither healthy nor failed."""
    UNKNOWN = "unknown"
    """Tried, and what came of it says nothing: the target's own answer is not there. Neither healthy nor failed."""
    NOT_NEEDED = "not needed"
    """It fails, and the job connects these two hosts the other way round, which is open."""
    NOT_TRIED = "not tried"


LETTERS: dict[AttemptOutcome, str] = {
    AttemptOutcome.OPEN: "o",
    AttemptOutcome.REFUSED: "r",
    AttemptOutcome.DROPPED: "d",
    AttemptOutcome.UNREACHABLE: "u",
    AttemptOutcome.BOUND: "b",
    AttemptOutcome.NO_LISTENER: "n",
    AttemptOutcome.STRANGER: "s",
    AttemptOutcome.HALF_OPEN: "h",
    AttemptOutcome.SOME_FLOWS: "f",
    AttemptOutcome.WRONG_HOST: "w",
    AttemptOutcome.DISPUTED: "!",
    AttemptOutcome.UNKNOWN: "?",
    AttemptOutcome.NOT_NEEDED: "v",
    AttemptOutcome.NOT_TRIED: ".",
}
"""The letter of each outcome in the rows of a matrix."""
OUTCOMES = {letter: outcome for outcome, letter in LETTERS.items()}
FAILING = "rdubnshfw"
"""The letters of attempts that failed. `o` worked; all others are neither."""
PARTLY = "fh"
"""Those of them where some connections, or small packets, pass."""
UNTRIED = "."


class TestedPort(msgspec.Struct, frozen=True, omit_defaults=True):
    """One port, or one purpose, that attempts are made for.

    >>> TestedPort("hccl", 60000).label
    'hccl 60000'
    """

    __test__ = False  # the name is no test's, to pytest either

    purpose: str
    """``master``, ``hccl``, ``npu``, ``scheduler``, one of `EPHEMERAL`, ``ssh``, ``npu-ping``, ``mtu``."""
    number: int = 0
    """TCP port; 0 where each host has its own (ephemeral), or where there is none (ping)."""

    @property
    def label(self) -> str:
        return f"{self.purpose} {self.number}" if self.number else self.purpose


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt, with what a letter cannot say."""

    source: int
    target: int
    """Hosts, by their place in `Matrix.hosts`."""
    port: int
    """By its place in `Matrix.ports`."""
    outcome: AttemptOutcome
    detail: str = ""
    """As the source put it: an errno, an ICMP code, the process that holds the port."""
    seconds: float = 0.0
    """Until it was decided; 0 when that is not known."""
    largest_bytes: int = 0
    """Of a half-open path: the largest packet that passes, in bytes; 0 when that is not known."""
    answered_by: int = -1
    """Of a wrong host: the host that answered; -1 when that is not known."""


class ListenerState(enum.Enum):
    """Whether a host can be reached on one of its ports, as far as it knows itself."""

    LISTENING = "listening"
    """This run's own temporary listener."""
    EXTERNAL = "external"
    """A service that is not ours listens, as is right: sshd on its port."""
    BOUND = "bound"
    """Another process holds the port."""
    FAILED = "failed"
    """It could not listen for another reason."""


class PortListener(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a host says of one of its own ports."""

    host: int
    port: int
    """By its place in `Matrix.ports`."""
    state: ListenerState
    detail: str = ""
    """Process, command and age of the holder, or the error."""
    number: int = 0
    """The TCP port itself where each host has its own."""
    service: bool = False
    """A service of the host itself holds it."""


class PathSpeed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The speed from one host to another, as the source measured it; None where it was not measured."""

    source: int
    target: int
    latency_median: float | None = None
    """Seconds there and back."""
    latency_p99: float | None = None
    throughput_single: float | None = None
    """Bytes a second of one stream."""
    throughput_multi: float | None = None
    """Bytes a second of several streams together."""
    retransmissions: int | None = None
    """Segments sent again during the test, from TCP_INFO."""
    bytes: int = 0
    """Sent during the test."""
    latency_least: float | None = None
    """Seconds of the quickest round trip: a busy host has quick ones too."""
    arrival_single: float | None = None
    """Bytes a second at which the packets of one stream arrived while they did, by the time stamps of the target's
    kernel: what the network carries, independent of how fast the programs of both ends sent."""
    arrival_multi: float | None = None
    """The same of several streams."""
    waited: float = 0.0
    """The share of the time that a program of either end waited for a CPU."""


class HostAnswer(msgspec.Struct, frozen=True):
    """What one host says: of its own attempts and its own ports. `read_answer` makes it from foreign data."""

    host: int
    rows: tuple[str, ...]
    """For each port one letter for each target."""
    attempts: tuple[Attempt, ...] = ()
    """Those that need more than a letter."""
    listeners: tuple[PortListener, ...] = ()
    speeds: tuple[PathSpeed, ...] = ()
    to_itself: str = ""
    """For each port the letter of its attempt to itself; ``-`` where it made none."""
    accepted: tuple[str, ...] = ()
    """For each port one letter for each source: ``o`` where its authenticated session arrived. Empty: not recorded."""
    rejected: int = 0
    """Statements that were not its own to make, or made no sense."""


class Matrix(msgspec.Struct, frozen=True):
    """All attempts of a run. `msgspec.to_builtins` makes plain JSON data of it, `msgspec.convert` reads them again.

    >>> matrix = Matrix(("a", "b"), (TestedPort("master", 29500),), (("-o", "d-"),))
    >>> list(matrix.failures())
    [(1, 0, 0, <AttemptOutcome.DROPPED: 'dropped'>)]
    >>> str(matrix.coverage())
    'tested 1 of 1 pair in both directions, 1 port'
    """

    hosts: tuple[str, ...]
    """In rank order. Names are as the user gave them, and untrusted."""
    ports: tuple[TestedPort, ...]
    rows: tuple[tuple[str, ...], ...]
    """For each port, for each source, one letter for each target; ``-`` for a host and itself."""
    attempts: tuple[Attempt, ...] = ()
    """Details of attempts that did not succeed, by source, target and port; source and target may be one host."""
    listeners: tuple[PortListener, ...] = ()
    speeds: tuple[PathSpeed, ...] = ()
    silent: tuple[int, ...] = ()
    """Hosts that gave no answer: nothing is known of them."""
    rejected: dict[int, int] = {}
    """Statements that were refused, by host."""
    shared: tuple[tuple[int, int], ...] = ()
    """Pairs of hosts, the lower first, where one says that it holds the address at which the other is tried."""
    to_itself: dict[int, str] = {}
    """By host, for each port the letter of its attempt to itself; ``-`` where it made none, or does not listen."""

    def failures(self) -> Iterator[tuple[int, int, int, AttemptOutcome]]:
        """Source, target, port and outcome of every attempt that failed."""
        for port, rows in enumerate(self.rows):
            for source, row in enumerate(rows):
                if row.translate(_DROP_FAILING) != row:
                    for target, letter in enumerate(row):
                        if letter in FAILING:
                            yield source, target, port, OUTCOMES[letter]

    def coverage(self) -> MatrixCoverage:
        number = len(self.hosts)
        decided = [0] * number
        tried = unknown = 0
        for rows in self.rows:
            for source, row in enumerate(rows):
                decided[source] |= bits(row, "ov" + FAILING)
                cells = len(row) - row.count(UNTRIED) - row.count("-")
                tried += cells
                unknown += row.count("?") + row.count("!")
        back = columns([format(mask, f"0{number}b")[::-1] if number else "" for mask in decided])
        both = sum((decided[host] & bits(back[host], "1")).bit_count() for host in range(number)) // 2
        either = sum((decided[host] | bits(back[host], "1")).bit_count() for host in range(number)) // 2
        used = sum(any(set(row) - {UNTRIED, "-"} for row in rows) for rows in self.rows)
        return MatrixCoverage(both, either, number * (number - 1) // 2, used, tried, unknown)


class MatrixCoverage(msgspec.Struct, frozen=True):
    """How much of a matrix is known: unknown attempts are not healthy ones."""

    pairs_both_ways: int
    """Pairs of hosts with a decided attempt in each direction."""
    pairs_either_way: int
    pairs: int
    """That the fleet has."""
    ports: int
    """That at least one attempt was made for."""
    attempts: int
    unknown: int
    """Attempts whose outcome says nothing."""

    def __str__(self) -> str:
        one_way = self.pairs_either_way - self.pairs_both_ways
        both = self.pairs_both_ways
        texts = [filled("tested {0} of {1} pairs in both directions", both, self.pairs)]
        texts += [filled("{0} more in one direction", one_way)] if one_way else []
        texts += [filled("{0} ports", self.ports)]
        texts += [filled("{0} of {1} attempts unknown", self.unknown, self.attempts)] if self.unknown else []
        return joined(", ", texts)


_DROP_FAILING = str.maketrans("", "", FAILING)
_BIT_TABLES: dict[str, dict[int, str]] = {}


def bits(row: str, letters: str) -> int:
    """A number whose bit ``t`` is set where the letter at place ``t`` of ``row`` is one of ``letters``.

    >>> bits("ood-", "o"), bits("ood-", "rd")
    (3, 4)
    """
    table = _BIT_TABLES.get(letters)
    if table is None:
        table = _BIT_TABLES[letters] = {code: "1" if chr(code) in letters else "0" for code in range(128)}
    return int(row[::-1].translate(table), 2) if row else 0


def columns(rows: list[str] | tuple[str, ...]) -> list[str]:
    """The columns of equally long rows.

    >>> columns(["ab", "cd"])
    ['ac', 'bd']
    """
    width, joined = len(rows[0]) if rows else 0, "".join(rows)
    return [joined[place::width] for place in range(width)]


def untried_rows(hosts: int, ports: int) -> list[list[str]]:
    """Rows of a matrix in which nothing was tried."""
    rows = [UNTRIED * host + "-" + UNTRIED * (hosts - host - 1) for host in range(hosts)]
    return [list(rows) for _ in range(ports)]
