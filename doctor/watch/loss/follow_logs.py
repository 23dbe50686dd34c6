"""Reads logs to their end, or follows them while the training writes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from doctor.engine.loss_rules import is_warning
from doctor.engine.watch_summary import LossVerdict
from doctor.watch.loss.followed_file import FollowedFile
from doctor.watch.loss.log_watch import LogWatch

POLL_SECONDS = 0.5
JUDGE_SECONDS = 2.0
"""Between two judgements of what has come."""
STATUS_SECONDS = 60.0
LOSSES_IN_TURN = 64
"""Of one file, until the next one is read on."""


HEARTBEAT = "heartbeat"
"""Stands among the kinds of verdict."""


class Follower(msgspec.Struct, frozen=True):
    """The receivers of what is found; the clock and the wait are those of tests as well."""

    on_verdict: Callable[[LossVerdict], None] = lambda verdict: None
    """Each kind of verdict, when it is first made."""
    on_status: Callable[[float], None] = lambda seconds: None
    """Once a minute."""
    on_heartbeat: Callable[[], None] = lambda: None
    """HCCL's heartbeat has named a device; told once."""
    on_waiting: Callable[[str, str], None] = lambda path, reason: None
    """A file is not there, and why."""
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


def read_once(files: Sequence[FollowedFile], watch: LogWatch) -> dict[str, str]:
    """Reads each file to its end, stdin until it is closed. Returns: why a file could not be read, by its path."""
    failed = {file.path: reason for file in files if (reason := file.open())}
    unread = {number: file for number, file in enumerate(files) if file.path not in failed}
    while unread:
        before = {number: file.bytes_read for number, file in unread.items()}
        _read_in_turn(unread, lambda number, line: watch.add(number, line) is not None)
        idle = {number for number, file in unread.items() if file.bytes_read == before[number]}
        over = [number for number, file in unread.items() if file.ended or (number in idle and file.path != "-")]
        for number in over:
            for line in unread.pop(number).lines(final=True, most=1):
                watch.add(number, line)
        if not over and len(idle) == len(unread):
            time.sleep(0.05)
    watch.agreement.finish()
    return failed


def _read_in_turn(files: Mapping[int, FollowedFile], take: Callable[[int, bytes], bool], most: int = 1 << 26) -> bool:
    """What has come into the files, some losses of each by turns: ranks are compared step by step.

    ``take``: whether a line has a loss. Returns whether anything has come.
    """
    received = False
    turns = {number: file.lines(most=most) for number, file in files.items()}
    while turns:
        for number, lines in list(turns.items()):
            losses = 0
            for line in lines:
                received = True
                losses += take(number, line)
                if losses >= LOSSES_IN_TURN:
                    break
            else:
                del turns[number]
    return received


def follow(files: Sequence[FollowedFile], watch: LogWatch, follower: Follower, *, stop_on_error: bool = False) -> None:
    """Until all files have ended, an error is found with ``stop_on_error``, or KeyboardInterrupt.

    Each kind of verdict is reported once. Files that are not there yet are waited for.
    """
    announced: set[str] = set()
    waiting: set[str] = set()
    clock = follower.clock
    judged = status = clock()
    while True:
        quiet = not _read_all(files, watch, follower, waiting)
        ended = all(file.ended for file in files)
        if quiet and not ended:
            watch.live(clock())
            follower.pause(POLL_SECONDS)
        now = clock()
        if now - judged >= JUDGE_SECONDS or ended:
            judged = now
            verdicts = watch.verdicts(now, is_over=ended)
            for verdict in verdicts:
                if verdict.kind not in announced:
                    announced.add(verdict.kind)
                    follower.on_verdict(verdict)
            if watch.heartbeats and HEARTBEAT not in announced:
                announced.add(HEARTBEAT)
                follower.on_heartbeat()
            if stop_on_error and (watch.heartbeats or not all(map(is_warning, verdicts))):
                return
        if ended:
            return
        if now - status >= STATUS_SECONDS:
            status = now
            follower.on_status(now)


def _read_all(files: Sequence[FollowedFile], watch: LogWatch, follower: Follower, waiting: set[str]) -> bool:
    """What has come into the files; whether anything has. ``waiting``: files that were reported as not there."""
    absent = {file.path: reason for file in files if (reason := file.open()) and file.path not in waiting}
    numbered = dict(enumerate(files))
    received = _read_in_turn(
        numbered, lambda number, line: watch.add(number, line, follower.clock()) is not None, 1 << 24
    )
    for path, reason in absent.items():
        waiting.add(path)
        follower.on_waiting(path, reason)
    return received
