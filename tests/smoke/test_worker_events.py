"""Events of any length reach the agent whole, though all ranks of a host write to one pipe."""

from __future__ import annotations

import json
import os
import select
import threading
from typing import Any

import pytest

from doctor.smoke.model import Layout
from doctor.smoke.programs.worker.orders import EventWriter
from tests.smoke.ranks import Ranks
from tests.smoke.stub import Client

GROUP = list(range(2048))


def test_no_line_is_longer_than_what_a_pipe_takes_at_once() -> None:
    reader, writer = os.pipe()
    events = EventWriter(writer, 3)
    thread = threading.Thread(target=lambda: events.emit("group", ranks=GROUP, name='"' * 5000))
    thread.start()
    data = b""
    while b'"more":false' not in data:
        data += os.read(reader, 1 << 16)
    thread.join()
    lines = data.splitlines(keepends=True)
    assert max(map(len, lines)) <= select.PIPE_BUF
    parts: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert {(part["ev"], part["rank"]) for part in parts} == {("part", 3)}
    assert json.loads("".join(part["text"] for part in parts)) == {
        "ev": "group",
        "rank": 3,
        "ranks": GROUP,
        "name": '"' * 5000,
    }


SAYS = """
def live(rank, box, say, orders):
    text = "x" * 6000
    for number in range(0, 6000, 1000):
        say("part", text='{"ev":"note","rank":%d,"text":"' % rank if not number else "", more=True)
        say("part", text=text[number:number + 1000], more=True)
        say("other")
    say("part", text='"}', more=False)
    time.sleep(1000)
"""


def test_the_agent_joins_parts_of_several_ranks() -> None:
    with Client() as client:
        client.start(SAYS, 2)
        notes = [client.until("event", ev="note") for _ in range(2)]
        assert {note["rank"]: note["text"] for note in notes} == {0: "x" * 6000, 1: "x" * 6000}


ENDLESS = """
def live(rank, box, say, orders):
    for number in range(1200):
        say("part", text="x" * 1000, more=True)
    time.sleep(1000)
"""


def test_the_agent_keeps_no_endless_event() -> None:
    with Client() as client:
        client.start(ENDLESS, 1)
        assert "more than 1048576 bytes" in client.until("fault")


def test_a_long_run_of_training_is_reported_whole() -> None:
    """Two hundred losses do not fit into one write; above 64 steps, ranks do less of the reference run than rank 0."""
    pytest.importorskip("torch", reason="torch is not installed: no worker can train")
    run = Ranks(3, ("training",), layouts=[Layout(dp=3)], steps=200)
    rows = run.of("reference")
    assert [len(event["losses"]) for event in rows] == [200, 56, 56]
    assert len({(event["params"], event["params_step"], tuple(event["losses"][:56])) for event in rows}) == 1
