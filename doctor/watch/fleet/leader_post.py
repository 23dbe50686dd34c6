"""The leading host of a watched job: lets the other hosts in, takes their news, and tells them what was decided."""

from __future__ import annotations

import contextlib
import queue
import socket
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from doctor.engine.sanitize import rank_names, strip_control_chars
from doctor.engine.texts import filled
from doctor.smoke.rendezvous.link import LeaderListener, Member, leader_ports, listening_address
from doctor.watch.fleet.meeting import Meeting, block_around
from doctor.watch.fleet.messages import PROTOCOL, FleetOrder, FleetVerdict, HostNews, RankNews
from doctor.watch.fleet.sockets import FleetLink
from doctor.watch.suspicion import StackPending

PING_SECONDS = 1.0
STACK_SECONDS = 3.0
"""For another host to send the stacks that it was asked for."""
READING_SECONDS = 0.2
"""Longest time that is spent on news at once."""
SETTLING_SECONDS = 5.0
"""Seconds without news after which what is known of a host counts as old."""
MOST_HOSTS = 8192

LinkState = Literal["live", "over", "cut", "closed"]


KEPT_SECONDS = 15.0
"""Clocks drift: older answers tell nothing."""
MOST_SAMPLES = 64


class _Sample(NamedTuple):
    round_trip: float
    offset: float
    at: float


class HostClock:
    """The newest pings of one host.

    >>> clock = HostClock()
    >>> clock.add(sent=10.0, received=10.5, theirs=110.25)
    >>> clock.offset(10.5), clock.error(10.5)
    (100.0, 0.25)
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=MOST_SAMPLES)

    def add(self, sent: float, received: float, theirs: float) -> None:
        """A ping that came back; ``theirs``: the other host's clock when it answered. All in seconds."""
        if received >= sent:
            self._samples.append(_Sample(received - sent, theirs - (sent + received) / 2, received))

    def offset(self, now: float) -> float | None:
        """Seconds that the other clock is ahead; None where no recent ping came back."""
        best = self._best(now)
        return None if best is None else best.offset

    def error(self, now: float) -> float | None:
        """Seconds that `offset` may be wrong."""
        best = self._best(now)
        return None if best is None else best.round_trip / 2

    def _best(self, now: float) -> _Sample | None:
        while self._samples and now - self._samples[0].at > KEPT_SECONDS:
            self._samples.popleft()
        return min(self._samples, default=None)


class OtherHost:
    """One host that sends its news here."""

    def __init__(self, name: str, member: Member) -> None:
        self.name, self.boot, self.address = name, member.hello.boot, member.address
        self.local_world = member.hello.local_world
        self.ranks: set[int] = set()
        self.clock = HostClock()
        self.over = False
        self.pinged = 0.0
        self.link = FleetLink(name, member.link, self._take_pong)
        self.stacks: dict[int, str] = {}
        self.requested: dict[int, float] = {}
        """Ranks whose stacks were asked for, and when."""

    def _take_pong(self, line: bytes) -> bool:
        """In the reading thread: the time counts."""
        if not line.startswith(b'{"pong"'):
            return False
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
            news = msgspec.json.decode(line, type=HostNews)
            if news.pong is not None:
                self.clock.add(news.pong[0], self.link.heard_at, news.pong[1])
        return True

    @property
    def state(self) -> LinkState:
        if self.link.ended:
            return "over" if self.over else "cut" if self.link.cut else "closed"
        return "over" if self.over else "live"

    def silent_seconds(self, now: float) -> float:
        return max(0.0, now - self.link.heard_at)


class LeaderPost:
    """Listens until it is closed. `take_news` is to be called again and again."""

    def __init__(self, meeting: Meeting, world: int) -> None:
        """Raises: OSError, when no port is free."""
        self.world = world
        self.hosts: dict[str, OtherHost] = {}
        self.notes: dict[str, None] = {}
        self._inbox: queue.SimpleQueue[Member] = queue.SimpleQueue()
        self._owner: dict[int, str] = {}
        ports = leader_ports(meeting.key, meeting.context.leader_port)
        self._listener = LeaderListener(meeting.key, ports, self._inbox.put, listening_address(meeting.context))
        self._listener.open()

    # ---- hosts

    def take_news(self, now: float, own_ranks: Sequence[int]) -> Iterator[tuple[OtherHost, RankNews]]:
        """What the other hosts have sent of their ranks. ``own_ranks``: those of this host; no other speaks of them."""
        self._admit_waiting()
        for host in self.hosts.values():
            if now - host.pinged > PING_SECONDS and not host.link.ended:
                host.pinged = now
                host.link.send(FleetOrder(ping=time.monotonic()))
        limit = time.monotonic() + READING_SECONDS
        for host in list(self.hosts.values()):
            while (line := host.link.receive()) is not None:
                news = self._read(host, line)
                if news is not None and self._may_speak(host, news.rank, own_ranks):
                    yield host, news
                if time.monotonic() > limit:
                    return

    def _admit_waiting(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._admit(self._inbox.get_nowait())

    def _admit(self, member: Member) -> None:
        hello = member.hello
        name = strip_control_chars(hello.host, 80) or member.address
        boots = [host for host in self.hosts.values() if host.name.partition("~")[0] == name]
        same = next((host for host in boots if host.boot == hello.boot), None)
        if same is None and boots:
            name = f"{name}~{len(boots) + 1}"
        refused = ""
        if hello.version != PROTOCOL:
            refused = "another version of doctor than on the leading host"
        elif hello.world != self.world:
            refused = filled("its world size is {0}, on the leading host {1}", hello.world, self.world)
        elif same is None and len(self.hosts) >= MOST_HOSTS:
            refused = filled("more than {0} hosts", MOST_HOSTS)
        if refused:
            self.notes[filled("{0}: not taken in: {1}", name, refused)] = None
            self._refuse(member.link, refused)
            return
        host = OtherHost(same.name if same else name, member)
        if same is not None:
            same.link.wake_and_close(0.0)
            host.ranks = same.ranks
        self.hosts[host.name] = host

    @staticmethod
    def _refuse(link: socket.socket, why: str) -> None:
        with contextlib.suppress(OSError):
            link.settimeout(1.0)
            link.sendall(msgspec.json.encode(FleetOrder(refused=why)) + b"\n")
        link.close()

    def _read(self, host: OtherHost, line: bytes) -> RankNews | None:
        try:
            message = msgspec.json.decode(line, type=HostNews)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            self.notes[filled("{0}: it sent what no watch sends, and is heard no more", host.name)] = None
            host.link.wake_and_close(0.0)
            return None
        host.over = host.over or message.over
        for rank, stack in (message.stacks or {}).items():
            if rank in host.requested:
                host.stacks[rank] = stack
        return message.news

    def _may_speak(self, host: OtherHost, rank: int, own_ranks: Sequence[int]) -> bool:
        """Whether a rank is this host's: it was the first to tell of it."""
        if not 0 <= rank < self.world:
            return False
        owner = "this host" if rank in own_ranks else self._owner.setdefault(rank, host.name)
        if owner != host.name:
            self.notes[filled("Rank {0} was reported by {1} too, which was not taken in", rank, host.name)] = None
            return False
        host.ranks.add(rank)
        return True

    @property
    def anyone_lives(self) -> bool:
        """Whether another host still has ranks that run, for all that is known."""
        return any(host.state == "live" for host in self.hosts.values())

    def host_of(self, rank: int) -> OtherHost | None:
        return self.hosts.get(self._owner.get(rank, ""))

    # ---- stacks

    def request_stacks(self, ranks: Sequence[int]) -> None:
        """Asks the hosts for the stacks of those of these ranks that are theirs; `take_stack` gives them."""
        now = time.monotonic()
        by_host: dict[str, list[int]] = {}
        for rank in ranks:
            host = self.host_of(rank)
            if (
                host is not None
                and host.state == "live"
                and now - host.requested.get(rank, -STACK_SECONDS) > STACK_SECONDS
            ):
                by_host.setdefault(host.name, []).append(rank)
                host.requested[rank] = now
                host.stacks.pop(rank, None)
        for name, host_ranks in by_host.items():
            self.hosts[name].link.send(FleetOrder(stacks=tuple(host_ranks)))

    def take_stack(self, rank: int) -> str | None:
        """The stack of a rank of another host; None where it did not come in time. Raises: StackPending."""
        host = self.host_of(rank)
        if host is None or host.state != "live":
            return ""
        if rank in host.stacks:
            host.requested.pop(rank, None)
            return host.stacks.pop(rank)
        if rank not in host.requested:
            self.request_stacks([rank])
            raise StackPending
        if time.monotonic() - host.requested[rank] < STACK_SECONDS:
            raise StackPending
        del host.requested[rank]
        return None

    # ---- the end

    def cut_ranks(self, now: float) -> dict[str, tuple[int, ...]]:
        """By host: the ranks of those whose kernels acknowledge nothing any more."""
        return {
            host.name: tuple(sorted(host.ranks))
            for host in self.hosts.values()
            if host.state == "cut" and host.ranks and host.silent_seconds(now) > SETTLING_SECONDS
        }

    def blocks(self, world: int, placed: Collection[int]) -> dict[int, str]:
        """By rank: the host on which it must be, as its launcher gives each host so many ranks in their order.

        ``placed``: all ranks whose hosts are known.
        """
        names: dict[int, str] = {}
        for host in self.hosts.values():
            block = block_around(host.ranks, host.local_world, world, {*placed} - host.ranks)
            names.update({rank: names.get(rank, host.name) for rank in block})
        return names

    def sentences(self) -> list[str]:
        texts = list(self.notes)
        for host in self.hosts.values():
            if host.state == "closed":
                who = rank_names(sorted(host.ranks)) if host.ranks else "its ranks"
                texts.append(filled("{0}: its watch has ended; from then on nothing is known of {1}.", host.name, who))
        return texts

    def announce(self, verdict: FleetVerdict) -> None:
        for host in self.hosts.values():
            host.link.send(FleetOrder(verdict=verdict))

    def close(self) -> None:
        """Ends all connections; what waits to be sent is sent first."""
        self._listener.close()
        self._admit_waiting()
        for host in self.hosts.values():
            host.link.wake_and_close()
