"""From raw records to outcomes: not known is never healthy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.engine.check import BadCheck, Check
from doctor.engine.evaluate import FactCache, evaluate_check, read_fact
from doctor.engine.fact import Absent, Fact, Output, ProbeAnswer, Unreadable, Visit, read, run
from doctor.engine.record import HostRecord
from doctor.engine.result import Outcome, Reason, Status


class Queue(Fact, frozen=True):
    """The listen queue's length."""

    probe = read("/q")

    length: int

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Queue:
        return cls(length=int(answer.text("/q")))


class Depth(Queue, frozen=True):
    """Another one."""


class Addresses(Fact, frozen=True):
    """Something for each device."""

    probe = run('tool "$1"', requires="tool", each="/dev/d[0-9]*")

    by_npu: dict[int, str]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Addresses:
        good, bad = {}, {}
        for number, output in answer.devices():
            if output.ended == "exited":
                good[number] = output.out
            else:
                bad[f"NPU {number}"] = output.ended
        return cls(by_npu=good, unread=bad)


class Plan:
    """A part of intent."""

    def __init__(self, least: int) -> None:
        self.least = least


@check(severity=ERROR)
def queue_short(queue: Queue) -> Iterator[Finding]:
    """Every queue is long."""
    if queue.length < 10:
        yield Finding("{length} is short", length=queue.length)


@check(severity=ERROR)
def queue_differs(queues: PerHost[Queue]) -> Iterator[Finding]:
    """All queues are alike."""
    if len({queue.length for queue in queues.values()}) > 1:
        yield Finding("they differ", hosts=list(queues))


@check(severity=ERROR)
def queue_below_plan(queue: Queue, plan: Plan) -> Iterator[Finding]:
    """Every queue is as long as planned."""
    if queue.length < plan.least:
        yield Finding("{length} < {least}", length=queue.length, least=plan.least)


@check(severity=ERROR)
def address_repeated(addresses: PerHost[Addresses]) -> Iterator[Finding]:
    """Addresses are unique."""
    observed_addresses = [ip for address in addresses.values() for ip in address.by_npu.values()]
    if len(set(observed_addresses)) < len(observed_addresses):
        yield Finding("repeated")


def queue_record(text: str) -> HostRecord:
    return HostRecord(Visit(), {"Queue": {"/q": Output(out=text)}})


REFUSED = HostRecord(Visit("refused", "connection refused"))
NOT_THERE = HostRecord(Visit(), {"Queue": {"/q": Output("absent", err="/q does not exist")}})
DENIED = HostRecord(Visit(), {"Queue": {"/q": Output("error", err="Permission denied")}})
NOT_ASKED = HostRecord(Visit(), {})


def judged(function: Any, records: dict[str, HostRecord], intent: dict[type, object] | None = None) -> Outcome:
    return evaluate_check(Check(function), list(records), FactCache(records), intent or {})


def test_a_per_host_check_is_called_once_a_host_and_blames_it() -> None:
    outcome = judged(queue_short, {"a": queue_record("4096"), "b": queue_record("3")})
    assert outcome.findings == (Finding("{length} is short", hosts=["b"], length=3),)
    assert outcome.evaluated_hosts == ("a", "b")
    assert outcome.status is Status.FAILED


def test_a_healthy_fleet_passes_and_says_how_much_was_looked_at() -> None:
    outcome = judged(queue_short, {"a": queue_record("4096"), "b": queue_record("4096")})
    assert (outcome.status, outcome.evaluated_hosts) == (Status.PASSED, ("a", "b"))


def test_a_host_that_was_not_reached_is_unknown_because_of_that() -> None:
    outcome = judged(queue_short, {"a": queue_record("4096"), "b": REFUSED})
    assert outcome.unknown == {"b": Reason("not reached: connection refused", "host-unreachable")}
    assert outcome.status is Status.UNKNOWN


def test_hosts_with_the_same_facts_are_evaluated_once_and_each_has_its_own_outcome() -> None:
    calls: list[int] = []

    @check(severity=ERROR)
    def queue_odd(queue: Queue, others: PerHost[Addresses]) -> Iterator[Finding]:
        """Every queue is even."""
        calls.append(queue.length)
        if queue.length == 7:
            raise Skip("seven")
        if queue.length % 2:
            yield Finding("{length} is odd", length=queue.length)
            yield Finding("{length} is theirs", hosts=["z"], length=queue.length)
        if queue.length == 5:
            raise RuntimeError

    texts = ["4", "3", "4", "3", "7", "7", "5", "5"]
    devices = {"Addresses": {"0": Output("exited", out="1")}}
    records = {f"h{number}": queue_record(text) for number, text in enumerate(texts)}
    records = {name: HostRecord(record.visit, {**record.outputs, **devices}) for name, record in records.items()}
    both = {"a": REFUSED, **records, "b": DENIED, "c": DENIED, "d": queue_record("4")}
    together = judged(queue_odd, both)
    assert sorted(calls) == [3, 4, 4, 5, 7]  # d has a reason of its own already
    assert together.evaluated_hosts == ("h0", "h1", "h2", "h3", "d")
    assert [finding.hosts for finding in together.findings] == [
        (name,) for host in ("h1", "h3", "h6", "h7") for name in (host, "z")
    ]
    assert list(together.skipped) == ["h4", "h5"] and list(together.crashed) == ["h6", "h7"]
    assert set(together.unknown) == {"a", "b", "c", "d"}


@pytest.mark.parametrize("record", [DENIED, NOT_ASKED, queue_record("garbage"), queue_record("")])
def test_what_could_not_be_read_is_unknown_never_passed(record: HostRecord) -> None:
    outcome = judged(queue_short, {"a": record})
    assert outcome.status is Status.UNKNOWN
    assert list(outcome.unknown) == ["a"]


def test_where_sudo_failed_a_file_is_unknown_not_absent() -> None:
    record = HostRecord(Visit(), {"Queue": {"": Output("error", err="sudo -n: a password is required")}})
    assert judged(queue_short, {"a": record}).unknown == {"a": Reason("/q: sudo -n: a password is required")}


def test_what_is_not_there_is_skipped() -> None:
    outcome = judged(queue_short, {"a": NOT_THERE})
    assert (outcome.status, outcome.skipped) == (Status.SKIPPED, {"a": "/q does not exist"})


def test_a_finding_weighs_more_than_an_unknown_and_both_are_kept() -> None:
    outcome = judged(queue_short, {"a": queue_record("3"), "b": DENIED})
    assert outcome.status is Status.FAILED
    assert list(outcome.unknown) == ["b"]


def test_a_fleet_check_sees_the_hosts_that_could_be_read_and_says_which_not() -> None:
    outcome = judged(queue_differs, {"a": queue_record("1"), "b": REFUSED, "c": queue_record("2")})
    assert outcome.findings[0].hosts == ("a", "c")
    assert outcome.evaluated_hosts == ("a", "c")
    assert list(outcome.unknown) == ["b"]


def test_a_fleet_check_that_saw_no_host_says_nothing_of_health() -> None:
    assert judged(queue_differs, {"a": REFUSED, "b": DENIED}).status is Status.UNKNOWN
    assert judged(queue_differs, {"a": NOT_THERE}).status is Status.SKIPPED
    assert judged(queue_differs, {}).status is Status.SKIPPED


def test_a_device_that_could_not_be_read_hides_no_conflict_among_the_others() -> None:
    outputs = {"0": Output(out="x"), "1": Output("timeout"), "2": Output(out="x")}
    outcome = judged(address_repeated, {"a": HostRecord(Visit(), {"Addresses": outputs})})
    assert outcome.findings == (Finding("repeated"),)
    assert outcome.unknown == {"a": Reason("NPU 1: timeout")}


def test_a_missing_tool_is_absent_for_all_its_devices() -> None:
    outputs = {"": Output("absent", err="tool is not installed")}
    outcome = judged(address_repeated, {"a": HostRecord(Visit(), {"Addresses": outputs})})
    assert outcome.skipped == {"a": "tool is not installed"}


def test_intent_that_was_not_given_skips_and_that_cannot_be_used_is_unknown() -> None:
    records = {"a": queue_record("5")}
    assert judged(queue_below_plan, records).status is Status.SKIPPED
    broken = judged(queue_below_plan, records, {Plan: Unreadable("not JSON", "plan-not-json")})
    assert broken.unknown == {"": Reason("not JSON", "plan-not-json")}
    assert judged(queue_below_plan, records, {Plan: Plan(9)}).findings[0].values == {"length": 5, "least": 9}


def test_an_optional_fact_is_none_where_it_is_absent_and_unknown_where_it_is_unreadable() -> None:
    observed = []

    @check(severity=ERROR)
    def maybe(queue: Queue | None) -> Iterator[Finding]:
        """Fine."""
        observed.append(queue)
        yield from ()

    outcome = judged(maybe, {"a": NOT_THERE, "b": DENIED})
    assert observed == [None]
    assert (outcome.evaluated_hosts, list(outcome.unknown)) == (("a",), ["b"])


@pytest.mark.parametrize(
    ("host", "found", "unknown", "skipped"),
    [
        ({"Queue": "5", "Depth": "9"}, ["short"], False, False),
        ({"Queue": "5", "Depth": None}, ["short"], True, False),
        ({"Queue": "50", "Depth": None}, [], True, False),
        ({"Queue": None, "Depth": "9"}, [], True, False),
        ({"Queue": None, "Depth": None}, [], True, False),
        ({"Queue": "", "Depth": "9"}, [], False, False),
        ({"Queue": "", "Depth": ""}, [], False, True),
    ],
)
def test_a_part_that_cannot_be_read_hides_nothing_that_another_part_tells(
    host: dict[str, str | None], found: list[str], unknown: bool, skipped: bool
) -> None:
    """None: refused; an empty text: the file is not there."""

    @check(severity=ERROR, apart=("queue", "depth"))
    def parts(queue: Queue | None, depth: Depth | None) -> Iterator[Finding]:
        """Fine."""
        if queue and queue.length < 10:
            yield Finding("short")

    outputs = {None: Output("error", err="Permission denied"), "": Output("absent", err="it does not exist")}
    record = HostRecord(
        Visit(), {name: {"/q": outputs.get(text) or Output(out=str(text))} for name, text in host.items()}
    )
    outcome = judged(parts, {"a": record})
    assert [str(finding) for finding in outcome.findings] == found
    assert (bool(outcome.unknown), bool(outcome.skipped)) == (unknown, skipped)


def test_a_check_that_breaks_is_an_outcome_with_its_traceback() -> None:
    @check(severity=ERROR)
    def breaks(queue: Queue) -> Iterator[Finding]:
        """Fine."""
        yield Finding("first")
        raise ZeroDivisionError("by design")

    outcome = judged(breaks, {"a": queue_record("1")})
    assert "by design" in outcome.crashed["a"]
    assert outcome.findings == (Finding("first", hosts=["a"]),)


def test_a_check_may_say_that_it_does_not_apply() -> None:
    @check(severity=ERROR)
    def skips(queue: Queue) -> Iterator[Finding]:
        """Fine."""
        raise Skip("A2 has no such rule")
        yield

    outcome = judged(skips, {"a": queue_record("1")})
    assert (outcome.status, outcome.skipped) == (Status.SKIPPED, {"a": "A2 has no such rule"})


def test_a_check_with_its_own_facts_and_the_fleets_is_called_once_a_host() -> None:
    @check(severity=ERROR)
    def below_best(queue: Queue, queues: PerHost[Queue]) -> Iterator[Finding]:
        """Every queue is as long as the longest."""
        best = max(entry.length for entry in queues.values())
        if queue.length < best:
            yield Finding("{length} of {best}", length=queue.length, best=best)

    outcome = judged(below_best, {"a": queue_record("1"), "b": queue_record("9"), "c": REFUSED})
    assert outcome.findings == (Finding("{length} of {best}", hosts=["a"], length=1, best=9),)
    assert outcome.evaluated_hosts == ("a", "b")
    assert list(outcome.unknown) == ["c"]


def test_a_parameter_that_is_no_fact_is_refused_when_the_check_is_read() -> None:
    @check(severity=ERROR)
    def malformed_check(queue: list[Queue]) -> Iterator[Finding]:
        """Fine."""
        yield from ()

    with pytest.raises(BadCheck, match=r"malformed_check\(queue\): expected a fact"):
        _ = Check(malformed_check).needs


@given(st.text())
def test_whatever_a_file_says_the_fact_is_a_value_absent_or_unreadable(text: str) -> None:
    assert isinstance(read_fact(queue_record(text), Queue), (Queue, Absent))


class Reply(Fact, frozen=True):
    """What the second round asks for, going by the queues."""

    probe = run("reply")
    needs = (Queue,)

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Reply:
        answer.text()
        return cls()


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (DENIED, Unreadable("/q: Permission denied")),
        (NOT_THERE, Absent("/q does not exist")),
        (queue_record("5"), Absent("no other host to test against")),
        (REFUSED, Unreadable("not reached: connection refused")),
    ],
)
def test_a_host_that_the_second_round_did_not_ask_says_why(record: HostRecord, why: Absent) -> None:
    assert read_fact(record, Reply) == why
