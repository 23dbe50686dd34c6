"""The wire format is what `doctor.smoke.protocol` defines: what real workers and agents send, and what agents take."""

from __future__ import annotations

import errno
import inspect
import json
import os
import socket
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from doctor.engine.fact import Output, ProbeAnswer
from doctor.facts.smoke.events import StageFact, decode_report
from doctor.facts.smoke.first_stages import Problem, RankExited
from doctor.facts.smoke.further_stages import PaceTimes
from doctor.remote.runtime.connecting import NO_ROUTE
from doctor.smoke import protocol
from doctor.smoke.model import STAGES, Layout, Snapshot
from doctor.smoke.programs.agent.agent import ORDERS, Agent
from doctor.smoke.programs.worker.rendezvous import OF_THIS_HOST, try_connect
from doctor.smoke.protocol import EVENT_TYPES, AgentMessage, RankEvent, parse_event, parse_message
from doctor.smoke.run import programs
from doctor.smoke.run.programs import agent_request
from doctor.transport.program import InvalidMessage
from tests.smoke.ranks import Ranks
from tests.smoke.stub import WAITS, Client

SOMETIMES = {(RankExited, "oom"), (RankExited, "log"), (RankExited, "tail"), (PaceTimes, "starved")}
"""Fields that the agent or watch adds, if there is anything to add. Workers send every other field always."""


def tag(kind: type[Any]) -> str:
    return str(kind.__struct_config__.tag)


def differences(value: Any, kind: Any, where: str = "") -> Iterator[str]:
    """Fields that are sent and not defined, or defined and not sent, down to the last struct."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    struct = next((entry for entry in kinds if isinstance(entry, type) and issubclass(entry, msgspec.Struct)), None)
    if struct is None or not isinstance(value, Mapping):
        return
    config = struct.__struct_config__
    hints = get_type_hints(struct)
    defined = {*struct.__struct_encode_fields__, *([config.tag_field] if config.tag_field else [])}
    yield from (f"{where}{struct.__name__}.{name}: not defined" for name in sorted(value.keys() - defined))
    absent = [name for name in sorted(defined - value.keys()) if (struct, name) not in SOMETIMES]
    if not config.omit_defaults and struct is not AgentMessage:
        yield from (f"{where}{struct.__name__}.{name}: not sent" for name in absent)
    for name, inner in value.items():
        if name in hints:
            yield from differences(inner, hints[name], f"{where}{struct.__name__}.{name} ")


TEXTS = "texts"
"""With any message: `doctor.transport.program` reads it."""


def event_differences(event: dict[str, Any]) -> list[str]:
    return list(differences(event, type(parse_event(json.dumps(event).encode()))))


# ---- workers


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    """Of a run with all stages, of one whose second rank fails, and of one with wrong results and without int8."""
    complete = Ranks(
        2,
        STAGES,
        programs.program(("native",)).removeprefix(programs.worker()),
        hosts=["a", "b"],
        device_seconds=4.0,
        soak=0.3,
    )
    fails = "def stage_pace(ctx):\n    raise ValueError('no') if ctx.rank else ctx.comm.barrier()\n"
    fails += "STAGE_FUNCTIONS['pace'] = stage_pace\n"
    wrong = "TracedComm.all_gather = lambda self, out, tensor, group: out.zero_()\n"
    wrong += "def multiply(left, right, out):\n    out[1, 1] = 9\n"
    wrong += "    if left.dtype == torch.int8:\n        raise NotImplementedError('no int8')\n"
    ranks = [
        *complete.events,
        *Ranks(2, ["start", "rendezvous", "pace", "teardown"], fails).events,
        *Ranks(
            3,
            ["start", "rendezvous", "devices", "collectives", "training", "teardown"],
            wrong,
            hosts=["a", "b", "c"],
            layouts=(Layout(dp=3, zero=True),),
        ).events,
    ]
    return [{name: value for name, value in event.items() if name != TEXTS} for event in ranks]


@pytest.mark.every
def test_what_workers_emit_is_what_is_defined(events: list[dict[str, Any]]) -> None:
    assert not [difference for event in events for difference in event_differences(event)]


def test_real_workers_have_shown_the_events(events: list[dict[str, Any]]) -> None:
    """The others need a master that refuses, or a backend without a dtype."""
    rare = {"try", "unsupported"}
    assert {event["ev"] for event in events} | rare == {tag(kind) for kind in EVENT_TYPES}


def test_the_worker_emits_no_other_event() -> None:
    text = programs.program(("native",))
    emitted = {piece.split("'")[0].split('"')[0].rstrip("\\") for piece in _after_emit(text)}
    assert emitted == {tag(kind) for kind in EVENT_TYPES} | {"part", "child", "spun"}, "the agent keeps these"


def _after_emit(text: str) -> Iterator[str]:
    """What stands behind every ``emit(`` and the quote after it."""
    for piece in text.replace("\\n", "\n").split("emit(")[1:]:
        first = piece.lstrip()
        if first[:1] in "\"'" or first[:2] in ('\\"', "\\'"):
            yield first.lstrip("\\")[1:]


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=tag)
def test_a_field_too_many_or_too_few_is_noticed(kind: type[RankEvent]) -> None:
    """This file would not notice otherwise."""
    names = {*kind.__struct_encode_fields__, "ev"}
    sent = dict.fromkeys(names, None)
    assert not list(differences(sent, kind))
    assert list(differences({**sent, "extra": 1}, kind)) == [f"{kind.__name__}.extra: not defined"]
    del sent["rank"]
    assert list(differences(sent, kind)) == [f"{kind.__name__}.rank: not sent"]


def test_an_event_that_is_not_defined_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="Invalid value 'scream'"):
        parse_event(b'{"ev":"scream","rank":0}')


def test_no_two_events_have_one_name() -> None:
    assert len({tag(kind) for kind in EVENT_TYPES}) == len(EVENT_TYPES)
    assert set(EVENT_TYPES) == set(RankEvent.__subclasses__())


def test_every_fact_of_a_stage_gets_its_events() -> None:
    assert set(protocol.STAGE_FACTS) == set(StageFact.__subclasses__())
    assert {fact.stage for fact in protocol.STAGE_FACTS} == set(STAGES) - {"rendezvous", "soak", "teardown"}


def test_a_fact_reads_back_what_the_run_keeps(events: list[dict[str, Any]]) -> None:
    for fact in protocol.STAGE_FACTS:
        kept = [event for event in events if event["ev"] in {tag(kind) for kind in fact.event_types}]
        typed = [parse_event(json.dumps(event).encode()) for event in kept]
        text = msgspec.json.encode({"reached": True, "events": typed}).decode()
        if typed:
            assert list(decode_report(ProbeAnswer({"": Output(out=text)}), fact).events) == typed


# ---- agents


def test_what_an_agent_sends_is_what_is_defined() -> None:
    with Client(listen=True) as client:
        client.until("hello")
        client.start(WAITS, 2, python=sys.executable)
        for rank in range(2):
            client.until("snap", rank=rank, state="collective")
        for order, answer in (("stacks", "stacks"), ("sockets", "sockets"), ("pressure", "pressure")):
            client.order(order)
            client.until(answer)
        client.order("probe", targets=[["127.0.0.1", 1]], seconds=0.2)
        client.until("probes")
        client.order("nothing that it knows")
        assert "nothing that it knows" in client.until("fault")
        client.order("end")
        client.until("bye")
        lines = [{name: value for name, value in line.items() if name != TEXTS} for line in client.received]
    for line in lines:
        parse_message(json.dumps(line).encode())
    sent = {key for line in lines for key in line}
    rare = {"evidence", "starting"}  # of a network that drops, of an interpreter that does nothing
    assert sent | rare == set(AgentMessage.__struct_encode_fields__)
    assert not [difference for line in lines for difference in differences(line, AgentMessage)]
    snaps = [snap for line in lines for snap in line.get("snaps", ())]
    assert not [difference for snap in snaps for difference in differences(snap, Snapshot)]
    # `stub.WORKER` emits events of its own; an end is the agent's.
    assert all(event_differences(line["event"]) == [] for line in lines if line.get("event", {}).get("ev") == "exit")


def test_an_agent_knows_every_order_and_there_is_no_other() -> None:
    assert set(ORDERS) == {tag(kind) for kind in protocol.AgentOrder.__subclasses__()}


@pytest.mark.parametrize("kind", protocol.AgentOrder.__subclasses__(), ids=tag)
def test_the_fields_of_an_order_are_the_parameters_of_its_method(kind: type[protocol.AgentOrder]) -> None:
    parameters = list(inspect.signature(getattr(Agent, ORDERS[tag(kind)])).parameters)[1:]
    assert set(parameters) == set(kind.__struct_encode_fields__)


def test_the_request_of_an_agent_prepares_it() -> None:
    request = json.loads(agent_request("m", True, 7))
    assert request == {"marker": "m", "prepare": {"listen": True, "port": 7}, "expected": None}
    assert request["prepare"].keys() == set(protocol.Prepare.__struct_encode_fields__)


def test_what_an_agent_is_to_expect_are_the_parameters_of_its_method() -> None:
    request = json.loads(
        agent_request("m", True, 7, {"mine": [0, 1], "plan": {"backend": "gloo"}, "python": "python3"})
    )
    assert request["expected"] == {"mine": [0, 1], "plan": {"backend": "gloo"}, "python": "python3"}
    assert set(inspect.signature(Agent.expect).parameters) - {"self"} == set(request["expected"])


@pytest.mark.parametrize("code", [errno.ECONNREFUSED, errno.EINVAL, *NO_ROUTE, *OF_THIS_HOST])
def test_what_a_rank_says_of_an_attempt_to_connect_is_understood(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One word that the reader does not know would make the whole message, and so its host, unreadable."""

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(socket, "create_connection", refuse)
    problem, text = try_connect("127.0.0.1", 29500, 1.0)
    assert problem in get_args(Problem) and "29500" in text
    assert (problem == "own") == (code in OF_THIS_HOST)
