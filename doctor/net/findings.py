"""The causes of a network test's failures, as values of findings: one list for all `net_*` checks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from doctor.engine.fact import PerHost
from doctor.engine.per_fleet import once_per_fleet
from doctor.facts.network_test import NetworkAnswer
from doctor.net.assemble import assemble_matrix
from doctor.net.cause import NetworkCause, place, port_text
from doctor.net.localize import Localization, localize
from doctor.net.matrix import Attempt, AttemptOutcome, Matrix

FailureClass = Literal["unavailable", "foreign", "large", "port", "path"]
"""unavailable: the host itself cannot listen. foreign: something else answered. large: only small packets pass.
port: some ports fail and others work. path: nothing passes."""

_BY_OUTCOME: dict[str, FailureClass] = {
    AttemptOutcome.BOUND.value: "unavailable",
    AttemptOutcome.NO_LISTENER.value: "unavailable",
    AttemptOutcome.STRANGER.value: "foreign",
    AttemptOutcome.WRONG_HOST.value: "foreign",
    AttemptOutcome.HALF_OPEN.value: "large",
}


class LocatedFailure(msgspec.Struct, frozen=True):
    """One cause, with what a finding says of it."""

    kind: FailureClass
    cause: NetworkCause
    hosts: tuple[str, ...]
    """The hosts to blame; of a link or a direction both."""
    place: str
    """Where it lies, in words: ``from n1 to n2``."""
    ports: str
    failed: int
    attempts: int
    outcomes: dict[str, int]
    details: tuple[str, ...]
    """What the sources said, each once."""
    doubt: str
    """Other places that explain the same; empty where it is certain."""
    largest_bytes: int
    """Of packets that pass, where full-size ones do not; 0 where it is not known."""
    example: tuple[str, str]
    """Source and target of one of the attempts."""
    port: int
    """Number of one of the ports; 0 where each host has its own."""

    @property
    def values(self) -> dict[str, Any]:
        """For `Finding`: what every text has."""
        how = ", ".join(
            f"{name} {number}" if len(self.outcomes) > 1 else name for name, number in self.outcomes.items()
        )
        said = f"; {self.details[0]}" if self.details else ""
        return {
            "place": self.place,
            "ports": self.ports,
            "failed": self.failed,
            "attempts": self.attempts,
            "how": f"{how}{said}",
            "doubt": f"; cannot tell from: {self.doubt}" if self.doubt else "",
            "first": self.example[0],
            "other": self.example[1],
            "port": self.port or "PORT",
        }


@once_per_fleet
def localized(answers: PerHost[NetworkAnswer]) -> Localization:
    """The causes of one test. Raises: Unreadable."""
    return localize(assemble_matrix(answers))


def located_failures(answers: PerHost[NetworkAnswer], *kinds: FailureClass) -> Iterator[LocatedFailure]:
    """The failures of these classes, each with its cause. Raises: Unreadable."""
    matrix = assemble_matrix(answers)
    for cause in localized(answers).causes:
        failure = _located(cause, matrix)
        if failure.kind in kinds:
            yield failure


def failure_class(cause: NetworkCause) -> FailureClass:
    """Which check reports the cause: by what most of its attempts came to."""
    most = next(iter(cause.outcomes), AttemptOutcome.DROPPED.value)
    return _BY_OUTCOME.get(most, "path" if cause.all_ports else "port")


def _located(cause: NetworkCause, matrix: Matrix) -> LocatedFailure:
    kind = failure_class(cause)
    attempts = [attempt for attempt in matrix.attempts if _belongs(attempt, cause)]
    sizes = [attempt.largest_bytes for attempt in attempts if attempt.largest_bytes]
    details = [attempt.detail for attempt in attempts if attempt.detail]
    if kind == "unavailable":
        details = [
            entry.detail
            for entry in matrix.listeners
            if entry.host in cause.hosts and entry.port in cause.ports and entry.detail
        ]
    example = (attempts[0].source, attempts[0].target) if attempts else (0, len(matrix.hosts) - 1)
    ports = [matrix.ports[port] for port in cause.ports]
    return LocatedFailure(
        kind,
        cause,
        tuple(matrix.hosts[host] for host in sorted(cause.accused)) or matrix.hosts,
        place(cause, matrix.hosts),
        port_text(ports) if ports else "no port",
        cause.failed,
        cause.failed + cause.opened,
        cause.outcomes,
        tuple(dict.fromkeys(details))[:4],
        "; ".join(place(candidate, matrix.hosts) for candidate in cause.candidates[:4]),
        min(sizes, default=0),
        (matrix.hosts[example[0]], matrix.hosts[example[1]]),
        next((port.number for port in ports if port.number), 0),
    )


def _belongs(attempt: Attempt, cause: NetworkCause) -> bool:
    if attempt.port not in cause.ports or attempt.outcome.value not in cause.outcomes:
        return False
    ends = {attempt.source, attempt.target}
    if cause.kind == "host":
        wanted = {"inbound": attempt.target, "outbound": attempt.source}.get(cause.way)
        return cause.hosts[0] in ends if wanted is None else wanted == cause.hosts[0]
    if cause.kind == "direction":
        return (attempt.source, attempt.target) == cause.hosts
    if cause.kind in ("link", "address"):
        return ends <= set(cause.hosts) if cause.kind == "link" else bool(ends & set(cause.hosts))
    return bool(ends & cause.accused) or not cause.accused
