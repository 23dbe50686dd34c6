"""The matrix of a network test, from the answers in the hosts' records. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.check import once_per_fleet
from doctor.engine.fact import PerHost, Unreadable
from doctor.engine.sanitize import strip_control_chars
from doctor.facts.network_test import NetworkAnswer
from doctor.net.host_groups import MAX_GROUPS, HostGroup
from doctor.net.matrix import (
    EPHEMERAL,
    FAILING,
    LETTERS,
    MAX_BYTES,
    MAX_DETAIL,
    MAX_SECONDS,
    OUTCOMES,
    UNTRIED,
    Attempt,
    AttemptOutcome,
    HostAnswer,
    ListenerState,
    Matrix,
    PathSpeed,
    PortListener,
    TestedPort,
    untried_rows,
)
from doctor.net.plan import schedule_for
from doctor.net.schedule import Schedule

MAX_STATED = 100_000
NO_ROUTE = "no way to it"
"""How the detail of an attempt begins that the source's own routes forbid."""
LARGE_LOST_THERE, LARGE_LOST_BACK = "full-size packets to it are lost", "full-size packets from it are lost"
"""Which way of a half-open connection loses full-size packets."""

_WITHOUT_ANSWER = (AttemptOutcome.DROPPED, AttemptOutcome.SOME_FLOWS)
_ONE_WAY = (*_WITHOUT_ANSWER, AttemptOutcome.REFUSED, AttemptOutcome.UNREACHABLE)
"""Of attempts whose connection may open the other way round."""


MOST_MEASUREMENTS = 128
"""Of the speed of one path: those that look slow are measured again, each time beside one that does not."""
MAX_ATTEMPTS_OF_A_HOST = 2_000
"""Details kept of one host; its rows are always kept whole."""
_CLAIMABLE = "ordushfw?."
"""What a source may say of an attempt; that a port is bound, its own host says."""


class MalformedAnswer(Exception):
    """An answer that is not of the agreed form at all: one line."""


def read_answer(host: int, answer: object, hosts: int, ports: int) -> HostAnswer:
    """The answer of ``host``, from parsed JSON, bounded.

    ``answer`` is an object with ``rows`` (``ports`` texts of ``hosts`` letters of `matrix.LETTERS`), and, if there are
    any, ``attempts``, ``listeners``, ``speeds`` (objects with the fields of `Attempt`, `PortListener`, `PathSpeed`,
    without ``source`` or ``host``) and ``accepted``. What is not this host's to say, or makes no sense, is counted and
    dropped.

    Raises: MalformedAnswer.

    >>> read_answer(0, {"rows": ["-o"], "listeners": [{"port": 0, "state": "listening"}]}, 2, 1).rows
    ('-o',)
    """
    if not isinstance(answer, dict):
        raise MalformedAnswer("its answer is no object")
    reader = _Reader(host, hosts, ports)
    rows = reader.rows(answer.get("rows", ()), _CLAIMABLE)
    accepted = reader.rows(answer["accepted"], "o.") if "accepted" in answer else ()
    to_itself = "".join(reader.to_itself(answer.get("rows", ())))
    attempts = tuple(reader.attempts(answer.get("attempts", ()), rows, to_itself))
    listeners = tuple(reader.listeners(answer.get("listeners", ())))
    speeds = tuple(reader.speeds(answer.get("speeds", ())))
    return HostAnswer(host, rows, attempts, listeners, speeds, to_itself, accepted, reader.rejected)


class _Reader:
    """Reads one host's answer and counts what it refuses."""

    def __init__(self, host: int, hosts: int, ports: int) -> None:
        self.host, self.hosts, self.ports = host, hosts, ports
        self.rejected = 0

    def rows(self, texts: Any, letters: str) -> tuple[str, ...]:
        """For each port a row of the right length, of known letters; anything else is not tried."""
        sent = texts if isinstance(texts, list | tuple) else ()
        blank = UNTRIED * self.hosts
        rows = []
        self.rejected += abs(len(sent) - self.ports)
        for port in range(self.ports):
            row = sent[port] if port < len(sent) else blank
            if not isinstance(row, str) or len(row) != self.hosts:
                self.rejected += 1
                row = blank
            row = row[: self.host] + UNTRIED + row[self.host + 1 :]
            if row.strip(letters):  # quick for what is right: nothing is left
                cleaned = "".join(letter if letter in letters else "?" for letter in row)
                self.rejected += sum(before != after for before, after in zip(row, cleaned, strict=True))
                row = cleaned
            rows.append(row[: self.host] + "-" + row[self.host + 1 :])
        return tuple(rows)

    def to_itself(self, texts: Any) -> Iterator[str]:
        """For each port the letter of the host's attempt to itself, which stands in its own place of the row."""
        sent = texts if isinstance(texts, list | tuple) else ()
        for port in range(self.ports):
            row = sent[port] if port < len(sent) else ""
            letter = row[self.host] if isinstance(row, str) and len(row) == self.hosts else "-"
            yield letter if letter in _CLAIMABLE else "-"

    def attempts(self, items: Any, rows: Sequence[str], to_itself: str) -> Iterator[Attempt]:
        """Details; each of them agrees with its letter in ``rows``, or ``own``."""
        earlier: set[tuple[int, int]] = set()
        for item in self._objects(items, MAX_ATTEMPTS_OF_A_HOST):
            target, port = _index(item.get("target"), self.hosts), _index(item.get("port"), self.ports)
            source = item.get("source", self.host)
            if (
                target is None
                or port is None
                or (target == self.host and to_itself[port] not in FAILING)
                or source != self.host
                or (target, port) in earlier
            ):
                self.rejected += 1
                continue
            outcome = OUTCOMES[to_itself[port] if target == self.host else rows[port][target]]
            if item.get("outcome", outcome.value) != outcome.value:
                self.rejected += 1
                continue
            earlier.add((target, port))
            answered_by = _index(item.get("answered_by"), self.hosts)
            yield Attempt(
                self.host,
                target,
                port,
                outcome,
                _text(item.get("detail")),
                _number(item.get("seconds"), MAX_SECONDS) or 0.0,
                int(_number(item.get("largest_bytes"), MAX_BYTES) or 0),
                -1 if answered_by is None else answered_by,
            )

    def listeners(self, items: Any) -> Iterator[PortListener]:
        earlier: set[int] = set()
        for item in self._objects(items, self.ports):
            port, state = _index(item.get("port"), self.ports), _STATES.get(_text(item.get("state")))
            if port is None or state is None or port in earlier or item.get("host", self.host) != self.host:
                self.rejected += 1
                continue
            earlier.add(port)
            number = int(_number(item.get("number"), 65535) or 0)
            of_host = item.get("service") is True
            yield PortListener(self.host, port, state, _text(item.get("detail")), number, of_host)

    def speeds(self, items: Any) -> Iterator[PathSpeed]:
        counts: Counter[int] = Counter()
        for item in self._objects(items, self.hosts * MOST_MEASUREMENTS):
            target = _index(item.get("target"), self.hosts)
            if target is None or target == self.host or item.get("source", self.host) != self.host:
                self.rejected += 1
                continue
            counts[target] += 1
            if counts[target] > MOST_MEASUREMENTS:
                self.rejected += 1
                continue
            again = _number(item.get("retransmissions"), MAX_BYTES)
            yield PathSpeed(
                self.host,
                target,
                _positive(item.get("latency_median"), MAX_SECONDS),
                _positive(item.get("latency_p99"), MAX_SECONDS),
                _positive(item.get("throughput_single"), MAX_BYTES),
                _positive(item.get("throughput_multi"), MAX_BYTES),
                None if again is None else int(again),
                int(_number(item.get("bytes"), MAX_BYTES) or 0),
                _positive(item.get("latency_least"), MAX_SECONDS),
                _positive(item.get("arrival_single"), MAX_BYTES),
                _positive(item.get("arrival_multi"), MAX_BYTES),
                _number(item.get("waited"), 1.0) or 0.0,
            )

    def _objects(self, items: Any, limit: int) -> Iterator[dict[str, object]]:
        sent = items if isinstance(items, list | tuple) else ()
        self.rejected += max(0, len(sent) - limit)
        for item in sent[:limit]:
            if isinstance(item, dict):
                yield item
            else:
                self.rejected += 1


_STATES = {state.value: state for state in ListenerState}


def _index(number: object, limit: int) -> int | None:
    return number if type(number) is int and 0 <= number < limit else None


def _number(number: object, limit: float) -> float | None:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return number if 0 <= number <= limit and math.isfinite(number) else None


def _positive(number: object, limit: float) -> float | None:
    return _number(number, limit) or None


def _text(text: object) -> str:
    return strip_control_chars(text, MAX_DETAIL) if isinstance(text, str) else ""


def merge_answers(hosts: Sequence[str], ports: Sequence[TestedPort], answers: Mapping[int, HostAnswer]) -> Matrix:
    """One matrix of the ``answers``, by host; a host without an answer is silent, and its peers are innocent of it.

    A failed attempt counts when the target itself says that it listens, on that port. Where it says that the port is
    bound, that is the outcome; where it says nothing, the outcome is unknown. An attempt that the source calls open,
    and that the target did not see although it recorded what it accepted, is disputed.
    """
    rows = untried_rows(len(hosts), len(ports))
    by_port: list[dict[int, ListenerState]] = [{} for _ in ports]
    for answer in answers.values():
        for listener in answer.listeners:
            by_port[listener.port][answer.host] = listener.state
    for port, listening in enumerate(by_port):
        doubtful = [t for t in range(len(hosts)) if listening.get(t) not in _REACHABLE]
        for source, answer in answers.items():
            row = answer.rows[port]
            if doubtful:
                row = _by_listener(row, doubtful, listening)
            rows[port][source] = row
        _dispute(rows[port], port, answers)
    attempts = [
        attempt
        if attempt.source == attempt.target
        else msgspec.structs.replace(attempt, outcome=OUTCOMES[rows[attempt.port][attempt.source][attempt.target]])
        for answer in answers.values()
        for attempt in answer.attempts
    ]
    return Matrix(
        tuple(hosts),
        tuple(ports),
        tuple(map(tuple, rows)),
        tuple(sorted(attempts, key=lambda attempt: (attempt.source, attempt.target, attempt.port))),
        tuple(listener for _, answer in sorted(answers.items()) for listener in answer.listeners),
        tuple(speed for _, answer in sorted(answers.items()) for speed in answer.speeds),
        tuple(host for host in range(len(hosts)) if host not in answers),
        {host: answer.rejected for host, answer in sorted(answers.items()) if answer.rejected},
        to_itself=dict(_to_themselves(answers, by_port)),
    )


_REACHABLE = (ListenerState.LISTENING, ListenerState.EXTERNAL)


def _to_themselves(
    answers: Mapping[int, HostAnswer], by_port: Sequence[Mapping[int, ListenerState]]
) -> Iterator[tuple[int, str]]:
    """Hosts that tried themselves, with the letters of the ports on which they listen."""
    for host, answer in sorted(answers.items()):
        if answer.to_itself.strip("-"):
            listens = [listening.get(host) in _REACHABLE for listening in by_port]
            yield host, "".join(letter if here else "-" for letter, here in zip(answer.to_itself, listens, strict=True))


def _by_listener(row: str, doubtful: Sequence[int], listening: Mapping[int, ListenerState]) -> str:
    """``row`` with what the targets that do not listen say of themselves."""
    letters = list(row)
    for target in doubtful:
        letter, state = letters[target], listening.get(target)
        if state is None:
            letters[target] = "?" if letter in FAILING else letter
        elif letter in FAILING:
            letters[target] = "b" if state is ListenerState.BOUND else "n"
        elif letter == "o":
            letters[target] = "!"
    return "".join(letters)


def _dispute(rows: list[str], port: int, answers: Mapping[int, HostAnswer]) -> None:
    """Marks what a source calls open and its target, which recorded what it accepted, did not see."""
    for target, answer in answers.items():
        if not answer.accepted:
            continue
        arrived = answer.accepted[port]
        for source, letter in enumerate(arrived):
            if letter == "." and rows[source][target] == "o":
                rows[source] = rows[source][:target] + "!" + rows[source][target + 1 :]


@once_per_fleet
def assemble_matrix(answers: PerHost[NetworkAnswer]) -> Matrix:
    """One matrix of what the hosts of one test answered; a host whose answer is malformed is silent.

    Raises: Unreadable, where the answers are not of one test.
    """
    first = _test(answers)
    read: dict[int, HostAnswer] = {}
    for host, answer in answers.items():
        if (answer.hosts, answer.ports) != (first.hosts, first.ports) or first.hosts[answer.host] != host:
            continue
        try:
            read[answer.host] = read_answer(answer.host, answer.answer, len(first.hosts), len(first.ports))
        except MalformedAnswer:
            continue
    ports = [TestedPort(purpose, number) for purpose, number in first.ports]
    matrix = merge_answers(first.hosts, ports, read)
    matrix = msgspec.structs.replace(matrix, shared=tuple(sorted(_shared_addresses(answers, first))))
    places = {answer.host: answer.gloo_place for answer in answers.values() if answer.gloo_place is not None}
    return without_unneeded(with_directions(matrix, _pairs_stated(answers, first, "arrived")), places)


def _shared_addresses(answers: PerHost[NetworkAnswer], first: NetworkAnswer) -> set[tuple[int, int]]:
    """Pairs of hosts, the lower first, where one holds the address at which the other is tried."""
    return {(min(pair), max(pair)) for pair in _pairs_stated(answers, first, "holds")}


def _pairs_stated(answers: PerHost[NetworkAnswer], first: NetworkAnswer, field: str) -> set[tuple[int, int]]:
    """A host and each other one of a list in its answer, whose items are numbers of hosts, or begin with one.

    ``arrived``: targets that have seen its first packet, and whose answer was lost. ``holds``: hosts whose address it
    holds too.
    """
    pairs: set[tuple[int, int]] = set()
    for answer in answers.values():
        listed = answer.answer.get(field)
        for item in listed[:MAX_STATED] if isinstance(listed, list) else ():
            other = item[0] if isinstance(item, list) and item else item
            if type(other) is int and 0 <= other < len(first.hosts) and other != answer.host:
                pairs.add((answer.host, other))
    return pairs


def with_directions(matrix: Matrix, arrived: Collection[tuple[int, int]]) -> Matrix:
    """``matrix`` without attempts that failed because the way back is broken, where that way has failed itself.

    A connection needs both ways. Where the packets of one host to another are lost, both hosts' attempts time out; the
    kernel of the host that is still reached has seen the other's first packet. That attempt says nothing of its own
    way, so it is unknown, and the failure that remains has the right direction. So it is without a route back, and
    where full-size packets are lost one way, which stop the one host's data and the answers to the other's.
    """
    undecided = [LETTERS[outcome] for outcome in (*_WITHOUT_ANSWER, AttemptOutcome.HALF_OPEN)]
    no_answer = (*_WITHOUT_ANSWER, AttemptOutcome.UNREACHABLE)
    failures = [failure for failure in matrix.failures() if failure[3] in no_answer]
    failed = {(source, target) for source, target, _, _ in failures}
    dropped = {(source, target) for source, target, _, outcome in failures if outcome in _WITHOUT_ANSWER}
    excused = {(a, b) for a, b in arrived if (b, a) in failed and (b, a) not in arrived}
    excused |= {
        (attempt.target, attempt.source)
        for attempt in matrix.attempts
        if attempt.outcome is AttemptOutcome.UNREACHABLE and attempt.detail.startswith(NO_ROUTE)
    } & dropped
    large = {detail: _pairs_with(matrix, detail) for detail in (LARGE_LOST_THERE, LARGE_LOST_BACK)}
    excused |= {
        (a, b) for a, b in large[LARGE_LOST_BACK] - large[LARGE_LOST_THERE] if (b, a) in large[LARGE_LOST_THERE]
    }
    ports = [*enumerate(matrix.rows)]
    cells = [(source, to, port) for source, to in excused for port, rows in ports if rows[source][to] in undecided]
    return _with_outcome(matrix, cells, AttemptOutcome.UNKNOWN)


def without_unneeded(matrix: Matrix, gloo_places: Mapping[int, int]) -> Matrix:
    """``matrix`` without failures of connections that Gloo does not make, where the other direction is open.

    ``gloo_places``: by host, the place of its address among those of all hosts; it connects from the greater one.

    >>> from doctor.net.matrix import TestedPort
    >>> failing = Matrix(("a", "b"), (TestedPort("ephemeral"),), (("-d", "o-"),))
    >>> without_unneeded(failing, {0: 0, 1: 1}).rows, without_unneeded(failing, {0: 1, 1: 0}).rows
    ((('-v', 'o-'),), (('-d', 'o-'),))
    """
    cells = [
        (source, target, port)
        for source, target, port, outcome in (matrix.failures() if gloo_places else ())
        if matrix.ports[port].purpose in EPHEMERAL and {source, target} <= gloo_places.keys()
        if outcome in _ONE_WAY and gloo_places[source] < gloo_places[target]
        if matrix.rows[port][target][source] == "o"
    ]
    return _with_outcome(matrix, cells, AttemptOutcome.NOT_NEEDED)


def _with_outcome(matrix: Matrix, cells: Collection[tuple[int, int, int]], outcome: AttemptOutcome) -> Matrix:
    """``matrix`` with this outcome of some attempts, each a source, a target and a port."""
    if not cells:
        return matrix
    rows = [[list(row) for row in part] for part in matrix.rows]
    for source, target, port in cells:
        rows[port][source][target] = LETTERS[outcome]
    return msgspec.structs.replace(matrix, rows=tuple(tuple("".join(row) for row in part) for part in rows))


def _pairs_with(matrix: Matrix, detail: str) -> set[tuple[int, int]]:
    """Source and target of the half-open attempts with this detail."""
    return {
        (attempt.source, attempt.target)
        for attempt in matrix.attempts
        if attempt.outcome is AttemptOutcome.HALF_OPEN and attempt.detail == detail
    }


def groups_of(answers: PerHost[NetworkAnswer]) -> tuple[HostGroup, ...]:
    """Hosts that share a switch or a subnet, as the test knew it. Raises: Unreadable."""
    first = _test(answers)
    return tuple(
        HostGroup(strip_control_chars(kind, 20), strip_control_chars(name, 60), hosts)
        for kind, name, hosts in first.groups[:MAX_GROUPS]
        if hosts and min(hosts) >= 0 and max(hosts) < len(first.hosts) and list(hosts) == sorted(set(hosts))
    )


def schedule_of(answers: PerHost[NetworkAnswer]) -> Schedule:
    """The schedule that the hosts of a test followed. Raises: Unreadable."""
    first = _test(answers)
    return schedule_for(first.mode, len(first.hosts), len(first.ports), first.seed)


def _test(answers: PerHost[NetworkAnswer]) -> NetworkAnswer:
    """An answer that speaks for the test: of the hosts and ports that most answers have."""
    if not answers:
        raise Unreadable("no host has an answer of the network test")
    counts = Counter((answer.hosts, answer.ports, answer.mode, answer.seed) for answer in answers.values())
    most = max(counts.values())
    for answer in answers.values():
        if counts[answer.hosts, answer.ports, answer.mode, answer.seed] == most:
            return answer
    raise Unreadable("the answers are of no common test")
