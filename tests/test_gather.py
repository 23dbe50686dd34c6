"""Visiting the fleet: one host's trouble never delays or hides another's."""

from __future__ import annotations

import marshal
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from doctor.collect.collector_request import COLLECTOR, CollectOptions
from doctor.collect.fanout import RunInterrupted, TimeLimits, gather
from doctor.collect.rounds import run_rounds
from doctor.engine.fact import Fact, Output, PerHost, ProbeAnswer, run
from doctor.remote.request import Request
from doctor.transport import CommandResult, TransportError

ASK = CollectOptions((), {})


class Fake:
    """Answers at once, but for the hosts that `slow` holds until it is set, and those that `broken` names."""

    def __init__(
        self, slow: tuple[str, ...] = (), broken: dict[str, Exception] | None = None, outputs: str = "{}"
    ) -> None:
        self.slow, self.broken, self.gate, self.outputs = slow, broken or {}, threading.Event(), outputs
        self.closed = False
        self.warnings: list[str] = []

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        if host in self.broken:
            raise self.broken[host]
        if host in self.slow:
            self.gate.wait(20)
            raise TransportError("budget", "given up")
        marker = marshal.loads(stdin[len(COLLECTOR.sent_source) :])["marker"]
        rest = '"python": "3.9.1", "uid": 0, "name": "h", "began": 5.0, "ended": 6.0'
        body = f'{{"outputs": {self.outputs}, {rest}}}'
        return CommandResult(0, f"\n{marker}\n{body}\n{marker} end\n".encode(), b"", 4.0, 7.0)

    def close(self) -> None:
        self.closed = True
        self.gate.set()


def test_every_host_gets_a_record_in_the_order_given() -> None:
    records = gather(["c", "a", "b"], Fake(), ASK, TimeLimits())
    assert list(records) == ["c", "a", "b"]
    assert {record.visit.python for record in records.values()} == {"3.9.1"}


def test_what_hosts_answer_alike_is_one_object() -> None:
    outputs = '{"Named": {"/a": {"out": "1"}}, "Reached": {"": {"out": "", "seconds": 0.1}}}'
    records = [*gather(["a", "b", "c", "d"], Fake(outputs=outputs), ASK, TimeLimits(workers=1)).values()]
    for record in records:
        assert record.outputs == {"Named": {"/a": Output(out="1")}, "Reached": {"": Output(seconds=0.1)}}
    # From the second host that answers it: one host's answer alone is not kept.
    assert len({id(record.outputs["Named"]) for record in records[1:]}) == 1


def test_an_output_of_another_form_costs_itself_alone() -> None:
    outputs = '{"Named": {"": {"out": 5}}, "Reached": {"": {"out": "1"}}}'
    record = gather(["a"], Fake(outputs=outputs), ASK, TimeLimits())["a"]
    assert (record.visit.failure, record.outputs["Reached"]) == ("", {"": Output(out="1")})
    assert record.outputs["Named"][""].ended == "error"
    assert "cannot be read" in record.outputs["Named"][""].err


def test_the_budget_holds_and_what_has_not_answered_says_so() -> None:
    transport = Fake(slow=("b",))
    began = time.monotonic()
    records = gather(["a", "b"], transport, ASK, TimeLimits(budget=0.3))
    assert time.monotonic() - began < 10
    assert (records["b"].visit.failure, records["a"].visit.failure) == ("budget", "")
    assert records["b"].visit.text == "no answer within 0.3 s"
    assert not transport.closed
    transport.close()


@pytest.mark.parametrize(("timeout", "kind"), [(60.0, "budget"), (3.0, "timeout")])
def test_time_that_the_budget_cut_short_is_not_the_hosts_fault(timeout: float, kind: str) -> None:
    late = TransportError("timeout", "the command did not end in time")
    records = gather(["a"], Fake(broken={"a": late}), ASK, TimeLimits(timeout, budget=30.0))
    assert records["a"].visit.failure == kind


class Named(Fact, frozen=True):
    """A fact of the first round."""

    probe = run("true")

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Named:
        return cls()


class Reached(Fact, frozen=True):
    """One of the second round, for every host of the first."""

    probe = run("true")
    needs = (Named,)

    @classmethod
    def plan(cls, fleet_facts: Mapping[type[Fact], PerHost[Any]]) -> dict[str, Any]:
        return dict.fromkeys(fleet_facts[Named], "given")

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Reached:
        return cls()


def test_a_host_that_hangs_leaves_the_second_round_its_time() -> None:
    """It costs its own answer, and not those that the others give afterwards."""
    transport = Fake(slow=("b",), outputs='{"Named": {"": {}}, "Reached": {"": {}}}')
    options, limits = CollectOptions((Named, Reached), {}), TimeLimits(budget=5.0)
    records = run_rounds(["a", "b", "c"], transport, options, limits, False, lambda host, record: None)
    transport.close()
    assert records["b"].visit.failure == "budget"
    assert {host: record.outputs.get("Reached", {}).get("") for host, record in records.items()} == {
        "a": Output(),
        "b": None,
        "c": Output(),
    }


class Keeping(Fake):
    """Over it, collectors wait for the second round."""

    def __init__(self, outputs: str) -> None:
        super().__init__(outputs=outputs)
        self.requests: list[Request] = []
        self.kept = 0

    def run_kept(self, host: str, request: Request, timeout: float) -> CommandResult:
        self.requests.append(request)
        self.kept += bool(request.end)
        return self.run(host, request.command, request.stdin, timeout)

    def end_kept(self) -> None:
        self.kept = 0


def test_only_the_first_of_two_rounds_leaves_collectors_waiting() -> None:
    transport = Keeping('{"Named": {"": {}}, "Reached": {"": {}}}')
    for facts, waiting in (((Named, Reached), [True, False]), ((Named,), [False])):
        transport.requests.clear()
        run_rounds(["a"], transport, CollectOptions(facts, {}), TimeLimits(), False, lambda host, record: None)
        assert [bool(request.end) for request in transport.requests] == waiting
        assert transport.kept == 0


def test_trouble_becomes_a_record_in_the_hosts_own_words() -> None:
    broken = {"a": TransportError("refused", "connection refused", "start sshd"), "b": ZeroDivisionError("ours")}
    records = gather(["a", "b", "c"], Fake(broken=broken), ASK, TimeLimits())
    assert (records["a"].visit.failure, records["a"].visit.hint) == ("refused", "start sshd")
    assert (records["b"].visit.failure, records["b"].visit.text) == ("error", "ZeroDivisionError: ours")
    assert records["c"].visit.failure == ""


def test_an_interrupt_keeps_what_had_come() -> None:
    def stop(host: str, record: object) -> None:
        raise SystemExit(143)

    with pytest.raises(RunInterrupted) as caught:
        gather(["a", "b"], Fake(slow=("b",)), ASK, TimeLimits(), progress=stop)
    assert isinstance(caught.value.interrupt, SystemExit)
    assert caught.value.records["a"].visit.failure == ""
    assert caught.value.records["b"].visit.failure == "budget"


def test_few_workers_still_visit_all() -> None:
    hosts = [f"h{number}" for number in range(50)]
    assert len(gather(hosts, Fake(), ASK, TimeLimits(workers=3))) == 50
