"""Visiting the fleet: one host's trouble never delays or hides another's."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest

from doctor.collect.fanout import Limits, Partial, gather
from doctor.collect.protocol import Ask
from doctor.transport import Said, Unreached

ASK = Ask((), {})


class Fake:
    """Answers at once, but for the hosts that `slow` holds until it is set, and those that `broken` names."""

    def __init__(self, slow: tuple[str, ...] = (), broken: dict[str, Exception] | None = None) -> None:
        self.slow, self.broken, self.gate = slow, broken or {}, threading.Event()
        self.closed = False
        self.warnings: list[str] = []

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> Said:
        if host in self.broken:
            raise self.broken[host]
        if host in self.slow:
            self.gate.wait(20)
            raise Unreached("budget", "given up")
        request = msgspec.json.decode(stdin[stdin.rindex(b'{"marker"') :])
        marker = request["marker"]
        body = '{"outputs": {}, "python": "3.9.1", "uid": 0, "name": "h", "began": 5.0, "ended": 6.0}'
        return Said(0, f"\n{marker}\n{body}\n{marker} end\n".encode(), b"", 4.0, 7.0)

    def close(self) -> None:
        self.closed = True
        self.gate.set()


def test_every_host_gets_a_record_in_the_order_given() -> None:
    records = gather(["c", "a", "b"], Fake(), ASK, Limits())
    assert list(records) == ["c", "a", "b"]
    assert {record.visit.python for record in records.values()} == {"3.9.1"}


def test_the_budget_holds_and_what_has_not_answered_says_so() -> None:
    transport = Fake(slow=("b",))
    began = time.monotonic()
    records = gather(["a", "b"], transport, ASK, Limits(budget=0.3))
    assert time.monotonic() - began < 10
    assert (records["b"].visit.trouble, records["a"].visit.trouble) == ("budget", "")
    assert "budget of 0.3 s" in records["b"].visit.text
    assert transport.closed


def test_trouble_becomes_a_record_in_the_hosts_own_words() -> None:
    broken = {"a": Unreached("refused", "connection refused", "start sshd"), "b": ZeroDivisionError("ours")}
    records = gather(["a", "b", "c"], Fake(broken=broken), ASK, Limits())
    assert (records["a"].visit.trouble, records["a"].visit.hint) == ("refused", "start sshd")
    assert (records["b"].visit.trouble, records["b"].visit.text) == ("error", "ZeroDivisionError: ours")
    assert records["c"].visit.trouble == ""


def test_an_interrupt_keeps_what_had_come() -> None:
    def stop(host: str, record: object) -> None:
        raise SystemExit(143)

    with pytest.raises(Partial) as caught:
        gather(["a", "b"], Fake(slow=("b",)), ASK, Limits(), progress=stop)
    assert isinstance(caught.value.stop, SystemExit)
    assert caught.value.records["a"].visit.trouble == ""
    assert caught.value.records["b"].visit.trouble == "budget"


def test_few_workers_still_visit_all() -> None:
    hosts = [f"h{number}" for number in range(50)]
    assert len(gather(hosts, Fake(), ASK, Limits(workers=3))) == 50
