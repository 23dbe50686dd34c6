"""One cause of failures in a matrix: a host, a link, a direction, groups, or the whole fleet; and on which ports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from doctor.analysis.outliers.pairs import Way
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.net.host_groups import HostGroup
from doctor.net.matrix import EPHEMERAL, TestedPort

CauseKind = Literal["host", "itself", "link", "direction", "address", "groups", "border", "group", "fleet"]
"""What is to blame.

host: one host, see ``way``. itself: attempts of one host to itself. link: one pair of hosts, both ways. direction: from
one host to another, and not back.
address: two hosts that answer to one address. groups: between two groups, or a host and a group. border: between a
group and all others. group: within a group. fleet: every pair.
"""
MAX_LABELS = 6


class NetworkCause(msgspec.Struct, frozen=True):
    """One cause, and the failures that it explains."""

    kind: CauseKind
    hosts: tuple[int, ...] = ()
    """The hosts to blame, by their place in the matrix; of a direction the source, then the target."""
    groups: tuple[HostGroup, ...] = ()
    way: Way = "both"
    """Of a host or a border: whether attempts to it fail, attempts from it, or both; of two: from the first."""
    ports: tuple[int, ...] = ()
    """On which attempts failed."""
    all_ports: bool = True
    """No port that was tried there worked."""
    failed: int = 0
    """Attempts that it explains."""
    opened: int = 0
    """Attempts of its hosts, its way, on its ports that worked all the same: 0, unless it comes and goes."""
    outcomes: dict[str, int] = {}
    """How many of them had which `AttemptOutcome`, most first."""
    candidates: tuple[NetworkCause, ...] = ()
    """Other causes that explain the same failures as well: any of them may be it. Empty: it is certain."""
    blamed: tuple[int, ...] = ()
    """Of a border, or of two parts of a fleet that is cut: the side with at most half as many hosts as the other one;
    else both, as neither is more likely."""

    @property
    def certain(self) -> bool:
        return not self.candidates

    @property
    def members(self) -> frozenset[int]:
        """All hosts that this cause names, by itself or in a group."""
        return frozenset(self.hosts).union(*(group.hosts for group in self.groups))

    @property
    def accused(self) -> frozenset[int]:
        """The hosts to blame: empty for the whole fleet."""
        return frozenset(self.blamed) or self.members


_PLACES: dict[tuple[str, Way], str] = {
    ("host", "both"): "to and from {0}",
    ("host", "inbound"): "to {0}",
    ("host", "outbound"): "from {0}",
    ("itself", "both"): "from {0} to itself",
    ("link", "both"): "between {0} and {1}",
    ("direction", "both"): "from {0} to {1}",
    ("address", "both"): "{0} and {1} answer to one address",
    ("groups", "inbound"): "from {1} to {0}",
    ("groups", "outbound"): "from {0} to {1}",
    ("border", "both"): "between {0} and all others",
    ("border", "inbound"): "from all others to {0}",
    ("border", "outbound"): "from {0} to all others",
    ("group", "both"): "within {0}",
    ("fleet", "both"): "between all hosts",
}


def place(cause: NetworkCause, names: Sequence[str]) -> str:
    """Where the cause lies, in words."""
    ends = [*(strip_control_chars(names[host], 60) for host in cause.hosts), *(group.label for group in cause.groups)]
    if (cause.kind, cause.way) == ("groups", "both"):
        return filled("between {0} and {1}", joined(", ", ends[:-1]), ends[-1])
    return filled(_PLACES.get((cause.kind, cause.way)) or _PLACES[cause.kind, "both"], *ends)


def port_text(ports: Sequence[TestedPort]) -> str:
    """Ports as text, consecutive numbers of one purpose as a range.

    >>> port_text([TestedPort("hccl", number) for number in (60000, 60001, 60002)] + [TestedPort("master", 29500)])
    '4 TCP ports: hccl 60000-60002, master 29500'
    >>> port_text([TestedPort("ephemeral", 0)])
    'an ephemeral port'
    """
    labels = list(_ranges(ports))
    if len(ports) == 1:
        if ports[0].purpose in EPHEMERAL:
            return "an ephemeral port" if ports[0].purpose == EPHEMERAL[0] else "an ephemeral port of the upper half"
        purpose, _, number = labels[0].partition(" ")
        return filled("port {0} {1}", purpose, number) if number else filled("port {0}", purpose)
    listed = ", ".join(labels[:MAX_LABELS])
    if len(labels) > MAX_LABELS:
        return filled("{0} TCP ports: {1} and {2} more", len(ports), listed, len(labels) - MAX_LABELS)
    return filled("{0} TCP ports: {1}", len(ports), listed)


def _ranges(ports: Iterable[TestedPort]) -> Iterable[str]:
    runs: list[tuple[str, int, int]] = []
    for port in ports:
        if runs and port.number and runs[-1][0] == port.purpose and runs[-1][2] == port.number - 1:
            runs[-1] = (port.purpose, runs[-1][1], port.number)
        else:
            runs.append((port.purpose, port.number, port.number))
    for purpose, first, last in runs:
        name = strip_control_chars(purpose, 30)
        yield f"{name} {first}-{last}" if last > first else f"{name} {first}" if first else name
