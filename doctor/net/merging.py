"""The answers of many hosts, read with suspicion and merged into one matrix.

A host speaks for its own attempts and its own ports, and for nothing else: which host it is follows from the session
that its answer came by, never from the answer. What it says of another host's ports decides nothing by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.sanitize import strip_control_chars
from doctor.net.matrix import (
    FAILING,
    MAX_BYTES,
    MAX_DETAIL,
    MAX_SECONDS,
    OUTCOMES,
    UNTRIED,
    Attempt,
    HostAnswer,
    ListenerState,
    Matrix,
    PathSpeed,
    PortListener,
    TestedPort,
    untried_rows,
)

MOST_MEASUREMENTS = 8
"""Of the speed of one path: those that look slow are measured again."""
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
            yield PortListener(self.host, port, state, _text(item.get("detail")), number)

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
