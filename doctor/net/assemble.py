"""The matrix of a network test, from the answers in the hosts' records. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import msgspec

from doctor.engine.check import once_per_fleet
from doctor.engine.fact import PerHost, Unreadable
from doctor.engine.sanitize import strip_control_chars
from doctor.facts.network_test import NetworkAnswer
from doctor.net.host_groups import MAX_GROUPS, HostGroup
from doctor.net.matrix import LETTERS, AttemptOutcome, HostAnswer, Matrix, TestedPort
from doctor.net.merging import MalformedAnswer, merge_answers, read_answer
from doctor.net.plan import schedule_for
from doctor.net.schedule import Schedule

MAX_STATED = 100_000
NO_ROUTE = "no way to it"
"""How the detail of an attempt begins that the source's own routes forbid."""
LARGE_LOST_THERE, LARGE_LOST_BACK = "full-size packets to it are lost", "full-size packets from it are lost"
"""Which way of a half-open connection loses full-size packets."""

_WITHOUT_ANSWER = (AttemptOutcome.DROPPED, AttemptOutcome.SOME_FLOWS)


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
    return with_directions(matrix, _pairs_stated(answers, first, "arrived"))


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
    if not excused:
        return matrix
    rows = [[list(row) for row in port_rows] for port_rows in matrix.rows]
    for source, target in excused:
        for port_rows in rows:
            if port_rows[source][target] in undecided:
                port_rows[source][target] = LETTERS[AttemptOutcome.UNKNOWN]
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
