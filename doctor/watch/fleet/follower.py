"""A host of a watched job that another one leads: sends its news there, answers it, and hears what was decided."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque

import msgspec

from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.remote.runtime.reading import link_at, read_text
from doctor.smoke.rendezvous.link import Hello
from doctor.smoke.rendezvous.reachability import RendezvousError, attempt_connection
from doctor.watch.fleet.meeting import Meeting
from doctor.watch.fleet.messages import PROTOCOL, FleetOrder, FleetVerdict, HostNews, Outbox
from doctor.watch.fleet.sockets import FleetLink

SEND_SECONDS = 0.25
"""Seconds between two sendings; the end of a rank goes at once."""
ALIVE_SECONDS = 1.0
"""Seconds without news after which the leader gets a sign that this host is there."""
QUICK_TRIES, QUICK_PAUSE, SLOW_PAUSE = 40, 0.25, 5.0
"""How often the leader is looked for, and the seconds between: first, and later on."""
UNREACHED_SECONDS = 20.0
"""Seconds without a leader after which it is said that there is none."""


class FollowingHost:
    """Connects by a thread of its own, and again where the connection is lost."""

    def __init__(self, meeting: Meeting, world: int, rank: int, local_world: int, outbox: Outbox) -> None:
        """``outbox``: with what was already seen of the ranks."""
        self.meeting, self.outbox = meeting, outbox
        self.error = ""
        """Why the leader was not reached the last time."""
        self.verdict: FleetVerdict | None = None
        self.refused = ""
        self.was_connected = False
        self.began = time.monotonic()
        self.orders: deque[tuple[int, ...]] = deque()
        """Ranks whose stacks the leader asks for."""
        self._stacks: deque[dict[int, str]] = deque()
        self._link: FleetLink | None = None
        self._over = False
        self._wake, self._stop = threading.Event(), False
        boot = read_text("/proc/sys/kernel/random/boot_id").strip()
        self._hello = Hello(
            rank=rank,
            world=world,
            host=meeting.context.launcher_host_name or os.uname().nodename,
            pid=os.getpid(),
            boot=f"{boot} {link_at('/proc/self/ns/net')}",  # containers of one machine may have one name
            local_world=local_world,
            version=PROTOCOL,
            use="lines",
        )
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    @property
    def connected(self) -> bool:
        """Whether the leader hears this host, so that it is the one that decides."""
        return self._link is not None and not self._link.ended

    @property
    def leaderless(self) -> bool:
        """Whether this host has to decide for itself: the leader was not there for a while, or is gone."""
        if self.connected or self.verdict is not None:
            return False
        return self.was_connected or bool(self.refused) or time.monotonic() - self.began > UNREACHED_SECONDS

    def reason(self) -> str:
        """Why this host decides for itself."""
        if self.refused:
            return filled("the leading host does not take it in: {0}", self.refused)
        where = self.error or self.meeting.context.leader_location
        return filled("the connection to the leading host was lost: {0}", where) if self.was_connected else where

    # ---- from the thread that looks at the ranks

    def answer(self, stacks: dict[int, str]) -> None:
        self._stacks.append(stacks)
        self._wake.set()

    def flush(self) -> None:
        """Sends at once what is new."""
        self._wake.set()

    def finish(self) -> None:
        """All ranks of this host have ended."""
        self._over = True
        self._wake.set()

    def close(self) -> None:
        self._stop = True
        self._wake.set()
        self._thread.join(2.0)
        if self._link is not None:
            self._link.wake_and_close()

    # ---- the thread

    def _work(self) -> None:
        tries = 0
        while not self._stop and self.verdict is None and not self.refused:
            outcome = attempt_connection(self.meeting.context, self.meeting.key, self._hello)
            if isinstance(outcome, RendezvousError):
                self.error, tries = outcome.text, tries + 1
                self._pause(QUICK_PAUSE if tries < QUICK_TRIES else SLOW_PAUSE)
                continue
            tries, self.error = 0, ""
            self._converse(outcome)
            self._pause(QUICK_PAUSE)

    def _pause(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while not self._stop and time.monotonic() < limit:
            self._wake.wait(min(0.25, seconds))
            self._wake.clear()

    def _converse(self, connection: socket.socket) -> None:
        self.outbox.start_again()
        told_over, sent_at = False, 0.0
        self._link = link = FleetLink("leader", connection, self._take_order)
        self.was_connected = True
        while not link.ended and not self._stop:
            lines = [HostNews(news=news) for news in self.outbox.take()]
            while self._stacks:
                lines.append(HostNews(stacks=self._stacks.popleft()))
            if self._over and not told_over:
                told_over = True
                lines.append(HostNews(over=True))
            now = time.monotonic()
            if not lines and now - sent_at > ALIVE_SECONDS:
                lines.append(HostNews())
            if not all(link.send(line) for line in lines):
                break
            sent_at = now if lines else sent_at
            self._wake.wait(SEND_SECONDS)
            self._wake.clear()
        if not self._stop:
            link.wake_and_close(0.0)

    def _take_order(self, line: bytes) -> bool:
        try:
            order = msgspec.json.decode(line, type=FleetOrder)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return True
        if order.ping and self._link is not None:
            pong = HostNews(pong=(order.ping, time.monotonic()))
            self._link.send(pong)
        if order.stacks and len(self.orders) < 16:
            self.orders.append(order.stacks)
        if order.verdict is not None:
            headline, place = (strip_control_chars(text, 400) for text in (order.verdict.headline, order.verdict.place))
            self.verdict = msgspec.structs.replace(order.verdict, headline=headline, place=place)
        if order.refused:
            self.refused = strip_control_chars(order.refused, 200)
        return True
