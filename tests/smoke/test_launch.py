"""The supervisor: whatever hosts say or fail to say ends in one plain trouble, and everything is ended."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.record import HostRecord
from doctor.remote.runtime.controller import LEFT_STATUS
from doctor.smoke.hang import detector
from doctor.smoke.model import Failure, SmokeResult, SmokeRun
from doctor.smoke.plan import PlanHost, SmokeOptions, build_plan
from doctor.smoke.programs.agent.agent import PATIENCE
from doctor.smoke.protocol import parse_event, parse_message
from doctor.smoke.results.trouble_findings import blamed_hosts
from doctor.smoke.run import channels, programs, progress
from doctor.smoke.run.channels import ReadyAgent, start_agents
from doctor.smoke.run.round import run_single_round
from doctor.smoke.run.supervisor import run_on_launched, smoke
from doctor.transport import RemoteSession, TransportError, program
from doctor.transport.local import Local
from doctor.transport.program import InvalidMessage
from tests.smoke.scripted import Agent, Line, Stage, alive, done, event, hello, life
from tests.transport.test_talk import files

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("start", "rendezvous", "collectives", "pairs", "training", "learning", "loader", "pace")
WISH = SmokeOptions(backend="gloo", ranks_per_host=2)


def well(ranks: Sequence[int]) -> list[Line]:
    return [*life(ranks, STAGES), *done(ranks), *alive(ranks)]


def agent(host: str, start: Callable[[Sequence[int]], Sequence[Line]] = well, **more: Any) -> Agent:
    return Agent(host, [hello(host, **more)], start)


def play(
    b: Agent | TransportError, a: Agent | None = None, wish: SmokeOptions = WISH, **options: Any
) -> tuple[SmokeResult, Agent, float]:
    """A run on two hosts, a being sound, and the seconds that it took."""
    a = a or agent("a", lambda ranks: [*life(ranks), *alive(ranks)])
    began = time.monotonic()
    smoked = smoke({"a": 0, "b": 0}, Stage(a=a, b=b), wish, **options)
    return smoked, a, time.monotonic() - began


def trouble(smoked: SmokeResult) -> Failure:
    assert smoked.run.ended == "trouble"
    (failure,) = smoked.run.failures
    return failure


def facts(smoked: SmokeResult, host: str) -> dict[str, dict[str, Any]]:
    return {name: json.loads(outputs[""].out) for name, outputs in smoked.records[host].outputs.items()}


# ---- all is well


def test_a_run_that_comes_to_its_end() -> None:
    received: list[str] = []
    b = agent("b")
    smoked, a, seconds = play(b, agent("a"), on_stage=lambda stage, seconds: received.append(stage))
    assert smoked.run.ended == "complete"
    assert smoked.run.failures == ()
    assert tuple(received) == (*STAGES, "teardown")
    assert tuple(smoked.run.reached) == (*STAGES, "teardown")
    assert smoked.run.import_seconds == 1.5
    assert seconds < 3.0  # nobody has waited for a silence to end, even on a busy machine
    assert a.orders_of("end") and b.orders_of("end")
    assert [order["mine"] for order in a.orders_of("start") + b.orders_of("start")] == [[0, 1], [2, 3]]
    assert [order["hosts_store"] for order in a.orders_of("start") + b.orders_of("start")] == [True, False]
    assert a.orders_of("start")[0]["master"] == b.orders_of("start")[0]["master"]
    for host, ranks in (("a", {0, 1}), ("b", {2, 3})):
        responses = facts(smoked, host)
        assert all(fact["reached"] for name, fact in responses.items() if name not in ("SmokeNative", "SmokeDevices"))
        assert responses["SmokeNative"]["why"] == "the native stage was not asked for"
        assert {entry["rank"] for entry in responses["SmokeStart"]["events"]} - {-1} == ranks


def test_noise_and_empty_lines_are_nothing() -> None:
    b = Agent("b", [b"Welcome!", b"", b"doctor-0000 {}", hello("b"), b"motd", b"{}"], well)
    assert play(b, agent("a"))[0].run.ended == "complete"


def test_agents_that_were_there_already() -> None:
    plan = build_plan(
        {"a": PlanHost(slots=1), "b": PlanHost(slots=1)}, SmokeOptions(backend="gloo", master_addr="10.0.0.9")
    )
    agents = [Agent(host, [hello(host)], well) for host in ("a", "b")]
    ready = [ReadyAgent(entry.host, (rank,), entry, "10.0.0.1") for rank, entry in enumerate(agents)]
    smoked = run_on_launched(plan, ready, SmokeOptions())
    assert smoked.run.ended == "complete"
    assert [entry.orders[0]["prepare"]["listen"] for entry in agents] == [True, False]
    assert {order["start"] for entry in agents for order in entry.orders_of("start")} == {"exec"}
    assert agents[1].orders_of("start")[0]["master"] == ["10.0.0.9", 29400]


# ---- hosts that fail


REFUSED = TransportError("refused", "port 22 refuses connections", "start sshd")


class Ordered(Stage):
    """b refuses only when the supervisor has a's greeting: lines come to it in one queue, in their order."""

    def open_session(self, host: str, command: str) -> RemoteSession:
        a = self.agents["a"]
        assert isinstance(a, Agent)
        if host == "b":
            assert a.greeted.wait(20)
        return super().open_session(host, command)


def refused(smoked: SmokeResult) -> None:
    """The failure names b, and b alone."""
    failure = trouble(smoked)
    assert (failure.kind, failure.culprit_ranks, failure.waiting_ranks) == ("not-started", (2, 3), (0, 1))
    assert failure.text == "b: port 22 refuses connections"
    visit = smoked.records["b"].visit
    assert (visit.failure, visit.text, visit.hint) == ("refused", "port 22 refuses connections", "start sshd")
    assert smoked.records["b"].outputs == {}


def test_a_host_that_cannot_be_reached() -> None:
    a = agent("a", lambda ranks: [*life(ranks), *alive(ranks)])
    smoked = smoke({"a": 0, "b": 0}, Ordered(a=a, b=REFUSED), WISH)
    refused(smoked)
    assert not a.orders_of("start") and a.orders_of("end")
    assert smoked.records["a"].visit.failure == ""
    why = facts(smoked, "a")["SmokeStart"]
    assert (why["reached"], why["because"]) == (False, "smoke-rank-not-started")


def test_a_host_that_was_not_heard_of_when_another_refused_is_not_known_and_not_blamed() -> None:
    a = Agent("a", [], lambda ranks: [])
    smoked = smoke({"a": 0, "b": 0}, Stage(a=a, b=REFUSED), WISH)
    refused(smoked)
    visit = smoked.records["a"].visit
    assert (visit.failure, visit.text) == ("budget", "the smoke run ended before this host answered")
    assert smoked.records["a"].outputs == {}


class Visits:
    """A run whose agents' visit is the only one: a is sound, b is as it is."""

    def __init__(self, a: Agent | TransportError, b: Agent | TransportError, wish: SmokeOptions = WISH) -> None:
        self.failures: dict[str, str] = {}
        self.worked = 0
        called = start_agents({"a": 0, "b": 0}, Stage(a=a, b=b), wish.master_port)
        self.third = run_single_round(called, wish, on_stage=lambda *_: None, on_host=self.meets, meanwhile=self.work())

    def meets(self, host: str, record: HostRecord) -> None:
        self.failures[host] = record.visit.failure

    def work(self) -> Iterator[None]:
        for self.worked in range(1, 2001):
            yield

    @property
    def run(self) -> SmokeRun:
        return msgspec.convert(self.third.smoke, SmokeRun, str_keys=True)

    @property
    def ranks(self) -> list[str]:
        return [place.host for place in self.run.plan.places]


class TestTheOnlyVisit:
    def test_all_answer(self) -> None:
        visits = Visits(agent("a"), agent("b", uid=7, now=12.0))
        assert (visits.failures, visits.worked) == ({"a": "", "b": ""}, 2000)
        assert (visits.run.ended, visits.third.notes) == ("complete", ())
        visit = visits.third.records["b"].visit
        assert (visit.failure, visit.python, visit.uid, visit.began) == ("", "3.9.2", 7, 12.0)
        assert 0 < visit.sent <= visit.received

    def test_a_host_that_cannot_be_reached_is_left_out(self) -> None:
        visits = Visits(agent("a"), TransportError("refused", "port 22 refuses connections", "start sshd"))
        assert visits.failures == {"a": "", "b": "refused"}
        assert visits.run.ended == "complete"
        assert visits.ranks == ["a", "a"]
        visit = visits.third.records["b"].visit
        assert (visit.failure, visit.text, visit.hint) == ("refused", "port 22 refuses connections", "start sshd")
        assert visits.third.records["b"].outputs == {}
        assert visits.third.notes == ("the smoke run excluded 1 of 2 hosts, which could not be reached",)
        assert list(visits.third.records) == ["a", "b"]

    def test_where_the_first_is_left_out_the_ranks_meet_at_another(self) -> None:
        b = agent("b", port=0)
        b.answers = {**b.answers, "prepare": [hello("b", port=2222)]}
        visits = Visits(
            TransportError("dropped", "no answer"), b, SmokeOptions(backend="gloo", ranks_per_host=2, master_port=2222)
        )
        assert visits.run.ended == "complete"
        assert visits.ranks == ["b", "b"]
        assert b.orders_of("prepare") == [{"do": "prepare", "listen": True, "port": 2222}]
        assert b.orders_of("start")[0]["master"] == ["127.0.0.1", 2222]
        assert b.orders_of("start")[0]["hosts_store"] is True

    def test_the_words_are_those_of_any_other_visit(self) -> None:
        b = Agent("b", [b"This account is closed.", None], lambda ranks: [])
        visit = Visits(agent("a"), b).third.records["b"].visit
        text = "the login shell did not start the collector (exit status 0): This account is closed."
        assert (visit.failure, visit.text) == ("shell", text)

    def test_nobody_answers(self) -> None:
        visits = Visits(TransportError("dropped", "no answer"), TransportError("auth", "no key"))
        assert visits.third.smoke == {"not_started": "no host could be reached"}
        assert {host: record.visit.failure for host, record in visits.third.records.items()} == {
            "a": "dropped",
            "b": "auth",
        }
        assert visits.worked == 2000

    def test_what_the_hosts_do_not_allow_is_refused(self) -> None:
        a, b = agent("a"), agent("b")
        visits = Visits(a, b, SmokeOptions(backend="gloo", ranks_per_host=2, layouts=("dp=3",)))
        assert "expected 4, the number of ranks" in visits.third.rejection
        assert a.orders_of("end") and b.orders_of("end")


def test_a_host_whose_agent_does_not_start() -> None:
    b = Agent("b", [b"bash: python3: command not found", None], well)
    b.err = b"doctor-no-python\n"
    smoked, _, _ = play(b)
    assert trouble(smoked).kind == "not-started"
    assert smoked.records["b"].visit.failure == "no-python"
    assert "command not found" in smoked.records["b"].visit.text


def test_an_agent_that_ends_midway() -> None:
    failure = trouble(play(agent("b", lambda ranks: [*life(ranks), None]))[0])
    assert (failure.kind, failure.culprit_ranks, failure.certainty) == ("silent", (2, 3), "certain")
    assert failure.text == "b: its agent ended (exit status 0)"
    assert failure.stage in ("start", "collectives")  # as far as the slower of the two had come


def test_a_connection_that_breaks() -> None:
    failure = trouble(
        play(agent("b", lambda ranks: [*life(ranks), TransportError("lost", "the connection was cut")]))[0]
    )
    assert (failure.kind, failure.culprit_ranks, failure.text) == ("silent", (2, 3), "b: the connection was cut")


def test_who_waited_for_a_late_host_was_not_silent() -> None:
    late = Agent("b", [1.5, hello("b")], well)
    slow = agent("a", lambda ranks: [0.3, *well(ranks)])
    assert play(late, slow)[0].run.ended == "complete"


def test_a_supervisor_that_sleeps_accuses_nobody() -> None:
    def on_progress(stage: str, seconds: float) -> None:
        if stage == "start":
            time.sleep(1.6)

    late = agent(
        "b", lambda ranks: [*life(ranks), *alive(ranks)[:30], *life(ranks, STAGES), *done(ranks), *alive(ranks)]
    )
    assert play(late, agent("a"), on_stage=on_progress)[0].run.ended == "complete"


def test_agents_hear_that_we_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "STAY", 0.1)
    b = agent("b", lambda ranks: [*life(ranks, STAGES), *alive(ranks)[:8], *done(ranks), *alive(ranks)])
    play(b, agent("a"))
    assert len(b.orders_of("stay")) > 1


# ---- what hosts say is not trusted

FOREIGN: dict[str, Line] = {
    "no JSON": b"MARKER {",
    "no UTF-8": b"MARKER \xff\xfe",
    "no object": b"MARKER []",
    "other types": {"snaps": [{"rank": "two"}]},
    "a state that is none": {"snaps": [{"rank": 2, "stamp": 1, "state": "asleep", "stage": "training"}]},
    "a rank of another host": {"snaps": [{"rank": 0, "stamp": 1, "state": "compute", "stage": "training"}]},
    "no rank": {"snaps": [{"rank": 99, "stamp": 1, "state": "compute", "stage": "training"}]},
    "an event of another host's rank": event(0, "done"),
    "an event that is none": {"event": [1, 2]},
    "an event without a name": {"event": {"rank": 2}},
    "an import that took no time": event(-1, "imported", seconds="long"),
    "a group of ranks that are not": event(2, "group", gid=1, name="dp", ranks=[2, 77]),
    "an endless nest": b'MARKER {"event":' + b"[" * 100_000,
    "a number beyond all": b'MARKER {"late":1e999,"snaps":[{"rank":2,"stamp":1e999}]}',
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_line_that_cannot_be_understood(name: str) -> None:
    failure = trouble(play(agent("b", lambda ranks: [*life(ranks), FOREIGN[name], *alive(ranks)]))[0])
    assert (failure.kind, failure.culprit_ranks) == ("silent", (2, 3))
    assert failure.text.startswith("b: its agent sent an invalid message: ")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_line_or_not_understood(data: bytes) -> None:
    with contextlib.suppress(InvalidMessage):
        parse_message(data)


EVENT_NAMES = st.sampled_from(["event", "snaps", "rank", "ev", "hello", "stacks", "late"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(EVENT_NAMES, inner),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_a_line_or_not_understood(value: Any) -> None:
    with contextlib.suppress(InvalidMessage):
        line = parse_message(json.dumps(value).encode())
        if line.event:
            parse_event(line.event)


def test_more_events_than_any_run_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MOST_EVENTS", 50)
    b = agent("b", lambda ranks: [*life(ranks), *[event(2, "learn", step=n) for n in range(100)], *alive(ranks)])
    assert "more than 50 events" in trouble(play(b)[0]).text


def test_what_a_host_says_is_shown_plain() -> None:
    b = agent("b", lambda ranks: [{"fault": "\x1b[31mred\x07"}, *well(ranks)])
    assert play(b, agent("a"))[0].run.notes == ("b: red",)


# ---- ranks that do not come along


def waits(ranks: Sequence[int]) -> list[Line]:
    return [event(-1, "imported", seconds=0.5), *alive(ranks)]


def idles(state: str, seconds: float, waits_for: str = "") -> list[Line]:
    """An interpreter of all ranks of a host that does nothing."""
    line: tuple[Line, ...] = ({"snaps": [], "starting": [[-1, state, seconds, waits_for]]}, 0.1)
    return [*line] * 100


def test_an_interpreter_that_does_nothing_for_too_long() -> None:
    b = agent("b", lambda ranks: idles("S", 61.0, "hrtimer_nanosleep"))
    failure = trouble(play(b)[0])
    assert (failure.kind, failure.culprit_ranks, failure.stage, failure.limit) == ("not-started", (2, 3), "start", 60.0)
    assert failure.text == (
        "the interpreter did nothing for 60 s, before it had imported torch, sleeping in hrtimer_nanosleep"
    )


@pytest.mark.parametrize(("state", "kind"), [("T", "stopped"), ("t", "stopped"), ("F", "frozen")])
def test_an_interpreter_that_stays_stopped_at_its_start_is_named(state: str, kind: str) -> None:
    b = agent("b", lambda ranks: idles(state, 61.0))
    failure = trouble(play(b)[0])
    assert (failure.kind, failure.culprit_ranks, failure.stage) == (kind, (2, 3), "start")


def test_an_import_that_is_slow_has_time_until_the_budget_ends_which_accuses_nobody() -> None:
    b = agent("b", lambda ranks: idles("D", 30.0))
    smoked = play(b, wish=SmokeOptions(backend="gloo", ranks_per_host=2, budget=1.0))[0]
    assert [failure.kind for failure in smoked.run.failures] == ["budget"]


@pytest.mark.parametrize(("cpu", "others", "named"), [(40.0, 0.5, True), (19.0, 0.5, False), (40.0, 15.0, False)])
@pytest.mark.parametrize("waits", [False, True], ids=["the budget ends", "the others give up"])
def test_an_interpreter_that_only_computed_is_named_in_the_end(
    waits: bool, cpu: float, others: float, named: bool
) -> None:
    """Whatever the load: it had the CPU, several times longer than the others' imports took."""
    gave_up: list[Line] = [
        event(
            0, "error", kind="DistStoreError", text="wait timeout after 60000ms, keys: /doctor/0", stage="rendezvous"
        ),
        event(0, "exit", status=13 << 8),
    ]
    a = agent(
        "a", lambda ranks: [event(-1, "imported", seconds=others), *alive(ranks)[:2], *gave_up * waits, *alive(ranks)]
    )
    b = agent("b", lambda ranks: [{"snaps": [], "starting": [[-1, "R", 0.0, "", cpu]]}, 0.1] * 100)
    budget = 20.0 if waits else 1.0
    (failure,) = play(b, a, wish=SmokeOptions(backend="gloo", ranks_per_host=2, budget=budget))[0].run.failures
    assert failure.kind == ("not-started" if named else "budget")
    assert not named or failure.culprit_ranks == (2, 3)
    assert not named or failure.text == (
        "the interpreter ran for 40 s and had not imported torch, which took the others 0 s at most"
    )
    told = f"On b the interpreter had not imported everything yet, after {cpu:.0f} s on a CPU."
    assert (told in failure.evidence) == (not named)


def test_an_interpreter_that_ends_well_before_it_has_imported_anything_has_not_started() -> None:
    b = agent("b", lambda ranks: [event(-1, "exit", status=0), *alive(ranks)])
    failure = trouble(play(b, agent("a", waits))[0])
    assert (failure.kind, failure.culprit_ranks) == ("not-started", (2, 3))
    assert failure.text == "the parent process of its ranks: exit status 0, before it had imported torch"


def without_orders(host: str, *last: Line) -> Agent:
    """An agent that ends itself as no order reached it, perhaps in the middle of a line."""
    leaves = agent(host, lambda ranks: [*life(ranks), *last, None])
    leaves.end_code = LEFT_STATUS
    return leaves


@pytest.mark.parametrize("last", [(), (b'MARKER {"snaps": [{"ra',)], ids=["whole", "cut"])
@pytest.mark.parametrize(("stood_still", "named"), [(False, (2, 3)), (True, ())], ids=["the way is cut", "doctor"])
def test_an_agent_that_no_order_reached_says_nothing_against_its_host(
    monkeypatch: pytest.MonkeyPatch, last: tuple[bytes, ...], stood_still: bool, named: tuple[int, ...]
) -> None:
    for module in (channels, program) if stood_still else ():
        monkeypatch.setattr(module, "STOOD_STILL", -1.0)
    run = play(without_orders("b", *last))[0].run
    failure = trouble(SmokeResult(run, {}))
    assert (failure.kind, failure.culprit_ranks) == ("unobserved", named)
    assert failure.text.startswith("doctor itself stood still for") == stood_still
    assert blamed_hosts(run, failure) == (("b",) if named else ())


@pytest.mark.parametrize("pause", [0.02, 20.0])
def test_a_pause_in_the_wait_for_lines_is_known_before_they_are_judged(
    monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    """A doctor that is stopped is stopped in this wait, mostly: what came meanwhile is taken in in the same turn."""
    now = [100.0]

    class Inbox(queue.SimpleQueue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            now[0] += pause
            return "b", program.ProgramLost("its agent ended", code=LEFT_STATUS)

    monkeypatch.setattr(program, "_elapsed", lambda: now[0])
    sessions = program.ProgramSessions("agent", {}, "MARKER")
    sessions._inbox = Inbox()
    sessions.pump()
    assert sessions.lost["b"].kind == program.NO_ORDERS
    assert sessions.lost["b"].text.startswith("doctor itself stood still for 20 s: ") == (pause > 1)


@pytest.mark.full
def test_a_doctor_that_is_stopped_for_longer_than_its_agents_wait_fails_no_host() -> None:
    argv = [sys.executable, "-m", "doctor", "smoke", "--ranks-per-host", "2", "--for", "60", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as doctor:
        agents = psutil.Process(doctor.pid)
        while not any(process.num_threads() > 1 for process in agents.children(recursive=True)):
            time.sleep(0.05)  # ranks have threads, once they have met
        doctor.send_signal(signal.SIGSTOP)
        time.sleep(PATIENCE + 3)
        doctor.send_signal(signal.SIGCONT)
        report = json.loads(doctor.communicate(timeout=60)[0])
    findings = [finding for outcome in report["outcomes"] for finding in outcome["findings"]]
    assert doctor.returncode == 12
    assert [(finding["severity"], finding["hosts"]) for finding in findings] == [("warning", [])]
    assert "doctor itself stood still for 1" in findings[0]["message"]


STARTS_OF_OTHERS: Line = {"snaps": [], "starting": [[0, "T", 99.0, ""]]}
RESENDS_OF_OTHERS: Line = {"snaps": [], "evidence": [[0, "10.0.0.9", 4, 8, 3]]}


@pytest.mark.parametrize("line", [STARTS_OF_OTHERS, RESENDS_OF_OTHERS], ids=["starting", "evidence"])
def test_what_a_host_says_of_another_hosts_rank_is_refused(line: Line) -> None:
    failure = trouble(play(agent("b", lambda ranks: [*life(ranks), line, *alive(ranks)]))[0])
    assert (failure.kind, failure.culprit_ranks) == ("silent", (2, 3))
    assert "a message about rank 0, which does not run there" in failure.text


def test_an_import_that_fails_on_some_hosts() -> None:
    def fails(ranks: Sequence[int]) -> list[Line]:
        fields = {"kind": "ModuleNotFoundError", "text": "No module named 'torch'", "stage": "start"}
        return [event(-1, "error", **fields), event(-1, "exit", status=4 << 8), *alive(ranks)]

    smoked, _, _ = play(agent("b", fails), agent("a", fails))
    failure = trouble(smoked)
    assert (failure.kind, failure.culprit_ranks) == ("not-started", (0, 1, 2, 3))
    assert failure.text == "ModuleNotFoundError: No module named 'torch'"


def test_an_interpreter_that_is_not_there() -> None:
    ends = event(-1, "exit", status=127 << 8, tail="/opt/python: No such file or directory\n")
    failure = trouble(play(agent("b", lambda ranks: [ends, *alive(ranks)]))[0])
    assert (failure.kind, failure.text) == ("not-started", "/opt/python: No such file or directory")


def test_the_process_that_ranks_come_from_is_killed() -> None:
    b = agent("b", lambda ranks: [*life(ranks), event(-1, "exit", status=9), *alive(ranks)])
    failure = trouble(play(b)[0])
    assert (failure.kind, failure.culprit_ranks) == ("dead", (2, 3))
    assert failure.text == "the parent process of its ranks: killed by signal 9"


def test_a_rank_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TRY", 0.2)
    monkeypatch.setattr(progress, "SETTLE", 0.2)
    tries = event(3, "try", problem="refused", text="10.0.0.1 port 9 refuses connections", address="10.0.0.1:9")
    failure = trouble(play(agent("b", lambda ranks: [waits(ranks)[0], tries, *alive(ranks)]), agent("a", waits))[0])
    assert (failure.kind, failure.culprit_ranks, failure.stage) == ("never-joined", (3,), "rendezvous")
    assert failure.text == "10.0.0.1 port 9 refuses connections"


def joining(ranks: Sequence[int], **effective: float) -> list[Line]:
    """Ranks in the rendezvous, with the seconds of their own time there: 9, or ``r2=1.0``."""
    snaps = [
        {
            "rank": rank, "stamp": 2, "state": "start", "stage": "rendezvous", "age": 9.0,
            "effective": effective.get(f"r{rank}", 9.0),
        }
        for rank in ranks
    ]  # fmt: skip
    return [event(-1, "imported", seconds=0.5), {"snaps": snaps}, *alive(ranks)]


def stands(ranks: Sequence[int], *then: Line) -> list[Line]:
    """Ranks that have been in a collective for five seconds of their own."""
    call = {"state": "collective", "stage": "training", "group": 0, "seq": 5, "op": "barrier", "entered": {"0": 5}}
    snaps = [{"rank": rank, "stamp": 9, "age": 5.0, "effective": 5.0, **call} for rank in ranks]
    return [*life(ranks, ("start", "rendezvous")), {"snaps": snaps}, *alive(ranks), *then]


def test_a_barrier_that_is_late_and_ends_is_no_failure() -> None:
    """Nothing but time spoke against it, and against no host."""
    agents = {name: agent(name, lambda ranks: [*stands(ranks), *life(ranks), *done(ranks)]) for name in "ab"}
    for each in agents.values():
        each.answers["sockets"] = [{"sockets": []}]
    run = play(agents["b"], agents["a"])[0].run
    assert (run.ended, run.failures) == ("complete", ())
    assert agents["a"].orders_of("sockets") and not agents["a"].orders_of("stacks"), "a signal may end a sleep"


@pytest.mark.parametrize(
    ("timeout", "function", "kinds"), [(60.0, "", []), (8.0, "pipe_read", []), (6.0, "hrtimer_nanosleep", ["blocked"])]
)
def test_a_rank_that_pauses_is_no_failure_before_four_fifths_of_the_limit_of_its_group(
    timeout: float, function: str, kinds: list[str]
) -> None:
    """Rank 3 has not come to the barrier for five seconds."""

    def starts(ranks: Sequence[int]) -> list[Line]:
        lines: list[Any] = msgspec.json.decode(msgspec.json.encode(stands(ranks)))
        for snap in (snap for line in lines if isinstance(line, dict) for snap in line.get("snaps", ())):
            late = {"state": "compute", "op": "", "entered": {"0": 4}, "process": "S", "waits_for": function}
            snap |= late if snap["rank"] == 3 else {}
        return [*lines, *alive(ranks)[:8], *life(ranks), *done(ranks), *alive(ranks)]

    wish = msgspec.structs.replace(WISH, timeout=timeout)
    run = play(agent("b", starts), agent("a", starts), wish=wish)[0].run
    assert [failure.kind for failure in run.failures] == kinds
    assert kinds or "The others waited 5 s for rank 3 on b, which then went on." in run.notes


def test_a_budget_that_ends_while_a_rank_sleeps_for_a_time_says_so_and_accuses_nobody() -> None:
    def starts(ranks: Sequence[int]) -> list[Line]:
        lines: list[Any] = msgspec.json.decode(msgspec.json.encode(stands(ranks)))
        for snap in (snap for line in lines if isinstance(line, dict) for snap in line.get("snaps", ())):
            late = {"state": "compute", "op": "", "entered": {"0": 4}, "process": "S", "waits_for": "hrtimer_nanosleep"}
            snap |= late if snap["rank"] == 3 else {}
        return [*lines, *alive(ranks)]

    wish = msgspec.structs.replace(WISH, timeout=8.0, budget=2.0)
    run = play(agent("b", starts), agent("a", starts), wish=wish)[0].run
    [failure] = run.failures
    assert (run.ended, failure.kind, failure.culprit_ranks) == ("budget", "budget", (3,))
    assert failure.text == "the budget of 2 s was spent, and rank 3 kept the others waiting"


def test_a_barrier_that_does_not_end_is_a_failure_without_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detector.Detector, "wait_on", lambda *_: False)
    agents = {name: agent(name, lambda ranks: [*stands(ranks), *alive(ranks), *alive(ranks)]) for name in "ab"}
    for each in agents.values():
        each.answers["sockets"] = [{"sockets": []}]
    failure = trouble(play(agents["b"], agents["a"])[0])
    assert (failure.kind, failure.culprit_ranks, failure.text) == ("network", (), "the cause is not known")


@pytest.mark.parametrize(("results", "culprits"), [(((1, 4.0),), (1,)), (((1, 5.0),), ()), (((1, 4.0), (2, 5.0)), ())])
def test_a_result_that_nothing_was_written_to_tells_who_was_not_in_a_call(
    results: tuple[tuple[int, float], ...], culprits: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 gave 4 to the broadcast of rank 0, which gave 1. That it has 5 shows nothing, nor does 4 beside others."""
    monkeypatch.setattr(detector.Detector, "wait_on", lambda *_: False)
    values = {"gid": 0, "op": "broadcast", "dtype": "float32", "numel": 1, "root": 0, "index": 0, "wrong": 1}
    more = [event(rank, "wrong", expected=1.0, got=got, **values) for rank, got in results]

    def starts(ranks: Sequence[int]) -> list[Line]:
        return [
            *[line for line in more if line["event"]["rank"] in ranks],
            *stands(ranks),
            *alive(ranks),
            *alive(ranks),
        ]

    agents = {name: agent(name, starts) for name in "ab"}
    for each in agents.values():
        each.answers["sockets"] = [{"sockets": []}]
    failure = trouble(play(agents["b"], agents["a"])[0])
    assert (failure.kind, failure.culprit_ranks) == ("left" if culprits else "network", culprits)


@pytest.mark.parametrize(("unread", "culprits"), [([], (0,)), (["10.77.1.1"], ())])
def test_who_sent_nothing_is_named_unless_what_came_was_not_read(
    unread: list[str], culprits: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detector.Detector, "wait_on", lambda *_: False)

    def starts(ranks: Sequence[int]) -> list[Line]:
        lines: list[Any] = msgspec.json.decode(msgspec.json.encode(stands(ranks)))
        for snap in (snap for line in lines if isinstance(line, dict) for snap in line.get("snaps", ())):
            snap |= {"op": "broadcast", "root": 0} if snap["rank"] else {"seq": 6, "entered": {"0": 6}}
        return [*lines, *alive(ranks)]

    agents = {name: agent(name, starts) for name in "ab"}
    for each in agents.values():
        each.answers["sockets"] = [{"sockets": [], "unread": unread}]
    failure = trouble(play(agents["b"], agents["a"])[0])
    assert (failure.kind, failure.culprit_ranks) == ("left" if culprits else "network", culprits)


@pytest.mark.parametrize(
    ("second", "answers", "culprits"),
    [(["10.77.1.2"], True, (0, 1)), ([], True, ()), (["10.77.1.2"], False, ())],
    ids=["stays", "read-then", "other-host-silent"],
)
def test_a_host_that_does_not_read_what_has_come_is_named_if_it_stays_so(
    second: list[str], answers: bool, culprits: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detector.Detector, "wait_on", lambda *_: False)
    agents = {name: agent(name, lambda ranks: [*stands(ranks), *alive(ranks), *alive(ranks)]) for name in "ab"}
    agents["a"].answers["sockets"] = [{"sockets": [], "unread": ["10.77.1.2"]}, {"sockets": [], "unread": second}]
    agents["b"].answers["sockets"] = [{"sockets": []}] if answers else []
    failure = trouble(play(agents["b"], agents["a"])[0])
    assert (failure.kind, failure.culprit_ranks) == ("network", culprits)
    assert ("a that its ranks do not read" in failure.text) == bool(culprits)


LATE = SmokeOptions(backend="gloo", ranks_per_host=2, budget=2.5, timeout=0.5)


def joined_late(monkeypatch: pytest.MonkeyPatch, a: Agent, b: Agent) -> Failure:
    monkeypatch.setattr(progress, "JOIN", 0.5)
    monkeypatch.setattr(progress, "CONNECTION", 0.0)
    for each in (a, b):
        each.answers["sockets"] = [{"sockets": []}]
    (failure,) = play(b, a, wish=LATE)[0].run.failures
    return failure


def test_ranks_that_are_late_to_join_without_an_error_of_their_own_accuse_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = agent("a", joining), agent("b", lambda ranks: [*joining(ranks)[:2], event(2, "joined"), *alive(ranks)])
    failure = joined_late(monkeypatch, a, b)
    assert (failure.kind, failure.culprit_ranks) == ("budget", ())
    assert failure.text == "ranks 0-1, 3 had not joined after 0.5 s in which each could run"


HOOK = 'Current thread 0x1 (most recent call first):\n  File "/opt/site/hook.py", line 9 in connect\n'


def test_a_late_rank_that_is_in_a_call_of_the_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = agent("a", joining), agent("b", joining)
    b.answers["stacks"] = [{"stacks": {"3": HOOK}}]
    failure = joined_late(monkeypatch, a, b)
    assert (failure.kind, failure.culprit_ranks, failure.certainty) == ("never-joined", (3,), "evidence")
    assert failure.text.endswith("at /opt/site/hook.py:9 connect, which is not torch")


class InTurn(list[Line]):
    """The first answer to the first order, the last one to all that come after the others."""

    def __init__(self, *answers: list[Line]) -> None:
        super().__init__(answers[-1])
        self.earlier = list(answers[:-1])

    def __iter__(self) -> Iterator[Line]:
        return iter(self.earlier.pop(0)) if self.earlier else super().__iter__()


def test_a_rank_that_waits_for_a_cpu_to_write_its_stack_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = agent("a", joining), agent("b", joining)
    b.answers["stacks"] = InTurn([{"stacks": {"3": ""}, "due": True}], [{"stacks": {"3": HOOK}}])
    failure = joined_late(monkeypatch, a, b)
    assert (failure.kind, failure.culprit_ranks) == ("never-joined", (3,))


def test_a_stack_of_another_hosts_rank_names_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = agent("a", joining), agent("b", joining)
    b.answers["stacks"] = [{"stacks": {"0": HOOK}}]
    failure = joined_late(monkeypatch, a, b)
    assert 0 not in failure.culprit_ranks and not failure.stacks


def test_a_late_rank_that_still_imports_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = agent("a", joining), agent("b", joining)
    imports = '  File "<frozen importlib._bootstrap>", line 1027 in _find_and_load\n'
    b.answers["stacks"] = [{"stacks": {"3": HOOK + imports}}]
    assert joined_late(monkeypatch, a, b).kind == "budget"


def test_nobody_is_examined_while_one_rank_had_no_time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = agent("a", joining), agent("b", lambda ranks: joining(ranks, r3=0.1))
    b.answers["stacks"] = [{"stacks": {"2": HOOK}}]
    assert joined_late(monkeypatch, a, b).kind == "budget"


def test_the_port_to_meet_at_is_taken() -> None:
    a, b = agent("a", port=0, port_error="port 29500: Address already in use"), agent("b")
    a.answers["pressure"] = b.answers["pressure"] = [{"pressure": {"stalls": {"cpu": 90.0}}}]
    failure = trouble(play(b, a)[0])
    assert (failure.kind, failure.culprit_ranks) == ("never-joined", (0,))
    assert failure.text == "the rendezvous port cannot be opened: port 29500: Address already in use"
    assert failure.evidence == ()
    assert not a.orders_of("start")


@pytest.mark.proves("smoke-budget-spent")
def test_the_budget_is_spent() -> None:
    wish = SmokeOptions(backend="gloo", ranks_per_host=2, budget=0.5)
    smoked, a, _ = play(agent("b", lambda ranks: [*life(ranks, STAGES[:3]), *alive(ranks)]), wish=wish)
    assert smoked.run.ended == "budget"
    (failure,) = smoked.run.failures
    assert (failure.kind, failure.stage, failure.culprit_ranks) == ("budget", "collectives", (0, 1))
    assert a.orders_of("end")


def test_an_interrupt_ends_all_and_keeps_what_came() -> None:
    def on_progress(stage: str, seconds: float) -> None:
        if stage == "rendezvous":
            raise KeyboardInterrupt

    def halfway(ranks: Sequence[int]) -> list[Line]:
        return [*life(ranks), *alive(ranks)]

    b = agent("b", halfway)
    smoked, a, _ = play(b, agent("a", halfway), on_stage=on_progress)
    assert smoked.run.ended == "interrupted"
    assert smoked.run.failures == ()
    assert "rendezvous" in smoked.run.reached
    assert a.orders_of("end") and b.orders_of("end")
    assert facts(smoked, "a")["SmokePairs"]["why"] == "the smoke run was interrupted before"


def test_a_wish_that_cannot_be_is_an_error_and_everything_is_ended() -> None:
    a, b = agent("a"), agent("b")
    with pytest.raises(ValueError, match="expected 4, the number of ranks"):
        play(b, a, SmokeOptions(backend="gloo", ranks_per_host=2, layouts=("dp=3",)))
    assert a.orders_of("end") and b.orders_of("end")


def test_what_could_not_be_ended_is_told() -> None:
    b = agent("b")
    b.answers["end"] = [{"bye": {"left": [[77, "D", "python -c x"]]}}, None]
    assert play(b, agent("a"))[0].run.notes == ("b: process 77 (python -c x) could not be killed: state D",)


def test_an_agent_that_does_not_say_goodbye_is_not_waited_for_long() -> None:
    b = agent("b")
    b.answers["end"] = []
    smoked, _, seconds = play(b, agent("a"))
    assert smoked.run.ended == "complete"
    assert seconds < 4


def test_stacks_of_a_trouble() -> None:
    text = (
        "Thread 0x1 (most recent call first):\n  other\n\nCurrent thread 0x2 (most recent call first):\n  File x in y\n"
    )

    def dies(ranks: Sequence[int]) -> list[Line]:
        snap = {"rank": 2, "stamp": 9, "state": "compute", "stage": "training", "dead": "signal 9", "process": "X"}
        return [*life(ranks), {"snaps": [snap]}, *[line for _ in range(50) for line in ({"snaps": []}, 0.02)]]

    a = agent("a", lambda ranks: [*life(ranks), *alive(ranks)])
    a.answers["stacks"] = [{"stacks": {"0": text, "1": ""}}]
    failure = trouble(play(agent("b", dies), a)[0])
    assert (failure.kind, failure.culprit_ranks) == ("dead", (2,))
    assert failure.stacks == {0: "Current thread 0x2 (most recent call first):\n  File x in y"}


# ---- for real


@pytest.fixture
def marker(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if not importlib.util.find_spec("torch"):
        pytest.skip("torch is not installed")
    mark = f"doctor-test-launch-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setattr(channels, "new_marker", lambda: mark)
    yield mark
    assert not processes(mark)


def processes(marker: str) -> list[int]:
    """What a run started and has not ended."""
    result = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"DOCTOR_SMOKE={marker}".encode() in (process / "environ").read_bytes().split(b"\0"):
                result.append(int(process.name))
    return result


def fault(rank: int, code: str) -> str:
    """Worker text: in the third step of the training, before its first collective, this rank does this."""
    return textwrap.dedent(
        f"""
        plain_call = TracedComm.run_traced

        def call(self, op, tensor, group, function, root=-1, number=None):
            if self.rank == {rank} and self.recorder.stage == STAGES.index("training") and self.recorder.step == 2:
                {code}
            return plain_call(self, op, tensor, group, function, root, number)

        TracedComm.run_traced = call
        """
    )


def real(monkeypatch: pytest.MonkeyPatch, worker: str = "", ranks: int = 2) -> SmokeResult:
    text = programs.worker() + worker
    monkeypatch.setattr(programs, "worker", lambda: text)
    return smoke({"localhost": ranks}, Local(), SmokeOptions(backend="gloo"), local=True)


def abandoned_segments() -> set[str]:
    """Of torch, in shared memory, whose process has ended."""
    names = set(os.listdir("/dev/shm"))
    return {
        name for name in names if (owner := re.match(r"torch_(\d+)_", name)) and not psutil.pid_exists(int(owner[1]))
    }


@pytest.mark.every
def test_two_ranks_train(marker: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = abandoned_segments()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # which TMPDIR names, and not the one that was used before
    smoked = real(monkeypatch)
    assert smoked.run.ended == "complete", smoked.run.failures
    assert tuple(smoked.run.reached) == (*STAGES, "teardown")
    assert smoked.run.notes == ()
    assert all(
        fact["reached"]
        for name, fact in facts(smoked, "localhost").items()
        if name not in ("SmokeNative", "SmokeDevices")
    )
    segments, deadline = abandoned_segments() - before, time.monotonic() + 20
    while (
        segments := segments & abandoned_segments()
    ):  # another test's ranks, which end beside ours, are cleared away later
        assert time.monotonic() < deadline, segments
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sample
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "dead"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", "stopped"),
        ("raise ValueError('of my own')", "dead"),
        ("time.sleep(1000)", "blocked"),
    ],
)
def test_the_guilty_rank_is_named_with_its_stack(
    marker: str, monkeypatch: pytest.MonkeyPatch, code: str, kind: str
) -> None:
    failure = trouble(real(monkeypatch, fault(1, code)))
    assert (failure.kind, failure.culprit_ranks, failure.waiting_ranks) == (kind, (1,), (0,))
    assert (failure.stage, failure.layout, failure.step) == ("training", "dp2", 2)
    if kind == "blocked":
        assert "in call" in failure.stacks[1]
    if kind == "dead" and "ValueError" in code:
        assert "of my own" in failure.text


WRAPPERS = {
    "a shell script": '#!/bin/sh\n%s "$@"\nexit $?\n',
    "two of them": '#!/bin/sh\nsh -c \'%s "$@"; exit $?\' sh "$@"\nexit $?\n',
    "one that closes files": (
        "#!%s\nimport subprocess, sys\nsys.exit(subprocess.call([sys.executable] + sys.argv[1:]))\n"
    ),
}


def wrapped(folder: Path, name: str) -> str:
    """An interpreter that starts ours and waits for it."""
    path = folder / "python"
    path.write_text(WRAPPERS[name] % sys.executable)
    path.chmod(0o755)
    return str(path)


@pytest.mark.sample
@pytest.mark.parametrize("name", ["a shell script", "two of them"])
def test_an_interpreter_in_a_wrapper_trains(marker: str, tmp_path: Path, name: str) -> None:
    wish = SmokeOptions(backend="gloo", python=wrapped(tmp_path, name), layouts=("dp=2",))
    smoked = smoke({"localhost": 2}, Local(), wish, local=True)
    assert smoked.run.ended == "complete", smoked.run.failures


def test_a_wrapper_that_closes_what_should_be_inherited_is_told(marker: str, tmp_path: Path) -> None:
    wish = SmokeOptions(backend="gloo", python=wrapped(tmp_path, "one that closes files"), layouts=("dp=2",))
    failure = trouble(smoke({"localhost": 2}, Local(), wish, local=True))
    assert (failure.kind, failure.culprit_ranks) == ("not-started", (0, 1))
    assert f"as conda run does: name {sys.executable} itself" in " ".join((failure.text, *failure.evidence))


SUPERVISOR = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background inherit that it is ignored
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.run import channels, programs, supervisor
from doctor.transport.local import Local
text = programs.worker() + '''
STAGE_FUNCTIONS["collectives"] = lambda ctx: time.sleep(1000)
'''
programs.worker = lambda: text
channels.new_marker = lambda: sys.argv[1]
def report_stage(stage, seconds):
    print(stage, flush=True)
options = SmokeOptions(backend="gloo", python=sys.argv[2])
smoked = supervisor.smoke({"localhost": 2}, Local(), options, local=True, on_stage=report_stage)
print(smoked.run.ended, flush=True)
"""


@pytest.mark.sample
@pytest.mark.parametrize("method", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_the_supervisor(marker: str, method: signal.Signals) -> None:
    argv = [sys.executable, "-c", SUPERVISOR, marker, ""]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as supervisor:
        assert supervisor.stdout
        while supervisor.stdout.readline() != "rendezvous\n":
            assert supervisor.poll() is None
        assert len(processes(marker)) == 3
        supervisor.send_signal(method)
        began = time.monotonic()
        while processes(marker) and time.monotonic() - began < 5:
            time.sleep(0.01)
        assert not processes(marker)
        assert time.monotonic() - began < 2.5
        rest = supervisor.stdout.read()
    assert rest == ("" if method == signal.SIGKILL else "interrupted\n")


def test_nothing_outlives_the_agent_behind_two_wrappers(marker: str, tmp_path: Path) -> None:
    """What the kernel kills with the agent is the first of them; the others have no parent that is watched."""
    argv = [sys.executable, "-c", SUPERVISOR, marker, wrapped(tmp_path, "two of them")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as supervisor:
        assert supervisor.stdout
        while supervisor.stdout.readline() != "rendezvous\n":
            assert supervisor.poll() is None
        assert len(processes(marker)) == 5
        agent_pid = int(Path(f"/proc/{min(processes(marker))}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(agent_pid, signal.SIGKILL)
        assert "trouble" in supervisor.stdout.read()
    began = time.monotonic()
    while processes(marker) and time.monotonic() - began < 5:
        time.sleep(0.01)


def test_no_descriptor_and_no_thread_stays_open() -> None:
    """Those that other tests of this process opened may end meanwhile: only new ones count."""

    def opened() -> Counter[object]:
        return files() + Counter(threading.enumerate())

    play(agent("b"), agent("a"))
    before = opened()
    for _ in range(3):
        play(agent("b"), agent("a"))
    until = time.monotonic() + 5
    while (more := opened() - before) and time.monotonic() < until:
        time.sleep(0.01)
    assert not more


def test_channels_are_for_many_hosts() -> None:
    """A hundred agents say hello at once."""
    parties = {f"h{n}": 0 for n in range(100)}
    agents = {name: Agent(name, [hello(name)], well) for name in parties}
    smoked = smoke(parties, Stage(**agents), SmokeOptions(backend="gloo", ranks_per_host=1))
    assert smoked.run.ended == "complete"
    assert len(smoked.records) == 100


# ---- reasons that are known are in the report


TRACEBACK = """noise of a library
Traceback (most recent call last):
  File "worker/main.py", line 111, in fork_ranks
    store = start_store(orders)
  File "worker/rendezvous.py", line 98, in start_store
    return make_store()
NotImplementedError: no\x1b[2J store here
"""


def test_the_error_of_the_process_that_ranks_come_from_is_told_with_its_traceback() -> None:
    def start(ranks: Sequence[int]) -> list[Line]:
        ends = event(-1, "exit", status=1 << 8, tail=TRACEBACK)
        return [event(-1, "imported", seconds=1.0), ends, *alive(ranks)]

    failure = trouble(play(agent("b", start))[0])
    assert (failure.kind, failure.culprit_ranks) == ("dead", (2, 3))
    assert failure.text == "the parent process of its ranks: exit status 1: NotImplementedError: no store here"
    assert failure.stacks == {
        2: 'File "worker/rendezvous.py", line 98 in start_store\nFile "worker/main.py", line 111 in fork_ranks'
    }


def test_the_error_of_a_rank_is_told_with_its_traceback() -> None:
    def start(ranks: Sequence[int]) -> list[Line]:
        snap = {"rank": 3, "stamp": 5, "state": "compute", "stage": "training", "process": "X"}
        error = event(3, "error", kind="ValueError", text="bad", stage="training", trace=["train.py:7 step", "x"])
        fallen = {**snap, "dead": "exit status 13", "error": "bad"}
        return [*life(ranks), error, {"snaps": [fallen]}, *alive(ranks)]

    failure = trouble(play(agent("b", start))[0])
    assert (failure.culprit_ranks, failure.stacks[3]) == ((3,), 'File "train.py", line 7 in step')
