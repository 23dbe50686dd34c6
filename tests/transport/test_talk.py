"""Lines both ways: on this machine, and by both kinds of SSH over real hosts; every end is seen, and leaves nothing."""

from __future__ import annotations

import os
import queue
import shlex
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from doctor.transport import RemoteSession, Transport, TransportError
from doctor.transport import conversation as module
from doctor.transport.conversation import LineSession, close_all
from doctor.transport.local import Local, SocketChannel

if TYPE_CHECKING:
    from tests.transport.conftest import Ground

ECHO = """
import os, sys
sys.stdout.write("%d\\n" % os.getpid())
sys.stdout.flush()
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
sys.stdout.write("bye\\n")
sys.stdout.flush()
sys.exit(3)
"""


def python(source: str, interpreter: str = sys.executable) -> str:
    return f"exec {interpreter} -c {shlex.quote(source)}"


class Listener:
    """What a conversation says, read by a thread of its own as the supervisor does."""

    def __init__(self, conversation: RemoteSession) -> None:
        self.lines: queue.Queue[bytes] = queue.Queue()
        self.error: TransportError | None = None
        self._conversation = conversation
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            for line in self._conversation:
                self.lines.put(line)
        except TransportError as error:
            self.error = error

    def line(self) -> bytes:
        return self.lines.get(timeout=10)

    def rest(self, timeout: float = 10) -> list[bytes]:
        """All that is left, once there will be no more."""
        self._thread.join(timeout)
        assert not self._thread.is_alive()
        return [self.lines.get() for _ in range(self.lines.qsize())]


def files() -> Counter[object]:
    """What this process has open; a pipe or socket has a number of its own. What earlier tests opened may go."""
    with os.scandir("/proc/self/fd") as entries:
        return Counter(os.readlink(entry.path) for entry in entries if os.path.islink(entry.path))


def has_ended(pid: int, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.005)
    return False


@pytest.fixture
def local() -> Iterator[Local]:
    before = files()
    transport = Local()
    yield transport
    transport.close()
    assert files() <= before


class TestHere:
    def test_lines_go_both_ways_until_the_input_ends(self, local: Local) -> None:
        talk = local.open_session("here", python(ECHO))
        listener = Listener(talk)
        assert int(listener.line()) > 1
        talk.send(b"one\n\ntw")
        talk.send(b"o\n")
        assert [listener.line() for _ in range(3)] == [b"one", b"", b"two"]
        assert talk.code is None
        talk.end()
        assert listener.rest() == [b"bye"]
        assert (talk.host, talk.code, listener.error) == ("here", 3, None)

    def test_what_is_sent_before_anybody_reads_is_sent_then(self, local: Local) -> None:
        talk = local.open_session("here", python(ECHO))
        talk.send(b"early\n")
        talk.end()
        assert list(talk)[1:] == [b"early", b"bye"]

    def test_from_many_threads_no_two_are_mixed(self, local: Local) -> None:
        talk = local.open_session("here", python(ECHO))
        listener = Listener(talk)
        sent = [bytes([65 + who]) * 50_000 for who in range(8)]
        threads = [
            threading.Thread(target=lambda line=line: [talk.send(line + b"\n") for _ in range(5)]) for line in sent
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        talk.end()
        assert sorted(listener.rest()[1:-1]) == sorted(sent * 5)

    def test_a_large_line_comes_whole(self, local: Local) -> None:
        talk = local.open_session("here", python(ECHO))
        listener = Listener(talk)
        line = os.urandom(1_500_000).replace(b"\n", b" ") * 2
        talk.send(line + b"\n")
        listener.line()
        assert listener.line() == line
        talk.close()

    def test_a_line_without_an_end_is_a_flood(self, local: Local) -> None:
        talk = local.open_session("here", "echo $$; exec head -c 5000000 /dev/zero")
        listener = Listener(talk)
        pid = int(listener.line())
        assert listener.rest() == []
        assert listener.error is not None
        assert (listener.error.kind, listener.error.text) == (
            "flood",
            "it printed a line of more than 4 MiB, and was closed",
        )
        assert has_ended(pid)

    @pytest.mark.parametrize("where", ["", " >&2"])
    def test_more_than_the_rate_for_long_is_a_flood(
        self, local: Local, where: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "BURST", 1 << 20)
        monkeypatch.setattr(module, "RATE", 1 << 10)
        talk = local.open_session("here", f"yes{where}; true")
        with pytest.raises(TransportError) as stop:
            for _ in talk:
                pass
        assert stop.value.kind == "flood"
        assert len(talk.err) <= 1 << 16
        with pytest.raises(TransportError):
            talk.send(b"x\n")

    def test_much_within_the_rate_is_none(self, local: Local) -> None:
        talk = local.open_session("here", "exec seq 1000000")
        assert sum(1 for _ in talk) == 1_000_000
        assert talk.code == 0

    def test_a_program_that_takes_nothing_in_holds_nobody_up(self, local: Local) -> None:
        talk = local.open_session("here", "exec sleep 60")
        listener, began = Listener(talk), time.monotonic()
        with pytest.raises(TransportError) as stop:
            for _ in range(20):
                talk.send(b"x" * (1 << 20))
        assert (stop.value.kind, "wait to be sent" in stop.value.text) == ("timeout", True)
        talk.close(0.1)
        assert time.monotonic() - began < 3
        assert listener.rest() == []

    def test_the_end_of_a_killed_program_is_seen_at_once(self, local: Local) -> None:
        """Even when what it started holds its output open; and that goes with it."""
        talk = local.open_session(
            "here",
            python(
                "import os, subprocess; started = subprocess.Popen(['sleep', '60']);"
                "print(started.pid, os.getpid(), flush=True); input()"
            ),
        )
        listener = Listener(talk)
        child, leader = map(int, listener.line().split())
        os.kill(leader, 9)
        assert listener.rest(2) == []
        assert (talk.code, listener.error) == (-9, None)
        assert has_ended(child)
        with pytest.raises(TransportError) as stop:
            talk.send(b"x\n")
        assert stop.value.kind == "lost"

    def test_its_end_is_seen_where_the_kernel_does_not_tell(
        self, local: Local, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def absent(pid: int) -> int:
            raise OSError(38, "Function not implemented")

        monkeypatch.setattr(os, "pidfd_open", absent)
        talk = local.open_session("here", "sleep 60 & echo here; exit 4")
        assert list(talk) == [b"here"]
        assert talk.code == 4

    def test_close_ends_a_program_that_listens_to_its_input(self, local: Local) -> None:
        talk = local.open_session("here", python(ECHO))
        listener = Listener(talk)
        pid = int(listener.line())
        began = time.monotonic()
        talk.close(5)
        assert time.monotonic() - began < 2
        assert talk.code == 3
        assert has_ended(pid, 0.1)
        listener.rest()
        talk.close()

    def test_close_kills_one_that_does_not(self, local: Local) -> None:
        talk = local.open_session("here", "trap '' TERM; echo $$; while :; do sleep 60; done")
        listener = Listener(talk)
        pid = int(listener.line())
        talk.close(0.1)
        assert talk.code == -9
        assert has_ended(pid, 0.1)
        assert listener.rest() == []
        assert listener.error is None

    def test_close_needs_no_reader(self, local: Local) -> None:
        talk = local.open_session("here", "yes | head -c 1000000; read line; exit 7")
        talk.send(b"go\n")
        talk.close(5)
        assert talk.code == 7

    def test_stderr_is_kept_to_its_last_words(self, local: Local) -> None:
        talk = local.open_session("here", "seq 100000 >&2; echo last words >&2; echo done")
        assert list(talk) == [b"done"]
        assert len(talk.err) == 1 << 16
        assert talk.err.endswith(b"last words\n")

    def test_a_program_that_reads_no_more_is_still_heard(self, local: Local) -> None:
        talk = local.open_session("here", "exec <&-; echo closed; sleep 0.3; echo more")
        listener = Listener(talk)
        assert listener.line() == b"closed"
        talk.send(b"x\n")
        assert listener.rest() == [b"more"]
        assert talk.code == 0

    def test_closing_the_transport_is_told_to_who_reads(self, local: Local) -> None:
        talk = local.open_session("here", python(ECHO))
        listener = Listener(talk)
        pid = int(listener.line())
        local.close()
        assert listener.rest() == []
        assert listener.error is not None
        assert listener.error.kind == "budget"
        assert has_ended(pid, 0.1)
        with pytest.raises(TransportError) as stop:
            local.open_session("here", "true")
        assert stop.value.kind == "budget"

    def test_many_end_with_one_grace(self, local: Local) -> None:
        talks = [local.open_session("here", "trap '' TERM; exec sleep 60") for _ in range(4)]
        talks += [local.open_session("here", "cat >/dev/null") for _ in range(12)]
        listeners, began = [Listener(talk) for talk in talks[::2]], time.monotonic()
        close_all(talks, 0.3)
        assert time.monotonic() - began < 0.3 + 2
        assert [talk.code for talk in talks] == [-9] * 4 + [0] * 12
        for listener in listeners:
            assert listener.rest() == []


class TestSockets:
    def test_the_other_sides_end_ends_it(self) -> None:
        before = files()
        ours, theirs = socket.socketpair()
        talk = LineSession("far", SocketChannel(ours))
        listener = Listener(talk)
        talk.send(b"hello\n")
        assert theirs.recv(100) == b"hello\n"
        theirs.sendall(b"one\ntwo")
        theirs.close()
        assert listener.rest() == [b"one", b"two"]
        assert files() <= before

    def test_end_closes_our_direction_alone(self) -> None:
        ours, theirs = socket.socketpair()
        talk = LineSession("far", SocketChannel(ours))
        talk.send(b"x" * 1_000_000)
        listener = Listener(talk)
        talk.end()
        with theirs.makefile("rb") as file:
            assert len(file.read()) == 1_000_000
        theirs.sendall(b"bye\n")
        theirs.close()
        assert listener.rest() == [b"bye"]

    def test_a_reset_is_a_cut(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
        talk = LineSession("far", SocketChannel(ours))
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        theirs.close()
        with pytest.raises(TransportError) as stop:
            list(talk)
        assert stop.value.kind == "lost"


Open = Callable[..., Transport]


@pytest.fixture(params=["ssh", "openssh"])
def open_ssh(request: pytest.FixtureRequest, ground: Ground) -> Open:
    way = getattr(ground, request.param)

    def make(*args: object, **options: object) -> Transport:
        transport: Transport = way(*args, **options)
        return transport

    return make


@pytest.mark.hosts
class TestHosts:
    def test_lines_go_both_ways(self, ground: Ground, open_ssh: Open) -> None:
        talk = open_ssh().open_session(ground.good[0], python(ECHO, "python3"))
        listener = Listener(talk)
        pid = listener.line()
        line = os.urandom(1_500_000).replace(b"\n", b" ") * 2
        talk.send(line + b"\nshort\n")
        assert listener.line() == line
        assert listener.line() == b"short"
        talk.end()
        assert listener.rest() == [b"bye"]
        assert (talk.code, listener.error) == (3, None)
        assert ground.has_ended(ground.good[0], pid.decode())

    def test_an_answer_takes_no_time(self, ground: Ground, open_ssh: Open) -> None:
        talk = open_ssh().open_session(ground.good[0], python(ECHO, "python3"))
        listener = Listener(talk)
        listener.line()
        began = time.monotonic()
        for number in range(50):
            talk.send(b"%d\n" % number)
            assert listener.line() == b"%d" % number
        assert (time.monotonic() - began) / 50 < 0.1
        talk.close()

    @pytest.mark.parametrize(
        ("fault", "kind"),
        [
            ("refuse", "refused"),
            ("drop", "dropped"),
            ("silent", "silent"),
            ("wrong-key", "key-changed"),
            ("deny", "auth"),
        ],
    )
    def test_a_host_that_is_not_reached_is_named_as_for_run(
        self, ground: Ground, open_ssh: Open, fault: str, kind: str
    ) -> None:
        timeout = 1.0 if fault in ("drop", "silent") else 20.0
        with pytest.raises(TransportError) as stop:
            open_ssh(connect_timeout=timeout).open_session(ground.faulty[fault], "cat")
        assert stop.value.kind == kind

    def test_a_flood_is_cut_off(self, ground: Ground, open_ssh: Open) -> None:
        talk = open_ssh().open_session(ground.good[0], "exec head -c 9000000 /dev/zero")
        with pytest.raises(TransportError) as stop:
            list(talk)
        assert stop.value.kind == "flood"
        assert ground.sessions(ground.good[0]) == 0

    def test_the_end_of_a_killed_program_is_seen(self, ground: Ground, open_ssh: Open) -> None:
        talk = open_ssh().open_session(ground.good[0], "echo $$; exec cat")
        listener = Listener(talk)
        ground.fleet.enter(ground.good[0], ["kill", "-9", listener.line().decode()])
        assert listener.rest(3) == []
        if listener.error:  # ssh does not tell which signal it was
            assert (listener.error.kind, listener.error.text) == ("error", "the command was killed by a signal")
        else:
            assert talk.code == -9

    def test_a_connection_that_is_cut_is_lost(self, ground: Ground, open_ssh: Open) -> None:
        talk = open_ssh().open_session(ground.good[0], "echo $PPID; cat")
        listener = Listener(talk)
        ground.fleet.enter(ground.good[0], ["kill", "-9", listener.line().decode()])
        assert listener.rest(3) == []
        assert listener.error is not None
        assert listener.error.kind == "lost"

    def test_packets_that_stop_are_noticed(
        self, ground: Ground, open_ssh: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With nothing to send as well as with much."""
        for place in ("ssh.ssh_transport", "openssh.openssh_transport"):
            monkeypatch.setattr(f"doctor.transport.{place}.SILENCE", 3.0)
        monkeypatch.setattr(
            "doctor.transport.openssh.openssh_transport._KEEPALIVE", ("ServerAliveInterval=1", "ServerAliveCountMax=2")
        )
        transport, (quiet, busy) = open_ssh(), ground.good[:2]
        with ground.fleet.broken([quiet, busy]):
            talks = [transport.open_session(host, "echo here; cat") for host in (quiet, busy)]
            listeners = [Listener(talk) for talk in talks]
            assert [entry.line() for entry in listeners] == [b"here"] * 2
            for host in (quiet, busy):
                chain = "table inet cut {\n chain in {\n type filter hook input priority 0\n drop\n }\n}\n"
                ground.fleet.enter(host, ["nft", "-f", "-"], input=chain)
            talks[1].send(b"x" * 4_000_000)
            for listener in listeners:
                assert listener.rest(10) == []
                assert listener.error is not None
                assert listener.error.kind == "lost"

    def test_close_ends_the_program_there_at_once(self, ground: Ground, open_ssh: Open) -> None:
        transport = open_ssh()
        talk = transport.open_session(ground.good[0], python(ECHO, "python3"))
        listener = Listener(talk)
        pid = listener.line()
        began = time.monotonic()
        talk.close(5)
        assert time.monotonic() - began < 2
        assert talk.code == 3
        assert listener.rest() == []
        assert ground.has_ended(ground.good[0], pid.decode())
        transport.close()
        assert ground.sessions(ground.good[0]) == 0

    def test_close_does_not_wait_for_one_that_stays(self, ground: Ground, open_ssh: Open) -> None:
        talk = open_ssh().open_session(ground.good[0], "trap '' TERM HUP; echo $$; exec sleep 30")
        listener = Listener(talk)
        pid, began = listener.line(), time.monotonic()
        talk.close(0.2)
        assert time.monotonic() - began < 3
        assert listener.rest() == []
        assert listener.error is None or listener.error.kind in ("timeout", "lost")
        ground.fleet.enter(ground.good[0], ["kill", "-9", pid.decode()])

    def test_closing_the_transport_ends_all(self, ground: Ground, open_ssh: Open) -> None:
        transport = open_ssh()
        talks = [transport.open_session(host, "echo $$; exec cat") for host in ground.good]
        listeners = [Listener(talk) for talk in talks]
        pids = [entry.line().decode() for entry in listeners]
        transport.close()
        for listener in listeners:
            assert listener.rest() == []
            assert listener.error is not None
            assert listener.error.kind == "budget"
        assert all(ground.has_ended(host, pid) for host, pid in zip(ground.good, pids, strict=True))
        assert [ground.sessions(host) for host in ground.good] == [0] * len(ground.good)


@pytest.mark.hosts
def test_a_connection_serves_the_next_round_too(ground: Ground) -> None:
    ssh = ground.ssh()
    talk = ssh.open_session(ground.good[0], "echo $PPID; cat")
    listener = Listener(talk)
    parent = listener.line()
    talk.close()
    listener.rest()
    assert ssh.run(ground.good[0], "echo $PPID", b"", 10).out.strip() == parent
