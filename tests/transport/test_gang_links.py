"""Links of a gang under attack: what is changed, left out, repeated or put in by others is never taken."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest

from doctor.preflight.gang import GangTransport
from doctor.transport import TransportError
from doctor.transport.gang import sealed
from doctor.transport.gang.links import VERDICT, Gathering
from doctor.transport.gang.member import Membership
from doctor.transport.gang.sealed import Introduction, SealedLink, admit, gang_key, introduce
from doctor.transport.peer_handshake import ForeignPeer, KeyRefused

KEY, OTHER = gang_key(b"s" * 32, "a\0b"), gang_key(b"s" * 32, "a\0c")
SELF = Introduction(1, "b", "1")
NEW = -1


class Wire:
    """Two sockets and a program between them that may change what passes."""

    open: ClassVar[list[Wire]] = []

    def __init__(self, change: Callable[[bytes], bytes] = bytes) -> None:
        self.leader, near = socket.socketpair()
        far, self.member = socket.socketpair()
        self.change: Callable[[bytes], bytes] = change
        self.threads = [
            threading.Thread(target=self._pass, args=ends, daemon=True) for ends in ((near, far), (far, near))
        ]
        for thread in self.threads:
            thread.start()
        Wire.open.append(self)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with source, target, contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(self.change(data))

    def cut(self) -> None:
        """Ends both threads, which would meet the sockets of later tests by their numbers."""
        for end in (self.leader, self.member):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self.threads:
            thread.join()


@pytest.fixture(autouse=True)
def addresses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pairs of sockets have no address and no Nagle. After a test all are closed."""
    monkeypatch.setattr(
        SealedLink,
        "__init__",
        lambda self, link, *rest: _INIT(self, _Tcp(link), *rest),  # type: ignore[arg-type]
    )
    yield
    while Wire.open:
        Wire.open.pop().cut()


_INIT = SealedLink.__init__


class _Tcp:
    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def getpeername(self) -> tuple[str]:
        return ("10.0.0.1",)

    def setsockopt(self, *_: int) -> None:
        pass

    def __getattr__(self, name: str) -> object:
        return getattr(self._link, name)


def joined(wire: Wire, key: bytes = KEY) -> tuple[SealedLink, SealedLink]:
    taken: list[SealedLink] = []
    thread = threading.Thread(target=lambda: taken.append(admit(wire.leader, KEY)[1]))
    thread.start()
    member = introduce(wire.member, key, SELF)
    thread.join()
    return taken[0], member


def test_messages_go_both_ways_whole() -> None:
    leader, member = joined(Wire())
    data = os.urandom(3_000_000)
    threading.Thread(target=lambda: (member.send(b"f", data), member.send(b"r"))).start()
    got = bytearray()
    while (message := leader.receive())[0] != b"r":
        got += message[1]
    assert got == data
    leader.send(b"v", b"0")
    assert member.receive() == (b"v", b"0")


@pytest.mark.parametrize("place", [0, 3, 4, 20, 36, 37, 40])
def test_a_changed_byte_is_no_message(place: int) -> None:
    wire = Wire()
    leader, member = joined(wire)
    wire.change = lambda data: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    threading.Thread(target=lambda: (leader.send(b"v", b"code 0"), time.sleep(0.05), leader.close())).start()
    with pytest.raises((ForeignPeer, OSError)):
        member.receive()


def test_a_repeated_message_is_no_message() -> None:
    wire = Wire()
    leader, member = joined(wire)
    wire.change = lambda data: data + data
    leader.send(b"o", b"start")
    assert member.receive() == (b"o", b"start")
    with pytest.raises(ForeignPeer):
        member.receive()


def test_a_message_that_is_turned_round_is_no_message() -> None:
    leader, member = joined(Wire())
    leader._send_key = leader._receive_key  # as if the member's own words came back
    leader.send(b"o", b"start")
    with pytest.raises(ForeignPeer):
        member.receive()


def test_another_gang_with_the_same_secret_is_refused() -> None:
    wire = Wire()

    def lead() -> None:
        with pytest.raises(ForeignPeer):
            admit(wire.leader, KEY)

    thread = threading.Thread(target=lead)
    thread.start()
    with pytest.raises(KeyRefused):
        introduce(wire.member, OTHER, SELF)
    thread.join()


def test_a_leader_without_the_key_is_not_obeyed() -> None:
    wire = Wire()

    def pretend() -> None:
        wire.leader.sendall(b'{"protocol": "doctor gang 2", "nonce": "00"}\n')
        wire.leader.recv(1 << 16)
        wire.leader.sendall(b'{"proof": "%s"}\n' % (b"0" * 64))

    threading.Thread(target=pretend).start()
    with pytest.raises(ForeignPeer):
        introduce(wire.member, KEY, SELF)


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"{}\n",
        b"\n",
        b"[" * 5000 + b"\n",
        b"x" * 40000,
        b'{"nonce":1,"proof":2}\n',
        b"\xff\n",
    ],
    ids=range(7),
)
def test_what_is_no_member_is_turned_away(line: bytes) -> None:
    wire = Wire()
    threading.Thread(target=lambda: wire.member.sendall(line), daemon=True).start()
    with pytest.raises((ForeignPeer, OSError)):
        admit(wire.leader, KEY)


def test_one_that_says_nothing_does_not_hold_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "HANDSHAKE_SECONDS", 0.1)
    with pytest.raises(OSError):
        admit(Wire().leader, KEY)


@pytest.fixture
def gathering() -> Iterator[Gathering]:
    gathered = Gathering(("localhost", "b", "c"), KEY, "1")
    yield gathered
    gathered.close()


def member(gathering: Gathering, index: int, version: str = "1") -> tuple[threading.Thread, list[bytes | None]]:
    verdicts: list[bytes | None] = []
    membership = Membership("localhost", KEY, index, version, lambda text: None)
    thread = threading.Thread(target=lambda: verdicts.append(membership.receive_verdict(20, time.monotonic() + 60)))
    thread.start()
    return thread, verdicts


def test_commands_run_on_members_and_all_get_the_verdict(gathering: Gathering) -> None:
    (first, membership), (second, two) = member(gathering, 1), member(gathering, 2, version="2")
    gathering.wait(time.monotonic() + 20)
    transport = GangTransport(gathering)
    result = transport.run("b", "echo 42; exit 3", b"", 20)
    assert (result.code, result.out) == (3, b"42\n")
    with pytest.raises(TransportError, match="its doctor is version 2, and 1 on localhost"):
        transport.run("c", "true", b"", 20)
    transport.close()
    gathering.announce(b"{}", time.monotonic() + 10)
    first.join(20), second.join(20)
    assert membership == two == [b"{}"]


def test_one_that_never_came_is_named_by_its_index(gathering: Gathering) -> None:
    gathering.wait(time.monotonic())
    with pytest.raises(TransportError, match="index 2 of the gang did not come"):
        GangTransport(gathering).run("c", "true", b"", 5)


def test_one_whose_link_was_cut_before_the_first_command_has_time_to_come_back(
    gathering: Gathering, connect: Callable[[str], SealedLink]
) -> None:
    """As a container that is started again just when the last pod has come."""
    first = connect("first")
    with gathering.changed:
        assert gathering.changed.wait_for(lambda: "b" in gathering._links, 20)
        first.close()
        assert gathering.changed.wait_for(lambda: gathering._links["b"].ended, 20)
    thread, verdicts = member(gathering, 1)
    transport = GangTransport(gathering)
    assert transport.run("b", "echo 42", b"", 20).out == b"42\n"
    transport.close()
    gathering.announce(b"{}", time.monotonic() + 10)
    thread.join(20)
    assert verdicts == [b"{}"]


def test_a_silent_service_on_the_first_port_does_not_hide_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections, and waits for the client to begin, as HTTP servers do."""
    monkeypatch.setattr(sealed, "HANDSHAKE_SECONDS", 0.5)
    silent = socket.create_server(("127.0.0.1", 0))
    gathered = Gathering(("localhost", "b"), KEY, "1")
    monkeypatch.setattr("doctor.transport.gang.member.PORTS", (silent.getsockname()[1], gathered.port))
    thread, verdicts = member(gathered, 1)
    gathered.wait(time.monotonic() + 20)
    gathered.announce(b"{}", time.monotonic() + 10)
    thread.join(20)
    gathered.close(), silent.close()
    assert verdicts == [b"{}"]


@pytest.fixture
def connect(gathering: Gathering) -> Iterator[Callable[[str], SealedLink]]:
    """Begins a process with index 1, by its start."""
    with contextlib.ExitStack() as opened:

        def begin(start: str) -> SealedLink:
            link = socket.create_connection(("localhost", gathering.port))
            opened.callback(link.close)
            return introduce(link, KEY, Introduction(1, "b", "1", start))

        yield begin


def test_members_without_numbers_get_them_in_the_order_in_which_they_come() -> None:
    """As the workers of a RayCluster: one whose container is started again keeps its number, one too many has none."""
    gathered = Gathering(("head", "pod-1", "pod-2"), KEY, "1", is_named=False)
    with contextlib.ExitStack() as opened:
        opened.callback(gathered.close)

        def join_gang(host: str, start: str) -> SealedLink:
            link = socket.create_connection(("localhost", gathered.port))
            opened.callback(link.close)
            return introduce(link, KEY, Introduction(NEW, host, "1", start))

        join_gang("w-x7k2p", "first")
        gathered.link("w-x7k2p", patience=10)
        with pytest.raises(TransportError, match="index 2 of the gang did not come"):
            gathered.link("pod-2")
        join_gang("w-x7k2p", "again"), join_gang("w-abcde", "other")
        gathered.wait(time.monotonic() + 20)
        assert (gathered.hosts, gathered.absent) == (("head", "w-x7k2p", "w-abcde"), [])
        assert ends(join_gang("w-fifth", "late"))
        gathered._absence("w-abcde")
        assert "as w-fifth, with another key, of another gang, or beyond the number" in gathered._strangers[0]


def test_members_with_numbers_and_names_of_their_own() -> None:
    """As an AscendJob's pods on the network of their nodes: two of one node are two, and none takes another's place."""
    gathered = Gathering(("node-9", "pod-1", "pod-2", "pod-3"), KEY, "1", is_named=False)
    with contextlib.ExitStack() as opened:
        opened.callback(gathered.close)

        def join_gang(index: int, host: str, start: str) -> SealedLink:
            link = socket.create_connection(("localhost", gathered.port))
            opened.callback(link.close)
            return introduce(link, KEY, Introduction(index, host, "1", start))

        join_gang(2, "node-1", "first")
        gathered.link("node-1", patience=10)
        assert gathered.absent == ["pod-1", "pod-3"]
        assert ends(join_gang(2, "node-5", "elsewhere")) and ends(join_gang(4, "node-6", "beyond"))
        join_gang(3, "node-1", "beside"), join_gang(1, "node-9", "of the leader's node")
        gathered.wait(time.monotonic() + 20)
        assert (gathered.hosts, gathered.absent) == (("node-9", "pod-1", "node-1", "pod-3"), [])
        assert len({id(gathered.link(host)) for host in gathered.hosts[1:]}) == 3


@pytest.mark.parametrize("host", ["", "a b", "a\x1b[2J", "a" * 256])
def test_a_member_that_calls_itself_by_no_name_is_turned_away(gathering: Gathering, host: str) -> None:
    link = socket.create_connection(("localhost", gathering.port))
    with contextlib.closing(link), contextlib.suppress(OSError, ForeignPeer):
        assert ends(introduce(link, KEY, Introduction(1, host, "1", "first")))
    assert not gathering.has_come("b")


def ends(link: SealedLink) -> bool:
    """Whether the leader closes it, without a verdict."""
    try:
        return not link.receive()
    except OSError:
        return True


def test_two_pods_with_one_index_are_named_and_none_passes_unchecked(
    gathering: Gathering, connect: Callable[[str], SealedLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    places, init = iter(("10.0.0.1", "10.0.0.2", "10.0.0.1")), SealedLink.__init__

    def begin(self: SealedLink, link: socket.socket, key: bytes, side: str, nonces: tuple[str, str]) -> None:
        init(self, link, key, side, nonces)  # type: ignore[arg-type]
        if side == "leader":
            self.address = next(places)

    monkeypatch.setattr(SealedLink, "__init__", begin)
    first = connect("first")
    gathering.link("b", patience=10)
    _second = connect("second")
    assert ends(first) and ends(connect("first"))
    with pytest.raises(TransportError, match="two pods say that they have its index, 1: at"):
        gathering.link("b")


def test_a_second_process_of_one_pod_only_gets_the_verdict(
    gathering: Gathering, connect: Callable[[str], SealedLink]
) -> None:
    first = connect("first")
    gathering.link("b", patience=10)
    second = connect("second")
    assert ends(first)
    again = connect("first")
    with gathering.changed:
        gathering.changed.wait_for(lambda: bool(gathering._late), 10)
    gathering.announce(b"{}", time.monotonic())
    assert again.receive() == second.receive() == (VERDICT, b"{}")
    assert gathering.link("b").introduction.start == "second"
