"""Servers that were asked something: which of them holds it up, and which only waits or works."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor.watch.attach.attached_run import attached_run, main_job
from doctor.watch.attach.inspector import inspector, open_requests
from doctor.watch.attach.inspector.open_requests import (
    accepting_ports,
    asked_times,
    lasting_requests,
    left_requests,
    owes_no_answer,
    takes_requests,
)
from doctor.watch.attach.odd_ranks import JobFinding, find_odd
from doctor.watch.attach.rank_report import Look, ProcessReport
from tests.watch.test_odd_ranks import host, looks, rank

PROGRAM = Path(__file__).parent / "programs" / "asked_server.py"
ASKED = [("pid 7 (nginx)", 34.0)]
HANDLER = [("generate", "/job/serve.py", 3), ("do_POST", "/job/serve.py", 9)]
IN_QUEUE = [("wait", "/usr/lib/python3.11/threading.py", 3), ("get", "/usr/lib/python3.11/queue.py", 9), HANDLER[0]]


def server(observed: list[Look] | None, stack: Any = HANDLER, **fields: object) -> ProcessReport:
    fields_of_all: dict[str, Any] = {"rank": None, "world": 0, "job": {}, "tcp": [5, 5, 5], "pid": 11, "thread": 11}
    return rank(0, observed, stack, **{**fields_of_all, "requests": ASKED, "off_cpu": 30.0, **fields})


def judged(*servers: ProcessReport) -> JobFinding:
    [job] = find_odd({"n1": host(*servers)})
    return job


@pytest.mark.parametrize(
    ("observed", "fields", "text"),
    [
        (looks("sleep"), {}, "sleeps (generate at serve.py:3); pid 7 (nginx) has waited for its answer for 34 s"),
        (looks("futex"), {"stacks": []}, "waits for another of its threads"),
        (looks("recv", file="socket"), {}, "waits for bytes from a socket"),
        (looks("open", file="/nfs/model"), {"stacks": []}, "is blocked in open of /nfs/model"),
        (looks("sleep"), {"takes_requests": True, "thread": 12}, "sleeps"),
        (looks("futex"), {"takes_requests": True, "thread": 12}, "waits for another of its threads"),
        (looks("sleep"), {"children_ran": [0.0, 4.0]}, "sleeps"),
        (looks("sleep"), {"requests": [("", -1.0)]}, "a client whose connection it has not accepted"),
        (looks("futex", "T"), {"stacks": []}, "continues it; pid 7 (nginx) has waited for its answer"),
    ],
)  # fmt: skip
def test_who_does_nothing_for_a_request_is_named(observed: list[Look], fields: dict[str, Any], text: str) -> None:
    job = judged(server(observed, **fields))
    assert (job.result, [odd.pid for odd in job.odd_ranks]) == ("odd", [11])
    assert text in job.text and "no rank waits" not in job.text


@pytest.mark.parametrize(
    ("observed", "fields"),
    [
        (looks("running", "R", ran=2.0), {}),
        (looks("sleep", switches=4, ran=0.01), {}),
        (looks("sleep"), {"requests": []}),
        (looks("sleep"), {"off_cpu": 3.0}),
        (looks("sleep"), {"takes_requests": True}),
        (looks("futex"), {"takes_requests": True, "thread": 12, "stacks": [IN_QUEUE, IN_QUEUE]}),
        (looks("recv", file="socket"), {"takes_requests": True, "thread": 12}),
        (looks("recv", file="socket"), {"awaits": [99]}),
        (looks("recv", file="socket"), {"far_end": ("10.0.0.1:5>10.0.0.9:80", 40.0)}),
        (looks("futex"), {"devices": ["/dev/nvidia0"]}),
        (looks("send", file="socket"), {}),
        ([Look("D", "", "read", "/model", 0, 0, 0, n << 20) for n in range(3)], {}),
    ],
    ids=["computes", "polls", "not asked", "since a moment", "another thread answers", "long poll", "asks on",
         "waits for one looked at", "waits for another host", "at its device", "its client does not read", "loads"],
)  # fmt: skip
def test_who_may_answer_yet_is_not_accused(observed: list[Look], fields: dict[str, Any]) -> None:
    job = judged(server(observed, **fields))
    assert (job.result in ("undecided", "moves"), job.odd_ranks) == (True, ())


def test_a_request_since_a_moment_is_looked_at_for_longer() -> None:
    job = judged(server(looks("sleep"), off_cpu=3.0))
    assert job.may_be_slow and job.text.endswith("It may answer yet: look again.")
    assert not judged(server(looks("sleep"))).may_be_slow


def test_of_servers_behind_a_router_the_one_that_holds_a_request_is_named_beside_others_that_move() -> None:
    moving = server(looks(switches=900, ran=1.0), requests=[], tcp=[0, 10**6, 2 * 10**6], group=11)
    others = [
        rank(0, looks(switches=900, ran=1.0), HANDLER, **{**fields_of(moving), "pid": 20 + number})
        for number in range(3)
    ]
    job = judged(server(looks("sleep"), group=11), *others)
    assert (job.result, [odd.pid for odd in job.odd_ranks]) == ("odd", [11])


def fields_of(report: ProcessReport) -> dict[str, Any]:
    return {name: getattr(report, name) for name in ("rank", "world", "job", "tcp", "group")}


def test_servers_that_nothing_connects_are_judged_each_for_itself() -> None:
    first, second = find_odd({"n1": host(server(looks("sleep")), server(looks("sleep"), off_cpu=2.0, pid=12))})
    assert {first.result, second.result} == {"odd", "undecided"}
    run, checks = attached_run([first, second], {}, (), "doctor", 4.0, ())
    assert "smoke-rank-blocked" in checks and run.smoke


def test_beside_a_job_that_moves_a_server_that_holds_up_a_request_is_reported() -> None:
    trains = [
        rank(number, looks(switches=900, ran=1.0), HANDLER, world=2, tcp=[0, 10**6, 2 * 10**6]) for number in (0, 1)
    ]
    held, works = server(looks("sleep")), server(looks("running", "R", ran=2.0))
    assert main_job(find_odd({"n1": host(*trains, held)})).result == "odd"
    assert main_job(find_odd({"n1": host(*trains, works)})).world == 2


@contextlib.contextmanager
def asked(kind: str, folder: Path) -> Iterator[int]:
    """The pid of such a server, when its handler has begun."""
    job = subprocess.Popen([sys.executable, "-S", str(PROGRAM), kind, str(folder)], start_new_session=True)
    try:
        limit = time.monotonic() + 60
        while not (folder / "struck").exists():
            assert time.monotonic() < limit and job.poll() is None, "the server was not asked"
            time.sleep(0.02)
        yield job.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def left_for(pid: int, expected: bool, seconds: float = 20.0) -> dict[str, Any]:
    """What a process leaves, as soon as it is as expected."""
    limit = time.monotonic() + seconds
    while True:
        requests: dict[str, Any] = left_requests(pid, asked_times())  # type: ignore[no-untyped-call]
        if bool(requests) is expected or time.monotonic() > limit:
            return requests
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("kind", "deaf"),
    [("plain: sleep", True), ("events: lock", True), ("threads: sleep", False), ("deaf: sleep", True)],
)
def test_what_a_server_does_not_attend_to(kind: str, deaf: bool, tmp_path: Path) -> None:
    with asked(kind, tmp_path) as pid:
        requests = left_for(pid, True)
        [[who, _]] = lasting_requests(pid, requests, asked_times())  # type: ignore[no-untyped-call]
        assert who == "" if kind.startswith("deaf") else who.startswith("pid ")
        assert takes_requests(pid) is not deaf  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kind", ["plain: idle", "events: idle", "threads: idle", "events: long poll", "plain: unread"])
def test_what_was_answered_or_is_waited_at_is_left_by_nobody(kind: str, tmp_path: Path) -> None:
    with asked(kind, tmp_path) as pid:
        assert left_for(pid, False) == {}


@pytest.mark.parametrize(
    ("kind", "rests"),
    [("events: idle", True), ("threads: idle", True), ("events: long poll", False), ("events: lock", False),
     ("threads: sleep", False), ("deaf: sleep", False)],
)  # fmt: skip
def test_a_server_whose_main_thread_waits_for_connections_rests_until_it_is_asked(
    kind: str, rests: bool, tmp_path: Path
) -> None:
    """A request that another thread, or a coroutine, has not answered is one: the server is not at rest."""
    with asked(kind, tmp_path) as pid:
        limit = time.monotonic() + (20 if rests else 1)
        while rests_until_asked(pid) is not rests:
            assert time.monotonic() < limit
            time.sleep(0.02)


@pytest.mark.parametrize("look", [0, 1, 2])
def test_a_server_whose_event_loop_runs_at_some_looks_rests_until_it_is_asked(
    look: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source: an idle group of FastAPI on a busy host, which was accused where its loop ran at the last look."""
    ports = [{1} if number == look else set() for number in range(3)]
    monkeypatch.setattr(inspector, "accepting_ports", lambda pid: ports.pop(0))
    with asked("events: idle", tmp_path) as pid:
        left_for(pid, False)
        process = {"pid": pid, "environ": {}, "rank": None, "group": 0, "links": [], "stores": [], "words": []}
        entry = inspector.described(process)  # type: ignore[no-untyped-call]
        inspector.look_repeatedly([entry], "", 0.1, 1.0)  # type: ignore[no-untyped-call]
    assert entry["awaits_request"] and "ports" not in entry


def rests_until_asked(pid: int) -> bool:
    ports = accepting_ports(pid)  # type: ignore[no-untyped-call]
    return bool(ports) and owes_no_answer(pid, ports, asked_times())  # type: ignore[no-untyped-call]


def test_of_what_waits_elsewhere_no_connection_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(open_requests, "tcp_table")
    assert accepting_ports(os.getpid()) == set()  # type: ignore[no-untyped-call]


def test_a_stopped_server_attends_to_nothing(tmp_path: Path) -> None:
    with asked("events: long poll", tmp_path) as pid:
        os.kill(pid, signal.SIGSTOP)
        assert left_for(pid, True)


def test_a_connection_that_a_fork_has_inherited_is_of_its_parent() -> None:
    with contextlib.ExitStack() as kept:
        listener = kept.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = kept.enter_context(socket.create_connection(listener.getsockname()))
        kept.enter_context(listener.accept()[0])
        client.sendall(b"question")
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
        kept.callback(os.waitpid, child, 0)
        kept.callback(os.kill, child, signal.SIGKILL)
        assert left_for(os.getpid(), True)
        assert left_requests(child, asked_times()) == {}  # type: ignore[no-untyped-call]
