"""The prober, as processes on loopback: what it says of each kind of answer, and what a stranger gets out of it."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace

import msgspec
import pytest

from doctor.net.prober import listener
from doctor.net.prober import prober as prober_module
from doctor.net.prober.handshake import CALL_SIZE, CHALLENGE_SIZE, RunKeys
from doctor.net.prober.listener import Listener, UnprovenCalls, open_listener
from doctor.net.prober.socket_loop import SocketLoop
from doctor.net.prober.transfer import PATIENCE_OF_TRANSFER, arrival_rate
from doctor.net.run.sessions import AttemptReport, Probers
from doctor.remote.runtime.controller import OrderedProgram
from tests.net.prober_process import TOKEN, own_key, prober

HERE = "127.0.0.1"
OUTCOME, DETAIL = 3, 4
KEYS = RunKeys(0, b"", b"")  # type: ignore[no-untyped-call]


def test_two_hosts_prove_themselves_to_each_other_small_and_large() -> None:
    with prober(0) as first, prober(1) as second:
        (port,) = second.listen((HERE, 0))
        assert first.attempt(1, HERE, port)[OUTCOME] == "open"
        assert first.attempt(1, HERE, port, bulk=True)[OUTCOME] == "open"


def test_over_ipv6_too() -> None:
    if not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("no IPv6 here")
    with prober(0) as first, prober(1) as second:
        (port,) = second.listen(("::1", 0))
        if port:
            assert first.attempt(1, "::1", port, bulk=True)[OUTCOME] == "open"


def test_a_port_that_only_ipv6_holds_serves_ipv4_as_the_jobs_store_does() -> None:
    with prober(0) as first, prober(1) as second, socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            other.bind(("::", 0))
        except OSError as error:
            pytest.skip(str(error))
        other.listen()
        port = other.getsockname()[1]
        assert second.listen(("", port)) == [port]
        assert first.attempt(1, HERE, port)[OUTCOME] == "open"


def test_another_host_of_the_run_is_named() -> None:
    with prober(0) as first, prober(1) as second:
        (port,) = second.listen((HERE, 0))
        report = msgspec.convert(first.attempt(7, HERE, port), AttemptReport)
        assert report.outcome == "other-host"
        probers = object.__new__(Probers)
        probers.hosts, probers._own_keys = tuple("abc"), [own_key(number) for number in range(3)]
        assert probers.verified("a", report).detail == "1"
        for claim in ("2" + report.detail[1:], "1", "1 7 zz", f"9{report.detail}", ""):  # of a host that lies
            assert probers.verified("a", msgspec.structs.replace(report, detail=claim)).outcome == "stranger"
        assert probers.verified("b", report).outcome == "stranger", "what another caller was answered"


def test_no_host_answers_in_the_name_of_another_one() -> None:
    """With the run's token, and a key that is its own."""
    liar = RunKeys(1, bytes.fromhex(TOKEN), own_key(2))  # type: ignore[no-untyped-call]
    with prober(0) as first, listener_here(liar) as (loop, _, listener):
        attempts: list[object] = []
        calling = threading.Thread(target=lambda: attempts.append(first.attempt(1, HERE, listener.port)[OUTCOME]))
        calling.start()
        while calling.is_alive():
            for ready in loop.poll.poll(200):
                loop.handle(*ready)
        assert attempts == ["stranger"]


def test_a_port_without_listener_refuses() -> None:
    with socket.create_server((HERE, 0)) as server:
        port = server.getsockname()[1]
    with prober(0) as first:
        assert first.attempt(1, HERE, port)[OUTCOME] == "refused"


def test_a_stranger_that_speaks_is_told_from_one_that_is_silent_and_one_that_closes() -> None:
    with prober(0) as first, socket.create_server((HERE, 0)) as server:
        port = server.getsockname()[1]

        def serve(output: bytes, close: bool) -> threading.Thread:
            def run() -> None:
                link, _ = server.accept()
                with link, contextlib.suppress(ConnectionResetError):
                    link.sendall(output)
                    while not close and link.recv(4096):
                        pass

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            return thread

        serve(b"SSH-2.0-OpenSSH_9.2p1 Debian-2, and much more of what it says\r\n" + b"x" * 100, close=False)
        assert first.attempt(1, HERE, port)[OUTCOME : DETAIL + 1] == [
            "stranger",
            "SSH-2.0-OpenSSH_9.2p1 Debian-2, and much",
        ]
        serve(b"", close=False)
        assert first.attempt(1, HERE, port, seconds=0.5)[OUTCOME] == "silent"
        serve(b"", close=True)
        assert first.attempt(1, HERE, port)[OUTCOME] == "cut"


def test_a_held_port_is_not_bound_and_its_holder_is_named() -> None:
    with socket.create_server((HERE, 0)) as held, prober(0) as first:
        port = held.getsockname()[1]
        first.order("listen", services=[[HERE, port]])
        ((_, expected, got, problem, owner),) = first.answer("listening")
        assert (expected, got) == (port, 0)
        assert "in use" in problem
        assert owner["pid"] == os.getpid()
        assert owner["seconds"] >= 0


def test_no_port_below_1024_is_bound() -> None:
    with prober(0) as first:
        assert first.listen((HERE, 1023), ("", 80)) == [0, 0]


@pytest.mark.parametrize(
    ("capabilities", "first", "refused"),
    [("0000000000000000", "1024", True), ("0000000000000400", "1024", False), ("0000000000000000", "80", False)],
)
def test_a_low_port_is_refused_for_a_user_who_may_not_listen_there(
    monkeypatch: pytest.MonkeyPatch, capabilities: str, first: str, refused: bool
) -> None:
    texts = {listener.PRIVILEGED: f"{first}\n", "/proc/self/status": f"Name:\tx\nCapEff:\t{capabilities}\n"}
    monkeypatch.setattr(listener, "read_text", lambda path, limit: texts[path])
    with pytest.raises(OSError) as why:
        listener.open_listener("", 80)
    assert (why.value.strerror == listener.NOT_TRIED) is not refused


def read_all(link: socket.socket) -> bytes:
    data = b""
    try:
        while piece := link.recv(4096):
            data += piece
    except ConnectionResetError:
        pass
    return data


@pytest.mark.parametrize(
    "output",
    [b"", b"GET / HTTP/1.0\r\n\r\n", os.urandom(CALL_SIZE), os.urandom(100_000)],
    ids=["nothing", "http", "a call", "much"],
)
def test_a_stranger_is_sent_a_random_challenge_and_nothing_else(output: bytes) -> None:
    with prober(1) as listening:
        (port,) = listening.listen((HERE, 0))
        with socket.create_connection((HERE, port), 30) as link:
            try:
                link.sendall(output)
                link.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            assert len(read_all(link)) <= CHALLENGE_SIZE


def test_what_was_recorded_of_one_connection_is_worth_nothing_on_another() -> None:
    with prober(1) as listening:
        (port,) = listening.listen((HERE, 0))
        with socket.create_connection((HERE, port), 30) as link:
            challenge = link.recv(CHALLENGE_SIZE, socket.MSG_WAITALL)
            caller = RunKeys(0, bytes.fromhex(TOKEN), own_key(0))  # type: ignore[no-untyped-call]
            call = caller.make_call(challenge, b"n" * 16, b"p", 0)  # type: ignore[no-untyped-call]
            link.sendall(call)
            assert len(link.recv(100)) > 0  # the real one is answered
        with socket.create_connection((HERE, port), 30) as link:
            link.recv(CHALLENGE_SIZE, socket.MSG_WAITALL)
            link.sendall(call)
            assert read_all(link) == b""


@pytest.mark.parametrize("descriptors", [64, 4096])
def test_a_thousand_strangers_do_not_keep_the_hosts_of_the_run_out(descriptors: int) -> None:
    """They say nothing, a byte now and then, or noise; where few files may be open they take turns."""
    noise = Random(14)
    with prober(0) as first, prober(1) as second, contextlib.ExitStack() as stack:
        (port,) = second.listen((HERE, 0))
        resource.prlimit(second.process.pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))
        strangers = []
        for number in range(1000):
            with contextlib.suppress(OSError):  # of those that had to make room, some before they knew
                strangers.append(stack.enter_context(socket.create_connection((HERE, port), 30)))
                strangers[noise.randrange(len(strangers))].send(noise.randbytes(number % 3 * CALL_SIZE // 2))
        assert first.attempt(1, HERE, port, seconds=6.0)[OUTCOME] == "open"
        assert first.attempt(1, HERE, port, bulk=True, seconds=6.0)[OUTCOME] == "open"
        assert second.attempt(1, HERE, port, seconds=6.0)[OUTCOME] == "open"


@contextlib.contextmanager
def listener_here(member: RunKeys = KEYS) -> Iterator[tuple[SocketLoop, UnprovenCalls, Listener]]:
    """In this process, with room for 16 calls."""
    loop, calls = SocketLoop(select.poll()), UnprovenCalls(64)  # type: ignore[no-untyped-call]
    yield loop, calls, Listener(loop, open_listener(HERE, 0), member, calls)  # type: ignore[no-untyped-call]
    for owner in list(loop.owners.values()):
        owner.close()


def test_a_call_that_is_closed_for_want_of_room_or_time_is_noted() -> None:
    """Else its caller would take the listener for a stranger."""
    with listener_here() as (loop, calls, listener), contextlib.ExitStack() as stack:
        links = [stack.enter_context(socket.create_connection((HERE, listener.port), 30)) for _ in range(18)]
        listener.on_event(select.POLLIN)  # type: ignore[no-untyped-call]
        ports = [link.getsockname()[1] for link in links]
        assert calls.given_up == [[listener.port, port] for port in ports[:2]]
        (third, *_) = calls.calls
        third.deadline = 0.0
        loop.expire()  # type: ignore[no-untyped-call]
        assert calls.given_up[2:] == [[listener.port, ports[2]]]


def test_calls_of_a_run_before_have_not_arrived_in_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that is closed leaves calls without an answer behind, and the job's port is the same in each run."""

    def call(port: int) -> list[str]:
        return ["0:", "0100007F:733C", f"0900007F:{port:04X}", "03"]

    rows, sent = [call(40001)], list[dict[str, object]]()
    monkeypatch.setattr(prober_module, "socket_rows", lambda pid, kind: rows)
    own = object.__new__(prober_module.Prober)
    own.listeners, own.controller = {("::", 29500): None}, SimpleNamespace(send=lambda **words: sent.append(words))
    own.listen([])
    rows.append(call(40002))
    own.send_arrived()
    assert sent[-1] == {"arrived": [["127.0.0.9", 40002, 29500]]}


@pytest.mark.parametrize(
    ("outcome", "fulls", "reported"),
    [
        ("dropped", 5, ["untried", "ENOBUFS"]),
        ("unreachable", 5, ["untried", "ENOBUFS"]),
        ("dropped", 3, ["dropped", ""]),
        ("refused", 5, ["refused", ""]),
    ],
)
def test_what_the_own_table_of_neighbours_had_no_room_for_was_not_tried(
    monkeypatch: pytest.MonkeyPatch, outcome: str, fulls: int, reported: list[str]
) -> None:
    counts = iter((3, fulls))
    monkeypatch.setattr(prober_module, "neighbour_table", lambda: (1024, next(counts)))
    own = object.__new__(prober_module.Prober)
    own.loop, own.member, own.waiting, own.finished, own.in_flight = None, KEYS, [], [], 1
    own.connect(1, [[1, HERE, 40001, False, 0]], [], 1.0, 1.0, True)
    (attempt,) = own.waiting
    attempt.began = 0.0
    attempt.finish(outcome)
    assert own.finished[0][OUTCOME : DETAIL + 1] == reported


def test_what_came_while_the_prober_could_not_run_is_not_late() -> None:
    with listener_here() as (loop, calls, listener), socket.create_connection((HERE, listener.port), 30) as link:
        listener.on_event(select.POLLIN)  # type: ignore[no-untyped-call]
        (call,) = calls.calls
        link.sendall(KEYS.make_call(call.challenge, b"n" * 16, b"p", 0))  # type: ignore[no-untyped-call]
        call.deadline = 0.0
        loop.expire()  # type: ignore[no-untyped-call]
        assert len(link.recv(100)) > 0
        assert calls.given_up == []


def test_the_ports_are_free_at_once_when_the_controller_goes() -> None:
    with prober(0) as first, prober(1) as second:
        (port,) = second.listen((HERE, 0))
        assert first.attempt(1, HERE, port)[OUTCOME] == "open"
        assert second.process.stdin is not None
        second.process.stdin.close()
        assert second.process.wait(60) == 3
        bound = socket.socket()
        bound.bind((HERE, port))  # without SO_REUSEADDR: no TIME_WAIT is left
        bound.close()


def test_a_prober_that_measures_ends_with_its_controller() -> None:
    """A measurement may wait for seconds, and the job's port would be taken when it starts."""
    with prober(0) as first, socket.create_server((HERE, 0)) as silent:
        target = [HERE, silent.getsockname()[1], 1]
        first.order("speed", number=1, target=target, echoes=1, seconds=1, limit=9, streams=1)
        with silent.accept()[0]:  # it is called, and says nothing
            began = time.monotonic()
            assert first.process.stdin is not None
            first.process.stdin.close()
            assert first.process.wait(60) == 3
            assert time.monotonic() - began < PATIENCE_OF_TRANSFER - 1


def test_the_time_that_an_order_takes_is_not_one_without_orders() -> None:
    """Those that came in the meantime wait to be read: the controller is still there."""
    program = OrderedProgram({"marker": "doctor"})  # type: ignore[no-untyped-call]
    program.orders, program.controller.last_order = {"measure": "measure"}, 0.0
    program.measure = lambda: None  # type: ignore[attr-defined]
    program.carry_out(b'{"do": "measure"}')  # type: ignore[no-untyped-call]
    assert program.controller.last_order > 0


def test_a_signal_and_the_time_limit_end_it() -> None:
    with prober(0) as first:
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(60) == 3
    with prober(0, seconds=0.2) as second:
        assert second.process.wait(60) == 3


def test_speeds_are_measured_between_hosts_that_prove_themselves() -> None:
    with prober(0) as first, prober(1) as second:
        (port,) = second.listen((HERE, 0))
        assert first.attempt(1, HERE, port)[OUTCOME] == "open"
        first.order("speed", number=1, target=[HERE, port, 1], echoes=20, seconds=5.0, limit=1 << 20, streams=2)
        speed = first.answer("speed")
        assert speed["problem"] == ""
        assert len(speed["latencies"]) == 20
        assert speed["single"]["bytes"] == speed["multi"]["bytes"] == 1 << 20
        assert speed["single"]["waited"] >= 0
        first.order("speed", number=2, target=[HERE, port, 5], echoes=20, seconds=5.0, limit=1 << 20, streams=2)
        assert first.answer("speed")["problem"] == "answered by another host"


def arrivals(rate: float, size: int, pause: float = 0.0, pause_every: int = 1 << 62) -> list[tuple[int, int]]:
    """Arrivals at a rate, of 128 KiB each, with pauses of the sender."""
    step, count, now, noted = 1 << 17, 0, 1_000_000_000, []
    while count < size:
        count += step
        now += int(step / rate * 1e9 + (pause * 1e9 if count % pause_every == 0 else 0))
        noted.append((now, count))
    return noted


def test_a_sender_that_pauses_does_not_look_like_a_slow_network() -> None:
    steady, pausing = arrivals(1e9, 1 << 25), arrivals(1e9, 1 << 25, pause=0.1, pause_every=1 << 21)
    assert arrival_rate([steady]) == pytest.approx(1e9, rel=0.01)
    assert arrival_rate([pausing]) == pytest.approx(1e9, rel=0.01)
    assert arrival_rate([arrivals(1e7, 1 << 22)]) == pytest.approx(1e7, rel=0.01)


def test_streams_that_share_a_path_have_its_rate_together() -> None:
    assert arrival_rate([arrivals(2e8, 1 << 24)] * 4) == pytest.approx(8e8, rel=0.05)


def test_of_too_few_arrivals_no_rate_is_made() -> None:
    assert arrival_rate([]) == arrival_rate([[]]) == arrival_rate([arrivals(1e9, 1 << 18)]) == 0.0
    assert arrival_rate([[(10, 0), (10, 1 << 22), (5, 1 << 23), (10, 1 << 24)]]) == 0.0  # a clock that stands still
