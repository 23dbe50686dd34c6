"""The leader's side of a gang: who has come, and the commands that each carries out."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence

from doctor.engine.sanitize import printable, strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.transport import TransportError, transport_error
from doctor.transport.conversation import BURST, RATE
from doctor.transport.gang.sealed import Introduction, SealedLink, admit
from doctor.transport.launcher.frames import FrameError, FrameReader, RequestEncoder
from doctor.transport.launcher.step import StepChannel, Task
from doctor.transport.peer_handshake import ForeignPeer, listen_on

PORTS = (28640, 28641, 28642, 28643)
"""Where a leader listens: the first that is free, for pods on the host's network may have taken one."""
FRAMES, ORDERS, VERDICT, RECEIPT, FAILED = b"f", b"o", b"v", b"r", b"e"
"""Kinds of messages: of a carrier, to a carrier, the verdict, that it has come, and why a carrier has ended."""
_BEAT_SECONDS = 8.0
_MAX_HANDSHAKES = 64
_MAX_STRANGERS = 8


class MemberLink:
    """One member: its carrier and its commands (`doctor.transport.launcher.step.CommandLink`)."""

    def __init__(self, host: str, introduction: Introduction, link: SealedLink, on_change: Callable[[], None]) -> None:
        self.host, self.introduction, self.address = host, introduction, link.address
        self.ended, self.why = False, transport_error("lost", "its connection to the pod that leads the gang was cut")
        """``why``: of its end."""
        self.has_verdict = False
        self._link, self._on_change = link, on_change
        self._task, self._encoder, self._numbers = Task(host, 0), RequestEncoder(), itertools.count(1)
        self._channels: dict[int, StepChannel] = {}
        self._lock = threading.Lock()
        self._beat_at = self._credited_at = time.monotonic()
        threading.Thread(target=self._run, daemon=True).start()

    def open(self, command: str) -> StepChannel:
        """Starts a command. Raises: TransportError."""
        channel = StepChannel(self, self._task, next(self._numbers))
        with self._lock:
            self._channels[channel.number] = channel
        channel.sent = time.time()
        if self.ended:
            channel.fail(self.why)
        self.send_request(self._task, "start", channel.number, command)
        return channel

    def send_request(self, task: Task, *fields: object) -> None:
        self._send(ORDERS, self._encoder.encode("*", *fields))

    def send_data(self, channel: StepChannel, data: bytes) -> None:
        with self._lock:
            line = self._encoder.encode_data("*", channel.number, data)
        self._send(ORDERS, line)

    def forget(self, channel: StepChannel) -> None:
        with self._lock:
            self._channels.pop(channel.number, None)
        if channel.code is None or not channel.drained:
            self.send_request(self._task, "end", channel.number)

    def end_commands(self) -> None:
        """Ends all that runs; the link stays for the verdict."""
        for channel in self._running():
            channel.fail(transport_error("budget", "the run's time limit was reached"))
            self.forget(channel)

    def send_verdict(self, message: bytes) -> None:
        self._send(VERDICT, message)

    def close(self) -> None:
        self._link.close()

    def _send(self, kind: bytes, data: bytes) -> None:
        """What cannot be sent shows in the thread that receives: a member that has gone may have said why."""
        try:
            self._link.send(kind, data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # what came before is still to be read, and then the end
        except OSError:
            self._link.close()

    def _running(self) -> list[StepChannel]:
        with self._lock:
            return list(self._channels.values())

    def _run(self) -> None:
        frames = FrameReader()
        try:
            while True:
                kind, data = self._link.receive()
                if kind == RECEIPT:
                    self.has_verdict = True
                    self._on_change()
                elif kind == FRAMES:
                    self._take(frames, data)
                elif kind == FAILED:
                    text = strip_control_chars(data, 200)
                    self.why = transport_error("error", filled("its pod cannot carry out commands: {0}", text))
                if time.monotonic() > self._beat_at + _BEAT_SECONDS:
                    self._beat_at = time.monotonic()
                    self.send_request(self._task, "beat")
        except TransportError as error:
            self.why = error
        except FrameError as error:
            self.why = transport_error("lost", str(error))
        except (OSError, ForeignPeer):
            pass
        finally:
            self.ended = True
            self._link.close()
            for channel in self._running():
                channel.fail(self.why)
            self._on_change()

    def _take(self, frames: FrameReader, data: bytes) -> None:
        """Raises: FrameError, TransportError."""
        now, task = time.monotonic(), self._task
        task.credit = min(task.credit + (now - self._credited_at) * RATE, BURST) - len(data)
        self._credited_at = now
        if task.credit < 0:
            raise transport_error("flood", "it exceeded the output limit, and was closed")
        for frame in frames.read(data):
            channel = self._channels.get(frame.number)
            if channel is not None:
                channel.receive(frame)


class Gathering:
    """Listens for the members of a gang, and lets in those who have its key."""

    def __init__(
        self,
        hosts: Sequence[str],
        key: bytes,
        version: str,
        is_at: Callable[[int, str], bool] | None = None,
        is_named: bool = True,
    ) -> None:
        """``hosts``: by index, the leader's own first. ``is_at``: whether an index has an address, without a key.

        ``is_named``: else ``hosts`` has words in the places of the others, until these have come.
        Raises: OSError, where no port is free.
        """
        self.hosts, self.changed = tuple(hosts), threading.Condition()
        self._is_named, self._free = is_named, [] if is_named else list(range(1, len(self.hosts)))
        self.own_address = ""
        """As the members reach this pod."""
        self.start, self.met_itself = secrets.token_hex(8), threading.Event()
        """``start``: of this leader, for a connection to itself, which a service may bring about."""
        self._key, self._version, self._is_at = key, version, is_at
        self._links: dict[str, MemberLink] = {}
        self._late: list[MemberLink] = []
        self._refused: dict[str, str] = {}
        self._displaced: set[str] = set()
        """Starts of processes whose place another has taken: one that comes back runs beside that."""
        self._doubled: dict[str, str] = {}
        """Hosts whose index two pods have, and what is said of them."""
        self._strangers: list[str] = []
        self._verdict: bytes | None = None
        self._slots = threading.BoundedSemaphore(_MAX_HANDSHAKES)
        self._server = listen_on(PORTS)
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def absent(self) -> list[str]:
        return [
            host for host in self.hosts[1:] if host not in self._links and host not in {*self._refused, *self._doubled}
        ]

    def wait(self, until: float) -> None:
        """Until all have come, or the monotonic clock has this time; after it no rank gets an index."""
        with self.changed:
            while self.absent and (remaining := until - time.monotonic()) > 0:
                self.changed.wait(min(remaining, 1.0))  # in parts: a signal is handled in between
            self._free.clear()

    def link(self, host: str, after: MemberLink | None = None, patience: float = 0.0) -> MemberLink:
        """The link to a host, another one than ``after``. Raises: TransportError, where it has none."""
        until = time.monotonic() + patience
        with self.changed:
            while True:
                link = self._links.get(host)
                if link is not None and link is not after and not link.ended:
                    return link
                remaining = until - time.monotonic()
                if remaining <= 0:
                    raise link.why if link else self._absence(host)
                self.changed.wait(min(remaining, 1.0))

    def has_come(self, host: str) -> bool:
        """Whether it has, or had, a link: where that was cut, it may come back."""
        return host in self._links

    def addresses(self) -> dict[str, str]:
        of_leader = {self.hosts[0]: self.own_address} if self.own_address else {}
        return {**of_leader, **{host: link.address for host, link in self._links.items()}}

    def end_commands(self) -> None:
        for link in list(self._links.values()):
            link.end_commands()

    def announce(self, message: bytes, until: float) -> None:
        """Sends the verdict to all that have come, and waits until they have it, not beyond ``until``.

        One whose link was just cut gets it as it comes back.
        """
        with self.changed:
            self._verdict = message
            links = [*self._links.values(), *self._late]
        for link in links:
            link.send_verdict(message)
        with self.changed:
            while (remaining := until - time.monotonic()) > 0:
                if all(link.has_verdict for link in (*self._links.values(), *self._late)):
                    return
                self.changed.wait(min(remaining, 1.0))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for link in [*self._links.values(), *self._late]:
            link.close()

    def _absence(self, host: str) -> TransportError:
        if refusal := self._doubled.get(host) or self._refused.get(host):
            return transport_error("unsupported", refusal)
        text = filled("the process with index {0} of the gang did not come", self.hosts.index(host))
        if self._strangers:
            text = filled("{0}; turned away: {1}", text, joined("; ", self._strangers))
        hint = filled("kubectl describe pod {0}", host) if self._is_named else "kubectl get pods"
        return transport_error("dropped", text, hint)

    def _accept(self) -> None:
        while True:
            try:
                link, address = self._server.accept()
            except OSError:
                return
            if self._slots.acquire(blocking=False):
                threading.Thread(target=self._admit, args=(link, address[0]), daemon=True).start()
            else:
                link.close()

    def _admit(self, link: socket.socket, address: str) -> None:
        try:
            own_address = link.getsockname()[0].removeprefix("::ffff:").partition("%")[0]
            introduction, sealed = admit(link, self._key)
            self._take_in(introduction, sealed, own_address)
        except ForeignPeer as stranger:
            self._note_stranger(address.removeprefix("::ffff:"), stranger)
            link.close()
        except OSError:
            link.close()
        finally:
            self._slots.release()

    def _take_in(self, introduction: Introduction, sealed: SealedLink, own_address: str) -> None:
        """Raises: ForeignPeer."""
        index = introduction.index if self._is_named else self._index_of(introduction.host, introduction.index)
        if index == 0:
            self._take_in_leader(introduction, sealed, own_address)
            return
        if not 0 < index < len(self.hosts) or (self._is_at and not self._is_at(index, sealed.address)):
            raise ForeignPeer(introduction)
        host = self.hosts[index]
        with self.changed:
            self.own_address = self.own_address or own_address
            earlier, verdict = self._links.get(host), self._verdict
            is_beside = introduction.start in self._displaced and earlier is not None and not earlier.ended
            if is_beside and earlier and earlier.address != sealed.address:
                self._doubled[host] = filled(
                    "two pods say that they have its index, {0}: at {1} and {2}", index, earlier.address, sealed.address
                )
                self._late.append(self._links.pop(host))
                raise ForeignPeer  # without the verdict: it was not checked
            link = MemberLink(host, introduction, sealed, self._notify)
            if host in self._doubled or is_beside:
                self._late.append(link)
            elif introduction.version != self._version:
                self._refused[host] = filled(
                    "its doctor is version {0}, and {1} on {2}, which leads the gang; expected one image",
                    printable(introduction.version, 40),
                    self._version,
                    self.hosts[0],
                )
                self._late.append(link)
            else:
                self._links[host] = link
                self._refused.pop(host, None)
                if earlier and earlier.introduction.start != introduction.start:
                    self._displaced.add(earlier.introduction.start)
            self.changed.notify_all()
        if earlier and self._links.get(host) is link:
            earlier.close()
        if verdict is not None:
            link.send_verdict(verdict)

    def _index_of(self, host: str, index: int) -> int:
        """Of a member that names its place; without an index it gets that which it has had, else the first, else none.

        Two pods of one node have one name: the place of the second keeps its word.
        """
        with self.changed:
            if index and host not in self.hosts and self._free and (index < 0 or index in self._free):
                place = self._free[0] if index < 0 else index
                self._free.remove(place)
                self.hosts = (*self.hosts[:place], host, *self.hosts[place + 1 :])
            if index and host not in self.hosts:
                return len(self.hosts)
            return index if index >= 0 else self.hosts.index(host)

    def _take_in_leader(self, introduction: Introduction, sealed: SealedLink, own_address: str) -> None:
        """A second process of this pod, which only gets the verdict. Raises: ForeignPeer for one of another pod."""
        if introduction.start == self.start:
            self.met_itself.set()
        if introduction.start == self.start or sealed.address != own_address:
            raise ForeignPeer
        with self.changed:
            verdict = self._verdict
            link = MemberLink(self.hosts[0], introduction, sealed, self._notify)
            self._late.append(link)
        if verdict is not None:
            link.send_verdict(verdict)

    def _note_stranger(self, address: str, stranger: ForeignPeer) -> None:
        claim = stranger.args[0] if stranger.args else None
        if isinstance(claim, Introduction):
            text = "{0} as index {1}, with another key or of another gang"
            if self._is_at:
                text = "{0} as index {1}, with an address that its name does not have"
            elif claim.index < 0:
                text = "{0} as {1}, with another key, of another gang, or beyond the number of its pods"
            text = filled(text, address, claim.index if claim.index >= 0 else printable(claim.host))
            if text not in self._strangers and len(self._strangers) < _MAX_STRANGERS:
                self._strangers.append(text)

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()
