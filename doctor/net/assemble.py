"""The matrix of a network test, from the answers in the hosts' records. Pure."""

from __future__ import annotations

from collections import Counter

from doctor.engine.fact import PerHost, Unreadable
from doctor.engine.per_fleet import once_per_fleet
from doctor.facts.network_test import NetworkAnswer
from doctor.net.matrix import HostAnswer, Matrix, TestedPort
from doctor.net.merging import MalformedAnswer, merge_answers, read_answer
from doctor.net.plan import schedule_for
from doctor.net.schedule import Schedule


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
    return merge_answers(first.hosts, ports, read)


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
