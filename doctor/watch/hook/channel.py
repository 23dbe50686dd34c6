"""The file of a process's digests, one line of JSON each. Python 3.8; torch need not be there.

A part of `doctor.watch.probe` and of the hook.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import linecache
import os
import re
import socket
import sys
import threading
import time
from collections import deque
from typing import Any, Callable

from .digest_folder import FOLDER

try:
    import torch
except Exception:  # a broken torch is no matter of doctor: what needs none still works
    torch = None

VERSION = 1
MAX_FILE = 64 << 20
"""Bytes that a process writes at most; the last line then says that it was cut."""
MAX_FAILURES = 20
"""Calls that fail until the probe ends itself."""
MAX_PENDING = 256
MAX_LINES = 32
MAX_TEXT = 200
"""Characters of a line of the program."""
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python|/data-hooks/|doctor-watch|/bin/[^/.]+$|^<")
"""Files whose frames are none of the program's."""
RANK_VARIABLES = (
    "RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID", "PMI_RANK", "PMIX_RANK",
    "FLUX_TASK_RANK", "RANK_ID", "MS_NODE_ID", "SLURM_PROCID",
)  # fmt: skip
"""Those of `doctor.remote.runtime.rank_variables`, which is not beside this file in a job."""


class Channel:
    """The file of this process. A forked child gets one of its own; a whole line is one write."""

    def __init__(self, folder: str) -> None:
        self.folder, self.path, self.pid, self.file = folder, "", 0, -1
        self.identity: tuple[int, int] | None = None
        self.written = self.failures = 0
        self.rank: int | None = None
        self.groups: dict[Any, int] = {}
        self.counts: dict[Any, Any] = {}
        self.pending: deque[tuple[Any, Any, Callable[[list[int]], None]]] = deque()
        self.lost = 0
        self.lines: set[tuple[str, str]] = set()
        """What the program makes or calls, and where, as far as it was written."""

    def open(self) -> None:
        """Makes the file of the process that calls."""
        pid, self.rank = os.getpid(), None
        self.written, self.groups, self.counts, self.pending = 0, {}, {}, deque()
        self.path = os.path.join(self.folder, f"{socket.gethostname()[:64]}-{pid}-{time.time_ns()}.probe")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        self.file = os.open(self.path, flags, 0o600)
        self.identity = _file_of(self.file)
        self.write("process", v=VERSION, pid=pid, parent=os.getppid(), host=socket.gethostname()[:64])
        self.pid = pid

    def write(self, kind: str, **values: Any) -> None:
        """Appends one record; nothing once the file is full, cannot be written, or the probe has ended itself."""
        if self.file < 0 or self.written > MAX_FILE:
            return
        values["k"], values["r"], values["ms"] = kind, self.rank_now(), time.time_ns() // 1000000
        line = json.dumps(values, separators=(",", ":")).encode("ascii") + b"\n"
        self.written += len(line)
        if self.written > MAX_FILE:
            line = b'{"k":"cut","r":%d,"ms":0}\n' % self.rank_now()
        try:
            # A program that has closed it may have another one by this number.
            if _file_of(self.file) != self.identity:
                self.file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            os.write(self.file, line)
        except OSError as error:
            self.file = -1
            with contextlib.suppress(OSError):
                os.write(2, f"doctor watch: process {os.getpid()}: no more digests: {error.strerror}\n".encode())

    def note_line(self, name: str, **values: Any) -> None:
        """Writes once from which line of the program a call comes: the innermost one outside of libraries.

        With ``values``, which are written beside it, the text of the line, too.
        """
        frame = sys._getframe(1)
        while frame.f_back and LIBRARY.search(frame.f_code.co_filename):
            frame = frame.f_back
        line = (name[:60], f"{os.path.basename(frame.f_code.co_filename)[:60]}:{frame.f_lineno}")
        if line not in self.lines and len(self.lines) < MAX_LINES and not LIBRARY.search(frame.f_code.co_filename):
            self.lines.add(line)
            if values:
                values["text"] = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()[:MAX_TEXT]
            self.write("line", n=line[0], at=line[1], **values)

    def note_seed(self, name: str, seed: Any) -> None:
        """Writes once which line of the program seeds a generator, and with what number."""
        self.note_line(name, seed=str(seed)[:40] if isinstance(seed, int) else "")

    def rank_now(self) -> int:
        """This process's global rank; -1 where nothing says it yet."""
        if self.rank is not None:
            return self.rank
        distributed = getattr(torch, "distributed", None)
        if distributed and distributed.is_available() and distributed.is_initialized():
            self.rank = int(distributed.get_rank())
            return self.rank
        for name in RANK_VARIABLES:
            text = os.environ.get(name, "")
            if text.isdigit() and len(text) < 8:
                return int(text)
        return -1

    def number(self, *key: Any) -> int:
        """How often this was asked before: the n-th call of one name is compared with the n-th of other ranks."""
        counter = self.counts.get(key)
        if counter is None:
            if len(self.counts) > 100000:
                return -1
            counter = self.counts.setdefault(key, itertools.count())
        return int(next(counter))

    def group(self, group: Any) -> int:
        """The number under which this file names a group; its ranks are written once. 0 stands for all ranks."""
        if group is None:
            return 0
        key = (
            tuple(group)
            if isinstance(group, (list, tuple, range))
            else (str(getattr(group, "group_name", "") or type(group).__name__), id(group))
        )
        number = self.groups.get(key)
        if number is None:
            ranks, name = _group_ranks(group)
            number = self.groups[key] = len(self.groups) + 1
            self.write("group", id=number, ranks=ranks, n=name)
        return number

    def later(self, digest_words: Any, use: Callable[[list[int]], None]) -> None:
        """Calls ``use`` with these numbers of a device, once they have come from it; waits for nothing."""
        module = getattr(torch, digest_words.device.type, None)
        copied = torch.empty(digest_words.shape, dtype=digest_words.dtype, pin_memory=True)
        copied.copy_(digest_words, non_blocking=True)
        event = module.Event()
        event.record()
        self.pending.append((event, copied, use))
        if len(self.pending) > MAX_PENDING:
            self.pending.popleft()
            self.lost += 1

    def drain(self, wait: bool = False) -> None:
        """Writes what has come from devices since."""
        while self.pending and (wait or self.pending[0][0].query()):
            event, copied, use = self.pending.popleft()
            if wait:
                event.synchronize()
            use(copied.tolist())

    def failed(self, call: str) -> None:
        """Notes that a call failed; after many, the probe writes no more."""
        self.failures += 1
        error = sys.exc_info()[1]
        self.write("failed", n=call, text=(f"{type(error).__name__}: {error}")[:200])
        if self.failures >= MAX_FAILURES:
            self.write("ended")
            self.file = -1


def _file_of(descriptor: int) -> tuple[int, int] | None:
    try:
        about = os.fstat(descriptor)
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _group_ranks(group: Any) -> tuple[list[int], str]:
    """The global ranks of a process group, a one-dimensional DeviceMesh or a list; and its name, if it has one."""
    if isinstance(group, (list, tuple, range)):
        return [int(rank) for rank in group], ""
    name = ""
    if hasattr(group, "get_group") and hasattr(group, "mesh_dim_names"):
        name = "/".join(group.mesh_dim_names or ())
        group = group.get_group()
    ranks = [int(rank) for rank in torch.distributed.get_process_group_ranks(group)]
    description = str(getattr(group, "group_desc", "") or "")
    return ranks, (name or ("" if description == "undefined" else description))[:80]


_channel: Channel | None = None
_searched = False


def channel() -> Channel | None:
    """The file of this process, None where no ``doctor watch`` asks for one."""
    global _channel, _searched
    if _searched and (_channel is None or _channel.pid == os.getpid()):
        return _channel
    with _opening[-1]:  # one thread makes the file, the others wait for it
        if not _searched:
            folder = os.environ.get(FOLDER, "")
            if folder and os.path.isdir(folder):
                _channel = Channel(folder)
                atexit.register(_finish)
            _searched = True
        if _channel and _channel.pid != os.getpid():
            _channel.open()
    return _channel


_opening = [threading.Lock()]
# Another thread may hold it in the moment of a fork, and is not there in the child.
os.register_at_fork(after_in_child=lambda: _opening.append(threading.Lock()))


def _finish() -> None:
    try:
        if _channel and _channel.pid == os.getpid():
            _channel.drain(wait=True)
            _channel.write("end", lost=_channel.lost)
    except Exception:  # the program ends: the error cannot be reported any more
        return
