"""Processes of one launch on one host share one verdict: one of them checks, the rest exit with its code.

Whoever holds a lock in a folder of this user's own is the host's leader, and listens on a socket beside it. The kernel
releases both when the process ends, however it ends. The other ranks connect, send their rank, and wait.

No verdict is stored: only a running leader sends it, once to each rank. So one of an earlier preflight of the same
job cannot be mistaken for this one's. A leader waits a moment for late ranks; a rank that connects after that, or finds
no leader, or a folder that it cannot trust, checks the host itself. That costs time, and is never wrong.
If a leader dies, the ranks that wait for it report *unknown*.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import selectors
import socket
import stat
import struct
import time
from collections.abc import Mapping

import msgspec

from doctor.engine.sanitize import printable, strip_control_chars
from doctor.engine.texts import filled
from doctor.environment.job_context import JobContext, Scope
from doctor.remote.runtime.reading import link_at

POLL_SECONDS = 0.05
LEADER_WAIT_SECONDS = 5.0
"""Seconds that a rank that is not the host's first waits for a leader before it checks the host itself."""
LINGER_SECONDS = 5.0
"""Seconds that a leader stays for ranks that it knows of; a tenth of it for those that it can only guess."""
UNKNOWN_EXIT_CODE = 12
LEADER_DIED = "the process that checks this host for all its ranks ended early"
_MAX_LINE_CHARS = 4000
_CREDENTIALS = struct.Struct("3i")


class UntrustedFolder(Exception):
    """A folder that somebody else may write to: which, and why."""


class LeaderLock:
    """The leader's lock; the kernel gives it up with the process."""

    def __init__(self, file: int) -> None:
        self.file = file

    def close(self) -> None:
        os.close(self.file)


class LockFolder:
    """An open folder, and the name of what is in it for one launch."""

    def __init__(self, folder: int, key: str) -> None:
        self._folder, self._key = folder, key
        self._socket = f"/proc/self/fd/{folder}/{key}.socket"
        """Through the descriptor: no other folder can take its place, and no path is too long for a socket."""

    def try_lock(self) -> LeaderLock | None:
        """None while another one has it."""
        while True:
            file = self._open(os.O_CREAT)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                return None
            if self._is_current(file):
                return LeaderLock(file)
            os.close(file)  # its leader took it away as we opened it

    def listen(self) -> socket.socket:
        """For the holder of the lock. Raises: OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._key}.socket", dir_fd=self._folder)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self._socket)
            listener.listen(1024)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        return listener

    def connect(self, until: float) -> socket.socket | None:
        """None where no process listens."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(max(0.01, until - time.monotonic()))
        try:
            link.connect(self._socket)
        except OSError:
            link.close()
            return None
        return link

    def leader_died(self, until: float) -> bool:
        """Whether the leader died: one that ends in order takes its lock away. False as soon as it did."""
        while True:
            try:
                file = self._open(0)
            except FileNotFoundError:
                return False
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return self._is_current(file)
            except BlockingIOError:
                if time.monotonic() >= until:
                    return False
                time.sleep(0.01)
            finally:
                os.close(file)

    def remove_files(self) -> None:
        """The leader's end: from now on other processes find no leader to wait for."""
        for name in (f"{self._key}.socket", f"{self._key}.lock"):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._folder)

    def close(self) -> None:
        os.close(self._folder)

    def _open(self, flags: int) -> int:
        flags |= os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(f"{self._key}.lock", flags, 0o600, dir_fd=self._folder)

    def _is_current(self, file: int) -> bool:
        """Whether the file is still the one that others open."""
        try:
            return os.path.samestat(
                os.fstat(file), os.stat(f"{self._key}.lock", dir_fd=self._folder, follow_symlinks=False)
            )
        except FileNotFoundError:
            return False


def open_lock_folder(key: str, environ: Mapping[str, str]) -> LockFolder:
    """The user's own folder, made if need be. Raises: OSError, Untrusted."""
    name = f"doctor-{os.geteuid()}"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    base = runtime if runtime.startswith("/") and _is_private(runtime) else environ.get("TMPDIR") or "/tmp"
    path = f"{base.rstrip('/')}/{name}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(folder)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            has = filled("user {0}, mode {1}", status.st_uid, f"{stat.S_IMODE(status.st_mode):04o}")
            raise UntrustedFolder(
                filled("{0} belongs to {1}; expected user {2}, mode 0700", printable(path), has, os.geteuid())
            )
    except BaseException:
        os.close(folder)
        raise
    return LockFolder(folder, key)


def _is_private(path: str) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o022


class LeaderVerdict(msgspec.Struct, frozen=True):
    """The verdict of the host's leader, or why it is unknown."""

    code: int
    line: str = ""
    """The leader's one line."""
    reason: str = ""
    """Exit code if the verdict was never received."""


class Leader:
    """The process that checks the host. `announce` sends its verdict; use it as a context, or call `close`."""

    def __init__(
        self,
        note: str = "",
        lock_folder: LockFolder | None = None,
        lock: LeaderLock | None = None,
        follower_count: int = -1,
    ) -> None:
        """Alone without a room. ``follower_count``: how many will come; -1: unknown. Raises: OSError."""
        self.note = note
        """Why this process checks although another one may do so as well; for the report."""
        self._lock_folder, self._lock, self._follower_count = lock_folder, lock, follower_count
        self._listener = lock_folder.listen() if lock_folder else None
        self._announced = False

    def __enter__(self) -> Leader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def announce(self, code: int, line: str, until: float | None = None) -> None:
        """Sends the verdict to waiting ranks, and to late ones for a moment; not beyond ``until``."""
        if self._listener is None or self._announced:
            return
        self._announced = True
        linger = LINGER_SECONDS if self._follower_count >= 0 else LINGER_SECONDS / 10
        end = time.monotonic() + linger
        answer = json.dumps({"code": code, "line": line[:_MAX_LINE_CHARS]}).encode() + b"\n"
        _VerdictServer(self._listener, answer, self._follower_count).serve(end if until is None else min(end, until))

    def close(self) -> None:
        """Waiting ranks get *unknown*. New ranks can no longer connect."""
        if self._listener is None or self._lock_folder is None or self._lock is None:
            return
        self.announce(UNKNOWN_EXIT_CODE, "", until=0.0)
        self._lock_folder.remove_files()
        self._listener.close()
        self._lock.close()
        self._lock_folder.close()
        self._listener = None


class _VerdictServer:
    """Answers each rank once."""

    def __init__(self, listener: socket.socket, answer: bytes, follower_count: int) -> None:
        self._listener, self._answer, self._follower_count = listener, answer, follower_count
        self._served: set[str] = set()
        self._connections: set[socket.socket] = set()

    def serve(self, end: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while True:
                complete = 0 <= self._follower_count <= len(self._served)
                wait_seconds = 0.0 if complete else max(0.0, end - time.monotonic())
                ready = selector.select(wait_seconds)
                if not ready and (complete or time.monotonic() >= end):
                    break
                for key, _ in ready:
                    self._handle(key.fileobj, selector)  # type: ignore[arg-type]
        for connection in self._connections:
            connection.close()

    def _handle(self, connection: socket.socket, selector: selectors.BaseSelector) -> None:
        if connection is self._listener:
            with contextlib.suppress(OSError):
                follower, _ = self._listener.accept()
                follower.setblocking(False)
                if _owner(follower) == os.geteuid():
                    selector.register(follower, selectors.EVENT_READ)
                    self._connections.add(follower)
                else:
                    follower.close()
            return
        selector.unregister(connection)
        self._connections.discard(connection)
        with connection, contextlib.suppress(OSError):
            name = connection.recv(200).decode("utf-8", "replace")
            if name in self._served:
                connection.sendall(b'{"again": true}\n')
            elif name:
                connection.sendall(self._answer)
                self._served.add(name)


def join(
    context: JobContext,
    chosen: Scope,
    until: float,
    *,
    environ: Mapping[str, str],
    about: str = "",
    patience: float = LEADER_WAIT_SECONDS,
) -> Leader | LeaderVerdict:
    """Leads the processes of this host, or waits for the verdict of the one that does; not beyond ``until``.

    ``about``: what a verdict depends on beside the host, such as the words of the command line; those that differ in it
    do not wait for each other. A leader checks its host, or the fleet if ``chosen`` is ``cluster``.
    """
    if not context.shares_host:
        return Leader()
    try:
        lock_folder = open_lock_folder(_key(context, environ, about), environ)
    except (OSError, UntrustedFolder) as error:
        why = strip_control_chars(getattr(error, "strerror", None) or str(error))
        return Leader(filled("the host's ranks could not elect a leader, so each checks the host: {0}", why))
    try:
        return _lead_or_follow(
            lock_folder, context, chosen, until, time.monotonic() + (patience if chosen == "follower" else 0.0)
        )
    except OSError as error:
        lock_folder.close()
        return Leader(
            filled(
                "the host's ranks could not elect a leader, so each checks the host: {0}",
                strip_control_chars(str(error)),
            )
        )


def _lead_or_follow(
    lock_folder: LockFolder, context: JobContext, chosen: Scope, until: float, patient: float
) -> Leader | LeaderVerdict:
    follower_count = context.local_world_size - 1 if context.local_world_size else -1
    name = _name(context)
    while True:
        now = time.monotonic()
        if now >= patient and (lock := lock_folder.try_lock()):
            note = (
                ""
                if chosen != "follower"
                else "the first rank of this host did not start in time, so this rank checked the host"
            )
            try:
                return Leader(note, lock_folder, lock, follower_count)
            except OSError:
                lock.close()
                raise
        if context.rank == 0:  # no other process checks the fleet
            lock_folder.close()
            return Leader()
        connection = lock_folder.connect(min(until, now + POLL_SECONDS * 20))
        if connection:
            with connection:
                verdict = _receive_verdict(lock_folder, connection, name, until)
            if verdict:
                lock_folder.close()
                return verdict
        if time.monotonic() >= until:
            lock_folder.close()
            return LeaderVerdict(
                UNKNOWN_EXIT_CODE, reason="no process of this host reported a result in the remaining time"
            )
        time.sleep(POLL_SECONDS)


def _receive_verdict(
    lock_folder: LockFolder, connection: socket.socket, name: str, until: float
) -> LeaderVerdict | None:
    """The leader's verdict; None when there is none to be had from it, and another one will lead."""
    data = b""
    try:
        connection.settimeout(max(0.01, until - time.monotonic()))
        connection.sendall(name.encode())
        while not data.endswith(b"\n") and (more := connection.recv(65536)):
            data += more
            connection.settimeout(max(0.01, until - time.monotonic()))
    except TimeoutError:
        return LeaderVerdict(
            UNKNOWN_EXIT_CODE, reason="the process that checks this host for all its ranks did not finish in time"
        )
    except OSError:
        data = b""
    try:
        response = msgspec.json.decode(data, type=dict)
    except msgspec.DecodeError:
        response = {}
    if response.get("again"):
        return None
    if isinstance(response.get("code"), int) and 0 <= response["code"] <= 255:
        line = strip_control_chars(str(response.get("line", "")), _MAX_LINE_CHARS)
        return LeaderVerdict(
            response["code"], line, "" if line or response["code"] != UNKNOWN_EXIT_CODE else LEADER_DIED
        )
    return (
        LeaderVerdict(UNKNOWN_EXIT_CODE, reason=LEADER_DIED)
        if lock_folder.leader_died(min(until, time.monotonic() + 1.0))
        else None
    )


def _name(context: JobContext) -> str:
    """Which of the host's processes this is, the same in every preflight of its script."""
    if context.rank is not None:
        return filled("rank {0}", context.rank)
    return "scheduler" if context.is_scheduler_process else f"child of {os.getppid()}"


def _key(context: JobContext, environ: Mapping[str, str], about: str) -> str:
    """One for each launch, host, and way of looking. Hosts of a test, or of containers, may share their folders."""
    network = link_at("/proc/self/ns/net")
    ours = [f"{name}={environ[name]}" for name in sorted(environ) if name.startswith("DOCTOR_")]
    hosts = (os.uname().nodename, context.scheduler_host_name, network)
    parts = [context.identity, context.rank_table_path, *hosts, str(os.geteuid()), about, *ours]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _owner(connection: socket.socket) -> int:
    _, owner, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(owner)
