"""How the processes of a launched job find their leader over TCP, who is admitted, and why one is refused.

Both sides prove that they know the job's token, in both directions, before anything is said. It is made of what all
processes of the job know: of DOCTOR_SMOKE_TOKEN, and of what the launcher made at random for this start (mpirun's key,
torchrun's run id). Where there is neither, it keeps other jobs and strange programs apart rather than a spy. What comes
is data in any case: no program is ever taken over it.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from doctor.engine.decoding import prepare_decoding
from doctor.environment.job_context import JobContext
from doctor.transport.peer_handshake import ForeignPeer, admit, introduce, is_own_address, listen_on

UnreachableReason = Literal["name", "refused", "dropped", "no-route", "stranger", "other"]
SECONDS = 2.0
"""For one attempt to connect, and for what is said when it worked."""
PORT_COUNT = 4
"""Ports that are tried, for one of them may be another program's."""
_FIRST_PORT, _LAST_PORT = 20000, 29499
"""Below the ports that systems hand out by themselves, and that jobs like to meet at."""
_PROTOCOL = "doctor smoke 2"
_MAX_HANDSHAKES = 128
_START_SECONDS = 0.001
"""For another thread to start one."""
SECRET_VARIABLES = ("DOCTOR_SMOKE_TOKEN", "OMPI_MCA_orte_precondition_transports")
"""The user's secret, and 128 random bits that mpirun gives to the processes of one start."""


class Hello(msgspec.Struct, frozen=True):
    """What a process reports of itself when it connects."""

    rank: int
    world: int
    host: str
    pid: int
    boot: str = ""
    """Tells hosts of one name apart."""
    local: int = -1
    local_world: int = -1
    device: int = -1
    counts: dict[str, int] = {}
    """NPUs and GPUs that it can use."""
    npu_model: str = ""
    """PCI device id of its NPUs."""
    launcher: str = ""
    version: str = ""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    use: Literal["wait", "lines"] = "wait"
    """What the connection is for: the verdict, or the agent's lines."""
    attempt: int = 0
    """Of an agent: for which of the leader's runs it is."""


class RelayedError(msgspec.Struct, frozen=True):
    """What a process that cannot reach the leader has another one of its host say."""

    hello: Hello
    reason: UnreachableReason
    text: str


class Member(NamedTuple):
    """A process of the job has come in."""

    hello: Hello
    link: socket.socket
    address: str


def job_token(context: JobContext, user: int, secret: str = "") -> bytes:
    """What only the processes of this job know, as long as their connections are not intercepted."""
    return hashlib.sha256(f"doctor smoke\0{context.launch_id}\0{user}\0{secret}".encode()).digest()


def launch_secret(environ: Mapping[str, str]) -> str:
    """What the user or the launcher gave to all processes of this start, and to no others; empty if nothing."""
    return "\0".join(environ[name] for name in SECRET_VARIABLES if environ.get(name))


def listening_address(context: JobContext) -> str:
    """The address at which the others look for the leader, where it is a literal one of this host; empty for all.

    What a name means to the others is not known here: they may have another address for it than this host.
    """
    literals = [text for text in context.leader_addresses if is_own_address(text)]
    return literals[0] if len(literals) == len(context.leader_addresses) == 1 else ""


def leader_ports(key: bytes, avoid: int = 0) -> tuple[int, ...]:
    """Where the leader may listen."""
    span = _LAST_PORT - _FIRST_PORT + 1
    numbers = [_FIRST_PORT + int.from_bytes(key[place : place + 4], "big") % span for place in range(0, 28, 4)]
    return tuple(dict.fromkeys(number for number in numbers if number != avoid))[:PORT_COUNT]


def send_hello(link: socket.socket, key: bytes, hello: Hello) -> None:
    """The other processes' side of the greeting. Raises: ForeignPeer, OSError."""
    introduce(link, key, _PROTOCOL, hello, SECONDS)
    _settle(link)


def _settle(link: socket.socket) -> None:
    link.settimeout(None)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class LeaderListener:
    """The leader's side: listens, and lets in who belongs to the job."""

    def __init__(
        self, key: bytes, numbers: Sequence[int], on_member: Callable[[Member], None], address: str = ""
    ) -> None:
        """Listens on ``address``, or on all. Raises: OSError, when all ports are taken."""
        self._key, self._on_member = key, on_member
        self._server = listen_on(numbers, address)
        self.port: int = self._server.getsockname()[1]
        self._handshakes = threading.Semaphore(_MAX_HANDSHAKES)
        self._threads: set[threading.Thread] = set()

    def open(self) -> None:
        self._start_thread(self._accept_loop)

    def close(self) -> None:
        """Lets no other process in. All that count as let in already have been passed on when this returns."""
        deadline = time.monotonic() + SECONDS
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        while self._threads and (remaining := deadline - time.monotonic()) > 0:
            for thread in list(self._threads):
                try:
                    thread.join(remaining)
                except RuntimeError:  # another thread is about to start it
                    time.sleep(_START_SECONDS)

    def abandon(self) -> None:
        """Leaves it to another process that has it, too."""
        self._server.close()

    def _accept_loop(self) -> None:
        while True:
            try:
                link, address = self._server.accept()
            except OSError:
                return
            self._handshakes.acquire()
            self._start_thread(self._admit, link, address[0])

    def _start_thread(self, function: Callable[..., None], *arguments: Any) -> None:
        def run() -> None:
            try:
                function(*arguments)
            finally:
                self._threads.discard(thread)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except BaseException:  # also of a signal that ends this process
            self._threads.discard(thread)
            raise

    def _admit(self, link: socket.socket, address: str) -> None:
        try:
            hello, _ = admit(link, self._key, _PROTOCOL, Hello, SECONDS)
            _settle(link)
            self._on_member(Member(hello, link, address.removeprefix("::ffff:").partition("%")[0]))
        except (ForeignPeer, OSError):
            link.close()
        finally:
            self._handshakes.release()


prepare_decoding(Hello, RelayedError)
