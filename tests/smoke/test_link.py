"""Processes of a job find the one that leads it; strangers are kept out, and why one cannot come is said in words."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from doctor.environment.job_context import JobContext
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.rendezvous import link as module
from doctor.smoke.rendezvous import reachability as way
from doctor.smoke.rendezvous.leader import Leader
from doctor.smoke.rendezvous.link import (
    Hello,
    LeaderListener,
    Member,
    RelayedError,
    job_token,
    launch_secret,
    leader_ports,
    listening_address,
    send_hello,
)
from doctor.smoke.rendezvous.reachability import RendezvousError, attempt_connection, connect_to_leader
from doctor.smoke.rendezvous.relay import RelayedVerdict, RelayInbox, RelaySender
from doctor.transport.peer_handshake import ForeignPeer, read_line


def job(**changes: Any) -> JobContext:
    values = {
        "leader_addresses": ("127.0.0.1",),
        "leader_address_source": "MASTER_ADDR",
        "launch_id": f"test {os.getpid()}",
        **changes,
    }
    return JobContext(launcher="environment", rank=1, world_size=2, **values)


CARD = Hello(1, 2, "w1", 7, boot="b")
CARD_TEXT = msgspec.json.encode(CARD).decode()
REFUSAL = b'{"proof":""}\n'
KEY = job_token(job(), 0)


class Reception:
    def __init__(self, key: bytes = KEY) -> None:
        self.guests: queue.Queue[Member] = queue.Queue()
        self._links: list[socket.socket] = []
        self._turn, self._closed = threading.Lock(), False
        self.door = LeaderListener(key, leader_ports(KEY), self._take)
        self.door.open()

    def _take(self, guest: Member) -> None:
        with self._turn:
            if self._closed:  # it was on its way in
                return guest.link.close()
            self._links.append(guest.link)
        self.guests.put(guest)
        return None

    def close(self) -> None:
        self.door.close()
        with self._turn:
            self._closed = True
        for link in self._links:
            link.close()


@pytest.fixture
def reception() -> Iterator[Reception]:
    created_reception = Reception()
    yield created_reception
    created_reception.close()


def unmet(context: JobContext, key: bytes = KEY) -> RendezvousError:
    result = attempt_connection(context, key, CARD)
    assert isinstance(result, RendezvousError)
    return result


class TestWhereTheLeaderListens:
    @pytest.mark.parametrize(
        ("addresses", "address"),
        [
            (("127.0.0.1",), "127.0.0.1"),
            (("w1",), ""),
            (("localhost",), ""),
            (("192.0.2.7",), ""),
            (("127.0.0.1", "192.0.2.7"), ""),
            ((), ""),
        ],
    )
    def test_is_the_address_that_the_others_look_at(self, addresses: tuple[str, ...], address: str) -> None:
        assert listening_address(job(leader_addresses=addresses)) == address

    def test_is_nowhere_else(self) -> None:
        listener = LeaderListener(KEY, leader_ports(KEY), lambda member: None, "127.0.0.1")
        try:
            listener.open()
            socket.create_connection(("127.0.0.1", listener.port), timeout=5).close()
            with pytest.raises(OSError):
                socket.create_connection(("127.0.0.2", listener.port), timeout=5)
        finally:
            listener.close()


class TestTheToken:
    def test_is_the_jobs_own(self) -> None:
        assert job_token(job(), 0) == job_token(job(leader_addresses=("w9",)), 0)
        others = [job_token(job(launch_id="another"), 0), job_token(job(), 1000), job_token(job(), 0, "secret")]
        assert len({KEY, *others}) == 4

    def test_holds_what_the_launcher_made_at_random(self) -> None:
        mpirun = {"OMPI_MCA_orte_precondition_transports": "4b7a5b2f6ce4e1c5-2b1e2c2c0bb2ab5e"}
        secrets = [
            launch_secret(environ) for environ in ({}, mpirun, {"DOCTOR_SMOKE_TOKEN": "x"}, {**mpirun, "A": "b"})
        ]
        assert secrets[0] == ""
        assert secrets[1] == secrets[3]
        assert len({job_token(job(), 0, secret) for secret in secrets}) == 3

    def test_gives_ports_that_are_not_the_jobs(self) -> None:
        numbers = leader_ports(KEY)
        assert len(numbers) == 4
        assert all(20000 <= number < 29500 for number in numbers)
        assert numbers[0] not in leader_ports(KEY, avoid=numbers[0])


class TestTheDoor:
    def test_lets_in_who_belongs_to_the_job(self, reception: Reception) -> None:
        link = attempt_connection(job(), KEY, CARD)
        assert isinstance(link, socket.socket)
        guest = reception.guests.get(timeout=5)
        assert (guest.hello, guest.address) == (CARD, "127.0.0.1")
        guest.link.sendall(b"hello\nmore")
        assert read_line(link, time.monotonic() + 5) == b"hello\n"
        assert link.recv(100) == b"more"
        link.close()

    def test_takes_another_port_when_one_is_taken(self) -> None:
        with socket.create_server(("", leader_ports(KEY)[0])):
            created_reception = Reception()
            try:
                assert created_reception.door.port == leader_ports(KEY)[1]
                link = attempt_connection(job(), KEY, CARD)
                assert isinstance(link, socket.socket)
                link.close()
            finally:
                created_reception.close()

    def test_says_so_when_all_are_taken(self) -> None:
        with contextlib.ExitStack() as stack:
            for number in leader_ports(KEY):
                stack.enter_context(socket.create_server(("", number)))
            with pytest.raises(OSError, match="in use"):
                Reception()

    @pytest.mark.parametrize(
        "arguments",
        [
            b"GET / HTTP/1.1\r\n\r\n",
            b"\n",
            b"x" * 40_000,
            b"[" * 10_000 + b"\n",
            b'{"nonce":"a","proof":"b","card":{}}\n',
            msgspec.json.encode({"nonce": "00", "proof": "00" * 32, "introduction": CARD_TEXT}) + b"\n",
        ],
    )
    def test_lets_in_nobody_else(self, reception: Reception, arguments: bytes) -> None:
        with socket.create_connection(("127.0.0.1", reception.door.port)) as stranger:
            stranger.settimeout(5)
            assert b"doctor smoke 2" in stranger.recv(1000)
            stranger.sendall(arguments)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1000) in (b"", REFUSAL)
        assert reception.guests.empty()

    def test_gives_nothing_away_that_could_be_said_again(self, reception: Reception) -> None:
        """What one process sent does not open the door for another."""
        sent = []

        class Ear(socket.socket):
            def sendall(self, data: Any, flags: int = 0) -> None:
                sent.append(bytes(data))
                super().sendall(data, flags)

        with Ear(socket.AF_INET, socket.SOCK_STREAM) as link:
            link.connect(("127.0.0.1", reception.door.port))
            send_hello(link, KEY, CARD)
        reception.guests.get(timeout=5).link.close()
        with socket.create_connection(("127.0.0.1", reception.door.port)) as thief:
            thief.settimeout(5)
            thief.recv(1000)
            thief.sendall(sent[0])
            assert thief.recv(1000) == REFUSAL
        assert reception.guests.empty()

    def test_takes_nothing_that_was_changed_on_the_way(self, reception: Reception) -> None:
        """A rank number that somebody in between puts in place of the process's own."""

        class Between(socket.socket):
            def sendall(self, data: Any, flags: int = 0) -> None:
                changed = bytes(data).replace(b'\\"rank\\":1', b'\\"rank\\":0')
                assert changed != data
                super().sendall(changed, flags)

        with Between(socket.AF_INET, socket.SOCK_STREAM) as link:
            link.connect(("127.0.0.1", reception.door.port))
            with pytest.raises(ForeignPeer):
                send_hello(link, KEY, CARD)
        assert reception.guests.empty()

    def test_is_not_held_shut_by_who_says_nothing(self, reception: Reception, monkeypatch: pytest.MonkeyPatch) -> None:
        silent = [socket.create_connection(("127.0.0.1", reception.door.port)) for _ in range(20)]
        link = attempt_connection(job(), KEY, CARD)
        assert isinstance(link, socket.socket)
        for sock in [link, *silent]:
            sock.close()


class TestTheEnd:
    def test_comes_after_whoever_counts_as_let_in(self) -> None:
        """The process may have its answer, and the thread that gave it no CPU since."""
        passed_on, no_cpu = [], threading.Event()

        def take(member: Member) -> None:
            no_cpu.wait(0.2)
            passed_on.append(member)

        listener = LeaderListener(KEY, leader_ports(KEY), take)
        listener.open()
        link = attempt_connection(job(), KEY, CARD)
        assert isinstance(link, socket.socket)
        listener.close()
        assert [member.hello for member in passed_on] == [CARD]
        link.close()
        passed_on[0].link.close()

    def test_is_known_to_whom_a_signal_found_on_the_way_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def stop(member: Member) -> None:
            raise SystemExit(143)

        leader = Leader(job(), KEY)
        monkeypatch.setattr(leader, "_admit", stop)
        links: list[socket.socket | RendezvousError] = []
        guest = threading.Thread(target=lambda: links.append(attempt_connection(job(), KEY, CARD)))
        guest.start()
        with pytest.raises(SystemExit), leader:
            leader.exit_code = 143
            leader.run_smoke(SmokeOptions(), 5.0, lambda *_: None)
        guest.join()
        assert isinstance(links[0], socket.socket)
        assert read_line(links[0], time.monotonic() + 5) == b'{"verdict":143}\n'
        links[0].close()


class TestWhyNot:
    def test_nothing_listens(self) -> None:
        error = unmet(job())
        assert error.reason == "refused"
        assert error.text.startswith("MASTER_ADDR=127.0.0.1 refuses connections: nothing of this job listens there")

    def test_a_name_that_does_not_resolve(self) -> None:
        error = unmet(job(leader_addresses=("nosuch.invalid",)))
        assert (error.reason, error.text[:45]) == ("name", "MASTER_ADDR=nosuch.invalid does not resolve: ")

    def test_no_address_at_all(self) -> None:
        error = unmet(job(leader_addresses=(), leader_address_source="MASTER_ADDR"))
        assert (error.reason, "MASTER_ADDR is unset" in error.text) == ("name", True)

    def test_another_program_listens_there(self) -> None:
        def answer(server: socket.socket) -> None:
            with contextlib.suppress(OSError):
                link, _ = server.accept()
                with link:
                    link.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        with contextlib.ExitStack() as stack:
            for number in leader_ports(KEY):
                server = stack.enter_context(socket.create_server(("127.0.0.1", number)))
                threading.Thread(target=answer, args=(server,), daemon=True).start()
            error = unmet(job())
        assert (error.reason, "does not belong to this job" in error.text) == ("stranger", True)

    def test_another_jobs_leader_listens_there(self) -> None:
        created_reception = Reception(job_token(job(launch_id="another"), 0))
        try:
            assert unmet(job()).reason in ("stranger", "refused")
            assert created_reception.guests.empty()
        finally:
            created_reception.close()

    @pytest.mark.parametrize(
        ("code", "reason"), [(errno.EHOSTUNREACH, "no-route"), (errno.ENETUNREACH, "no-route"), (errno.EACCES, "other")]
    )
    def test_what_the_kernel_says(self, monkeypatch: pytest.MonkeyPatch, code: int, reason: str) -> None:
        class Stuck(socket.socket):
            def connect_ex(self, address: Any) -> int:
                return code

        monkeypatch.setattr(way.socket, "socket", Stuck)
        assert unmet(job()).reason == reason

    def test_no_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A listener whose queue is full answers nothing to the next who knocks."""
        monkeypatch.setattr(way, "SECONDS", 0.2)
        with contextlib.ExitStack() as stack:
            for number in leader_ports(KEY):
                server = stack.enter_context(socket.create_server(("127.0.0.1", number), backlog=0))
                for _ in range(3):
                    filler = stack.enter_context(socket.socket())
                    filler.setblocking(False)
                    filler.connect_ex(server.getsockname())
            error = unmet(job())
        assert error.reason == "dropped"
        assert error.text.startswith("MASTER_ADDR=127.0.0.1 does not answer: packets are dropped, or the host is down")

    def test_one_of_several_addresses_is_enough(self, reception: Reception) -> None:
        link = attempt_connection(job(leader_addresses=("nosuch.invalid", "127.0.0.1")), KEY, CARD)
        assert isinstance(link, socket.socket)
        link.close()


def test_a_leader_that_comes_late_is_reached() -> None:
    errors: list[RendezvousError] = []

    def on_error(why: RendezvousError) -> bool:
        errors.append(why)
        if len(errors) == 2:
            receptions.append(Reception())
        return False

    receptions: list[Reception] = []
    link = connect_to_leader(job(), KEY, CARD, time.monotonic() + 10, on_error)
    assert isinstance(link, socket.socket)
    assert [why.reason for why in errors] == ["refused", "refused"]
    link.close()
    receptions[0].close()


def test_reaching_is_given_up_in_time() -> None:
    began = time.monotonic()
    assert isinstance(connect_to_leader(job(), KEY, CARD, time.monotonic() + 0.3, lambda why: False), RendezvousError)
    assert isinstance(connect_to_leader(job(), KEY, CARD, time.monotonic() + 99, lambda why: True), RendezvousError)
    assert time.monotonic() - began < 5


class TestTheMailbox:
    WHY = RendezvousError("name", "MASTER_ADDR=x does not resolve")

    def test_brings_what_a_process_cannot_say_itself_and_the_verdict_back(self) -> None:
        box, sender = RelayInbox(KEY), RelaySender(KEY, CARD)
        assert sender.send_error(self.WHY) is False
        assert box.receive() == RelayedError(CARD, "name", self.WHY.text)
        assert sender.send_error(self.WHY) is False
        assert box.receive() is None
        box.close(10)
        assert sender.send_error(self.WHY) is True
        assert sender.verdict == 10
        sender.close()

    def test_is_one_for_a_host(self) -> None:
        first, second = RelayInbox(KEY), RelayInbox(KEY)
        assert (first.fileno() >= 0, second.fileno()) == (True, -1)
        assert second.receive() is None
        first.close(None)
        third = RelayInbox(KEY)
        assert third.fileno() >= 0
        third.close(None)

    def test_a_letter_is_sent_again_when_its_box_is_gone(self) -> None:
        sender = RelaySender(KEY, CARD)
        assert sender.send_error(self.WHY) is False  # nobody there yet
        first = RelayInbox(KEY)
        assert sender.send_error(self.WHY) is False
        assert first.receive()
        first.close(None)
        second = RelayInbox(KEY)
        assert [sender.send_error(self.WHY) for _ in range(2)] == [False, False]
        assert second.receive()
        second.close(None)
        sender.close()

    def test_takes_no_rubbish(self) -> None:
        box = RelayInbox(KEY)
        for arguments in (b"rubbish\n", b"{}\n", b"[" * 5000 + b"\n"):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(f"\0doctor-smoke-{KEY.hex()[:24]}")
                stranger.sendall(arguments)
                assert box.receive() is None
        box.close(None)

    def test_takes_nothing_of_another_user(self, monkeypatch: pytest.MonkeyPatch) -> None:
        box, sender = RelayInbox(KEY), RelaySender(KEY, CARD)
        sender.send_error(self.WHY)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert box.receive() is None
        sender.close()
        box.close(None)


def test_a_line_is_read_to_its_end_and_no_further() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(msgspec.json.encode(RelayedVerdict(3)) + b"\nrest")
    assert read_line(ours, time.monotonic() + 1) == b'{"verdict":3}\n'
    assert ours.recv(10) == b"rest"
    theirs.sendall(b"x" * 20_000)
    with pytest.raises(ForeignPeer):
        read_line(ours, time.monotonic() + 1)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    ours.close()


def test_a_listener_is_closed_while_a_thread_of_it_is_about_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal ends rank 0 in the moment in which another process connects."""
    starting, go_on = threading.Event(), threading.Event()

    class LateThread(threading.Thread):
        def start(self) -> None:
            starting.set()
            go_on.wait(30)
            super().start()

    listener = LeaderListener(KEY, leader_ports(KEY), lambda member: None, "127.0.0.1")
    opening, closing = threading.Thread(target=listener.open), threading.Thread(target=listener.close)
    with monkeypatch.context() as patch:
        patch.setattr(module.threading, "Thread", LateThread)
        opening.start()
        assert starting.wait(30)
        patch.undo()
        failed: list[BaseException] = []
        patch.setattr(threading, "excepthook", lambda arguments: failed.append(arguments.exc_value))
        closing.start()
        go_on.set()
        for thread in (opening, closing):
            thread.join(30)
            assert not thread.is_alive()
    assert not failed and not listener._threads
