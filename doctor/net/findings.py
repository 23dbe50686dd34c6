"""The causes of a network test's failures, as values of findings: one list for all `net_*` checks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from doctor.analysis.outliers.pairs import Path
from doctor.analysis.refused_routes import REFUSED_BY_ROUTE
from doctor.engine.check import Skip, once_per_fleet
from doctor.engine.fact import PerHost, Unreadable
from doctor.engine.quantities import number_text
from doctor.engine.result import CUT_PARTS, Finding
from doctor.engine.texts import filled, first_few, joined
from doctor.facts.interfaces import Interfaces, SendingDelay, delaying
from doctor.facts.network_test import NetworkAnswer
from doctor.net.assemble import NO_ROUTE, assemble_matrix, groups_of, schedule_of
from doctor.net.cause import NetworkCause, place, port_text
from doctor.net.localize import Localization, localize
from doctor.net.matrix import ARP_ANSWERED, ARP_SILENT, ARRIVED, Attempt, AttemptOutcome, ListenerState, Matrix
from doctor.net.slow_paths import RATES, SlowPath, SpeedFigure, severe_doubts, slow_paths
from doctor.smoke.hang.network_evidence import REFUSALS

FailureClass = Literal["unavailable", "foreign", "large", "flows", "port", "path"]
"""unavailable: the host itself cannot listen. foreign: something else answered. large: only small packets pass.
flows: some source ports fail and others pass, on each port.
port: some ports fail and others work. path: nothing passes."""

_BY_OUTCOME: dict[str, FailureClass] = {
    AttemptOutcome.BOUND.value: "unavailable",
    AttemptOutcome.NO_LISTENER.value: "unavailable",
    AttemptOutcome.STRANGER.value: "foreign",
    AttemptOutcome.WRONG_HOST.value: "foreign",
    AttemptOutcome.HALF_OPEN.value: "large",
    AttemptOutcome.SOME_FLOWS.value: "flows",
}
RENDEZVOUS = ("master", "scheduler")
"""Purposes of ports that one host needs, where the ranks meet: tried on every host where it is not known which."""


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
    """What the sources detail_text, each once."""
    doubt: str
    """Other places that explain the same; empty where it is certain."""
    largest_bytes: int
    """Of packets that pass, where full-size ones do not; 0 where it is not known."""
    is_refused_at_source: bool
    """The sources' own kernels refused each attempt, before any packet was sent."""
    example: tuple[str, str]
    """Source and target of one of the attempts."""
    numbers: tuple[int, ...]
    """Of the ports that have the same number on each host."""
    of_service: bool
    """A service of a host itself holds the port."""
    parts: list[list[str]]
    """The hosts on each side of a cut that no side is to blame for; empty where it is none."""

    @property
    def values(self) -> dict[str, object]:
        counted = [filled("{0} {1}", name, number) for name, number in self.outcomes.items()]
        outcome_text = joined(", ", counted if len(self.outcomes) > 1 else self.outcomes)
        blamed, port = list(self.hosts[:4]), self.numbers[0] if self.numbers else "PORT"
        named = (*self.example, ", ".join(blamed), port, DELETIONS["nft"], DELETIONS["iptables"])
        look = joined(" ", (filled(text, *named) for text in self._look))
        return {
            "place": self.place,
            "ports": self.ports,
            "failed": self.failed,
            "attempts": self.attempts,
            "how": NONE_LEFT if self._has_none_left else joined("; ", (outcome_text, *self.details[:1])),
            "doubt": filled("; equally possible: {0}", self.doubt) if self.doubt else "",
            "look": look,
            "blamed": blamed,
            "first": self.example[0],
            "other": self.example[1],
            "port": port,
            CUT_PARTS: self.parts,
        }

    @property
    def _has_none_left(self) -> bool:
        """Of ports that the kernel chooses none is free: no process holds all of them."""
        return self.kind == "unavailable" and not self.numbers and set(self.outcomes) == {AttemptOutcome.BOUND.value}

    @property
    def _look(self) -> tuple[str, ...]:
        """What to do first; 0 is the source of an attempt, 1 its target, 2 the hosts to blame, 3 the port, then
        `DELETIONS`.
        """
        if self._has_none_left:
            return (NO_PORT_LEFT,)
        if self.kind == "unavailable":
            held = PORT_OF_SERVICE if self.of_service else PORT_HELD
            return (held if AttemptOutcome.BOUND.value in self.outcomes else PORT_REFUSED,)
        if self.cause.kind == "itself":
            return (LOOPBACK,)
        if self.is_refused_at_source and not self.parts:
            return (REFUSED_BY_ROUTE,)
        is_pair = len(self.hosts) == 2 and all(len(part) == 1 for part in self.parts)
        is_cut = bool(self.parts) and not is_pair
        rules, way = (RULES_BETWEEN, WAY_BETWEEN) if is_cut else (RULES_OF_HOST, WAY_OF_HOST)
        remedies = {ARP_ANSWERED: (SOUND, rules), ARP_SILENT: (CUT_OFF, way), ARRIVED: (WAY_BACK,)}
        return remedies.get(self.details[0] if len(self.details) == 1 else "", (WHICH, rules, ELSE, way))


NONE_LEFT = "the kernel has none left to assign"
NO_PORT_LEFT = (
    "On {2}: `sysctl net.ipv4.ip_local_port_range net.ipv4.ip_local_reserved_ports` prints the ports that the kernel "
    'assigns, and `ss -s` how many connections use them. As root: `sysctl -w net.ipv4.ip_local_port_range="32768 '
    '60999"`; `doctor fix local-ports-few -w {2}` keeps it for every start.'
)
PORT_REFUSED = (
    "No process holds it: {2} says why it cannot listen. A port below 1024 needs root, so give the job another one "
    "(MASTER_PORT); ports that the kernel gives need a range (net.ipv4.ip_local_port_range) that is not reserved."
)
PORT_HELD = (
    'Find the process on {2}: `ss -tlnp "sport = :{3}"`. A leftover of an earlier job: as root there `fuser -k -TERM '
    "{3}/tcp` ends it. Else leave it alone, and choose another port for the job: `torchrun --master-port 29511`, "
    "without torchrun `export MASTER_PORT=29511`; `export HCCL_IF_BASE_PORT=61000` for the ports of HCCL."
)
PORT_OF_SERVICE = (
    "It belongs to a service of {2}: leave that alone, and choose another port for the job: `torchrun --master-port "
    "29511`, without torchrun `export MASTER_PORT=29511`; `export HCCL_IF_BASE_PORT=61000` for the ports of HCCL."
)
LOOPBACK = (
    "On {0}: `ip link show lo` must say UP (`ip link set lo up` as root), and no rule of its firewall (`nft -a list "
    "ruleset`, `iptables-save`, `iptables-legacy-save`) may drop what comes in by `lo`."
)
SOUND = "The cables, switch ports and VLANs between {0} and {1} are sound, as ARP passes: rules drop the connections."
CUT_OFF = "{0} finds {1} no more on its own network, as ARP is not answered: the way itself is cut."
WHICH = "On {0}: `ping -c 3 {1}`. If it answers, rules drop the connections."
ELSE = "If it does not answer, the way itself is cut."
WAY_BACK = (
    "The first packet of {0} arrives at {1}, and the answer is lost. On {1}: `ip route get $(getent ahosts {0} | cut "
    "-d' ' -f1 | head -1)` must name the interface by which the packet came, and `sysctl "
    "net.ipv4.conf.all.rp_filter` must not be 1 where it differs (`sysctl -w net.ipv4.conf.all.rp_filter=2` as "
    "root). Then look for rules: `nft -a list ruleset | grep -E 'table|chain|drop|reject'` on {1} (output) and on "
    "{0} (input)."
)
RULES_BETWEEN = (
    "Ask the administrator of the switches, the router, the cloud's security group or the network policy to permit "
    "TCP, all ports, between these hosts."
)
WAY_BETWEEN = (
    "A route for {1} alone may be wrong: as root on {0}, `ip route show table all to exact $(getent ahosts {1} | cut "
    "-d' ' -f1 | head -1) | grep -v ' proto ' | sed 's/ *$//' | xargs -rtL1 ip route del` deletes one "
    "that was set by hand, and prints it. Where it prints nothing: `ip route get $(getent ahosts {1} | cut -d' ' -f1 | "
    "head -1)` on {0} names the interface and the gateway; ask the administrator of the switches to put the ports of "
    "these hosts into one VLAN, on the trunk between them as well."
)
DELETIONS = {
    "nft": 'nft -a list ruleset | awk \'/^table/{t=$2" "$3} $1=="chain"{c=$2} /(drop|reject).* handle /'
    '{print "nft delete rule",t,c,"handle",$NF}\'',
    "iptables": "iptables-save | sed -nE '/-j (DROP|REJECT)/s/^-A/iptables -D/p'",
    "queues": 'tc qdisc show | awk \'/ (netem|tbf|htb) /{print "tc qdisc del dev",$5,"root"}\'',
}
"""Commands that print how each rule and queue of a host that drops, delays or limits is deleted."""
RULES_OF_HOST = (
    "As root on {2}, for each rule that drops, these print the command that deletes it: `{4}` and `{5}`. Where they "
    "print none: the rules of its switch port or security group."
)
WAY_OF_HOST = (
    "Look at the routes: `ip route get $(getent ahosts {1} | cut -d' ' -f1 | head -1)` on {0}, and `ip route get "
    "$(getent ahosts {0} | cut -d' ' -f1 | head -1)` on {1}. Where both name the right interface, examine the cable "
    "and the switch port, and look for a host with the same address."
)


@once_per_fleet
def localized(answers: PerHost[NetworkAnswer]) -> Localization:
    """The causes of one test. Raises: Unreadable."""
    return localize(assemble_matrix(answers), groups_of(answers))


def located_failures(answers: PerHost[NetworkAnswer], *kinds: FailureClass) -> Iterator[LocatedFailure]:
    """The failures of these classes, each with its cause. Raises: Unreadable."""
    matrix = assemble_matrix(answers)
    for cause in localized(answers).causes:
        failure = _located(cause, matrix)
        if failure.kind in kinds:
            yield failure


def is_of_rank_0_alone(failure: LocatedFailure, answers: PerHost[NetworkAnswer]) -> bool:
    """Whether a host cannot listen where only that of rank 0 must, which is not known, and others can.

    Raises: Unreadable.
    """
    matrix = assemble_matrix(answers)
    free = {entry.port for entry in matrix.listeners if entry.state is ListenerState.LISTENING}
    return all(matrix.ports[port].purpose in RENDEZVOUS and port in free for port in failure.cause.ports)


def failure_class(cause: NetworkCause) -> FailureClass:
    """Which check reports the cause: by what most of its attempts came to; another host that proved itself decides."""
    if cause.kind == "address" or AttemptOutcome.WRONG_HOST.value in cause.outcomes:
        return "foreign"
    most = next(iter(cause.outcomes), AttemptOutcome.DROPPED.value)
    if most not in _BY_OUTCOME and AttemptOutcome.SOME_FLOWS.value in cause.outcomes:
        return "flows"  # something passes there, on ports that are not blocked as well
    return _BY_OUTCOME.get(most, "path" if cause.all_ports else "port")


def _located(cause: NetworkCause, matrix: Matrix) -> LocatedFailure:
    kind = failure_class(cause)
    attempts = [attempt for attempt in matrix.attempts if _belongs(attempt, cause)]
    sizes = [attempt.largest_bytes for attempt in attempts if attempt.largest_bytes]
    details = [_stated(attempt.detail) for attempt in attempts if attempt.detail]
    own = [entry for entry in matrix.listeners if entry.host in cause.hosts and entry.port in cause.ports]
    if kind == "unavailable":
        details = [entry.detail for entry in own if entry.detail]
    answering = {attempt.answered_by for attempt in attempts} - {-1}
    if answering:
        details = [filled("{0} answered", matrix.hosts[host]) for host in sorted(answering)]
    at_source = [attempt.detail.startswith(NO_ROUTE) for attempt in attempts]
    refused = len(at_source) == cause.failed > 0 and all(at_source)
    if refused and cause.kind == "direction":
        cause = msgspec.structs.replace(cause, blamed=cause.hosts[:1], candidates=())
    example = (attempts[0].source, attempts[0].target) if attempts else (0, len(matrix.hosts) - 1)
    ports = [matrix.ports[port] for port in cause.ports]
    return LocatedFailure(
        kind,
        cause,
        tuple(matrix.hosts[host] for host in sorted(cause.accused | answering)) or matrix.hosts,
        place(cause, matrix.hosts),
        port_text(ports) if ports else "no port",
        cause.failed,
        cause.failed + cause.opened,
        cause.outcomes,
        tuple(dict.fromkeys(details))[:4],
        joined("; ", (place(candidate, matrix.hosts) for candidate in cause.candidates[:4])),
        min(sizes, default=0),
        refused,
        (matrix.hosts[example[0]], matrix.hosts[example[1]]),
        tuple(port.number for port in ports if port.number),
        any(entry.service for entry in own),
        [[matrix.hosts[host] for host in part] for part in _parts(cause, range(len(matrix.hosts)))],
    )


def _parts(cause: NetworkCause, everyone: Iterable[int]) -> list[tuple[int, ...]]:
    if cause.accused != cause.members or cause.kind not in ("groups", "link", "direction", "fleet"):
        return []
    groups = [group.hosts for group in cause.groups]
    return groups + [(host,) for host in cause.hosts or (() if groups else everyone)]


def _stated(detail: str) -> str:
    """A detail that the source's kernel gave as an error number, in words.

    >>> _stated("no way to it (EACCES)"), _stated("refused")
    ('EACCES: a route prohibits it', 'refused')
    """
    code = detail.removeprefix(f"{NO_ROUTE} (").removesuffix(")")
    return filled("{0}: {1}", code, REFUSALS[code]) if code in REFUSALS else detail


def _belongs(attempt: Attempt, cause: NetworkCause) -> bool:
    if attempt.port not in cause.ports or attempt.outcome.value not in cause.outcomes:
        return False
    ends = {attempt.source, attempt.target}
    if (len(ends) == 1) != (cause.kind == "itself"):
        return False
    if cause.kind == "host":
        blamed_end = {"inbound": attempt.target, "outbound": attempt.source}.get(cause.way)
        return cause.hosts[0] in ends if blamed_end is None else blamed_end == cause.hosts[0]
    if cause.kind == "direction":
        return (attempt.source, attempt.target) == cause.hosts
    if cause.kind in ("link", "address"):
        return ends <= set(cause.hosts) if cause.kind == "link" else bool(ends & set(cause.hosts))
    return bool(ends & cause.members) or not cause.members


@once_per_fleet
def measured_slow_paths(answers: PerHost[NetworkAnswer]) -> tuple[SlowPath, ...]:
    """The slow hosts, links and directions. Raises: Unreadable; Skip where no speeds were measured."""
    speeds = assemble_matrix(answers).speeds
    if not any(speed.bytes for speed in speeds):
        raise Skip("no speeds were measured; doctor net --net full measures them")
    return slow_paths(speeds)


@once_per_fleet
def _severe_doubts(answers: PerHost[NetworkAnswer]) -> tuple[SlowPath, ...]:
    matrix = assemble_matrix(answers)
    return tuple(severe_doubts(matrix.speeds, len(matrix.hosts), measured_slow_paths(answers)))


def require_no_doubt(answers: PerHost[NetworkAnswer], of_losses: bool) -> None:
    """Raises: Unreadable where a path looks severely slow, or lossy, and the time did not do to measure it again.

    Where a path of the schedule that is open was not measured at all, too.
    """
    hosts = assemble_matrix(answers).hosts
    for path in sorted(_severe_doubts(answers), key=lambda path: path.kind != "host"):
        if (path.figure == "retransmissions") is of_losses:
            values = _slow_path_values(path, hosts)
            text = "the {0} {1}: {2}, {3}, measured {4} times, too few to tell: try a larger --budget"
            raise Unreadable(filled(text, path.figure, values["place"], values["value"], values["norm"], path.measured))
    if unmeasured := _unmeasured(answers):
        text = "speeds were not measured (ways: {2}, first {0} to {1}): the way back is closed, or --budget too small"
        raise Unreadable(filled(text, *(hosts[end] for end in unmeasured[0]), len(unmeasured)))


@once_per_fleet
def _unmeasured(answers: PerHost[NetworkAnswer]) -> list[Path]:
    """Source and target of each path of the schedule on which a port is open, and no data were sent."""
    matrix, schedule = assemble_matrix(answers), schedule_of(answers)
    measured = {(speed.source, speed.target) for speed in matrix.speeds if speed.bytes}
    planned = (pair for number in range(schedule.rounds) for pair in schedule.pairs(number))
    ways = (way for pair in planned for way in (pair, pair[::-1]) if way not in measured)
    return [(source, target) for source, target in ways if any(row[source][target] == "o" for row in matrix.rows)]


def slow_path_finding(
    path: SlowPath,
    answers: PerHost[NetworkAnswer],
    template: str,
    interfaces: Mapping[str, Interfaces],
    losing: Iterable[tuple[str, str]] = (),
) -> Finding:
    """The finding of a slow path: an error where it would slow the whole job down severely, else a warning.

    ``losing``: what its hosts drop, each with the remedy; without them, the queueing disciplines that explain it.
    """
    hosts = assemble_matrix(answers).hosts
    blamed = [hosts[host] for host in path.hosts]
    senders = [] if path.way == "inbound" else blamed[:1] if path.kind == "direction" else blamed
    senders = blamed if path.figure in ("latency", "least latency") else senders  # which counts both ways
    because, remedy = first_few(losing)
    if not remedy:
        because, remedy = first_few(delaying(senders, interfaces, lambda delay: _explains(delay, path.figure)))
    values = _slow_path_values(path, hosts)
    case = {"case": "The cause", "named": remedy} if remedy else {"case": "Search", **DELETIONS}
    finding = Finding(template, hosts=blamed, **values, because=because, **case)
    return finding.as_warning(not path.is_severe(len(hosts)))


def _explains(delay: SendingDelay, figure: SpeedFigure) -> bool:
    """TCP sends less over a way that is long or loses packets, and a queue that is limited overflows."""
    if figure in ("latency", "least latency"):
        return delay.seconds > 0
    return delay.loss > 0 or delay.rate > 0 or (delay.seconds > 0 and figure != "retransmissions")


def _slow_path_values(path: SlowPath, hosts: Sequence[str]) -> dict[str, object]:
    """Where a slow path lies, in words, and its figures."""
    names = [hosts[host] for host in path.hosts]
    cause = NetworkCause(path.kind, tuple(path.hosts), way=path.way)
    value, norm = _show(path.figure, path.value), _show(path.figure, path.peer_value)
    return {
        "place": "between most hosts" if path.kind == "fleet" else place(cause, hosts),
        "figure": path.figure,
        "ratio": round(path.ratio, 2),
        "value": value,
        "norm": filled("elsewhere {0}" if path.compared else "where less than {0} is usual", norm),
        "measured": path.measured,
        "confidence": f"{min(99.99, 100 * path.confidence):.2f} %",
        "ends": names,
        "other": next((name for name in hosts if name not in names), names[-1]) if len(names) < 2 else names[-1],
        "observed": value,
        "expected": norm,
    }


def _show(figure: SpeedFigure, value: float) -> str:
    if figure == "retransmissions":
        return f"{number_text(100 * value, 2)} %"
    return f"{number_text(value / 1e6, 4)} MB/s" if figure in RATES else f"{number_text(value * 1000000.0, 4)} us"
