"""Processes of one launch on one host agree on one verdict: one of them looks, the others end as it ends.

Whoever holds a lock in a folder of this user's own is the host's leader, and listens on a socket beside it. The kernel
gives both up when the process ends, however it ends. The others connect, say which rank they are, and wait.

No verdict is kept: it is told by a living leader alone, once to each rank. So one from an earlier preflight of the same
job cannot be taken for this one's. A leader stays for a moment for those that are still to come; whoever comes later
than that, or finds no leader, or a folder that it cannot trust, looks for itself. That costs time, and is never wrong.
A leader that dies in its work leaves *unknown* to those that waited for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Mapping

import msgspec

from doctor.engine.sanitize import plain
from doctor.environment.context import Place, Scope
from doctor.preflight.leader_lock import Lock, Room, Untrusted, enter

POLL = 0.05
PATIENCE = 5.0
"""Seconds that one who is not the host's first rank waits for a leader to appear, before it looks for itself."""
LINGER = 5.0
"""Seconds that a leader stays for ranks that it knows of; a tenth of it for those that it can only guess."""
UNKNOWN = 12
DIED = "the process that looked at this host for all ended before it was done"
_LONGEST = 4000
_CREDENTIALS = struct.Struct("3i")


class Verdict(msgspec.Struct, frozen=True):
    """How the host's leader ended, or why nobody knows."""

    code: int
    line: str = ""
    """The leader's one line."""
    why: str = ""
    """Of a verdict that was never told."""


class Leader:
    """The process that looks. What it finds is told with `say`; use it as a context, or end it with `close`."""

    def __init__(self, note: str = "", room: Room | None = None, lock: Lock | None = None, others: int = -1) -> None:
        """Alone without a room. ``others``: how many will come; -1: not told. Raises: OSError."""
        self.note = note
        """Why it looks although another one may, too; for the report."""
        self._room, self._lock, self._others = room, lock, others
        self._listener = room.listen() if room else None
        self._said = False

    def __enter__(self) -> Leader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def say(self, code: int, line: str, until: float | None = None) -> None:
        """Tells all who wait, and those who come within a moment; not beyond ``until``, by the monotonic clock."""
        if self._listener is None or self._said:
            return
        self._said = True
        linger = LINGER if self._others >= 0 else LINGER / 10
        end = time.monotonic() + linger
        answer = json.dumps({"code": code, "line": line[:_LONGEST]}).encode() + b"\n"
        _Desk(self._listener, answer, self._others).serve(end if until is None else min(end, until))

    def close(self) -> None:
        """Who still waits is told that nothing is known. From the first step on nobody new can come."""
        if self._listener is None or self._room is None or self._lock is None:
            return
        self.say(UNKNOWN, "", until=0.0)
        self._room.leave()
        self._listener.close()
        self._lock.close()
        self._room.close()
        self._listener = None


class _Desk:
    """Answers each rank once."""

    def __init__(self, listener: socket.socket, answer: bytes, others: int) -> None:
        self._listener, self._answer, self._others = listener, answer, others
        self._served: set[str] = set()
        self._open: set[socket.socket] = set()

    def serve(self, end: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while True:
                complete = 0 <= self._others <= len(self._served)
                left = 0.0 if complete else max(0.0, end - time.monotonic())
                ready = selector.select(left)
                if not ready and (complete or time.monotonic() >= end):
                    break
                for key, _ in ready:
                    self._turn(key.fileobj, selector)  # type: ignore[arg-type]
        for link in self._open:
            link.close()

    def _turn(self, link: socket.socket, selector: selectors.BaseSelector) -> None:
        if link is self._listener:
            with contextlib.suppress(OSError):
                guest, _ = self._listener.accept()
                guest.setblocking(False)
                if _owner(guest) == os.geteuid():
                    selector.register(guest, selectors.EVENT_READ)
                    self._open.add(guest)
                else:
                    guest.close()
            return
        selector.unregister(link)
        self._open.discard(link)
        with link, contextlib.suppress(OSError):
            name = link.recv(200).decode("utf-8", "replace")
            if name in self._served:
                link.sendall(b'{"again": true}\n')
            elif name:
                link.sendall(self._answer)
                self._served.add(name)


def join(
    place: Place,
    chosen: Scope,
    until: float,
    *,
    environ: Mapping[str, str],
    about: str = "",
    patience: float = PATIENCE,
) -> Leader | Verdict:
    """Leads the processes of this host, or waits for the verdict of the one that does; not beyond ``until``.

    ``about``: what a verdict depends on beside the host, such as the words of the command line; those that differ in it
    do not wait for each other. A leader looks at its host, or at the fleet if ``chosen`` is ``cluster``.
    """
    if not place.shared:
        return Leader()
    try:
        room = enter(_key(place, environ, about), environ)
    except (OSError, Untrusted) as error:
        why = plain(getattr(error, "strerror", None) or str(error))
        return Leader(f"ranks of this host could not agree on one to look, so each does: {why}")
    try:
        return _settle(room, place, chosen, until, time.monotonic() + (patience if chosen == "follower" else 0.0))
    except OSError as error:
        room.close()
        return Leader(f"ranks of this host could not agree on one to look, so each does: {plain(str(error))}")


def _settle(room: Room, place: Place, chosen: Scope, until: float, patient: float) -> Leader | Verdict:
    others = place.local_world - 1 if place.local_world else -1
    name = _name(place)
    while True:
        now = time.monotonic()
        if now >= patient and (lock := room.lock()):
            note = "" if chosen != "follower" else "the first rank of this host did not appear, so this one looked"
            try:
                return Leader(note, room, lock, others)
            except OSError:
                lock.close()
                raise
        if place.rank == 0:  # the fleet has nobody else to look at it
            room.close()
            return Leader()
        link = room.connect(min(until, now + POLL * 20))
        if link:
            with link:
                verdict = _heard(room, link, name, until)
            if verdict:
                room.close()
                return verdict
        if time.monotonic() >= until:
            room.close()
            return Verdict(UNKNOWN, why="no process of this host said what it found in the time that was left")
        time.sleep(POLL)


def _heard(room: Room, link: socket.socket, name: str, until: float) -> Verdict | None:
    """The leader's verdict; None when there is none to be had from it, and another one will lead."""
    data = b""
    try:
        link.settimeout(max(0.01, until - time.monotonic()))
        link.sendall(name.encode())
        while not data.endswith(b"\n") and (more := link.recv(65536)):
            data += more
            link.settimeout(max(0.01, until - time.monotonic()))
    except TimeoutError:
        return Verdict(UNKNOWN, why="the process that looks at this host for all did not come to an end in time")
    except OSError:
        data = b""
    try:
        said = msgspec.json.decode(data, type=dict)
    except msgspec.DecodeError:
        said = {}
    if said.get("again"):
        return None
    if isinstance(said.get("code"), int) and 0 <= said["code"] <= 255:
        line = plain(str(said.get("line", "")), _LONGEST)
        return Verdict(said["code"], line, "" if line or said["code"] != UNKNOWN else DIED)
    return Verdict(UNKNOWN, why=DIED) if room.abandoned(min(until, time.monotonic() + 1.0)) else None


def _name(place: Place) -> str:
    """Which of the host's processes this is, the same in every preflight of its script."""
    if place.rank is not None:
        return f"rank {place.rank}"
    return "scheduler" if place.scheduler else f"child of {os.getppid()}"


def _key(place: Place, environ: Mapping[str, str], about: str) -> str:
    """One for each launch, host, and way of looking. Hosts of a test, or of containers, may share their folders."""
    try:
        network = os.readlink("/proc/self/ns/net")
    except OSError:
        network = ""
    host = environ.get("SLURMD_NODENAME", "") if place.kind == "slurm" else ""
    ours = [f"{name}={environ[name]}" for name in sorted(environ) if name.startswith("DOCTOR_")]
    parts = [place.identity, place.rank_table, os.uname().nodename, host, network, str(os.geteuid()), about, *ours]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _owner(link: socket.socket) -> int:
    _, owner, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(owner)
