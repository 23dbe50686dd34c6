"""What is said of a rank beside what it does: which file, process, lock or condition it waits for, and where. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.engine.texts import filled, joined
from doctor.remote.runtime.stack_frames import is_of_program
from doctor.watch.attach.rank_report import Frame, Kind, ProcessReport

_HOLDS: dict[Kind, tuple[str, str]] = {
    "loader": (
        "waits for its data loader, whose worker (pid {0}) is in {1}",
        "waits for its data loader, whose worker (pid {0}) is stopped",
    ),
    "child": ("waits for a child process: pid {0} is in {1}", "waits for a child process: pid {0} is stopped"),
    "sleep": ("sleeps; pid {0} below it is in {1}", "sleeps; pid {0} below it is stopped"),
}
"""What is said of a rank that waits, or may wait, for a process below it, which is in a call, or stopped."""
_HOLDS_WORKER = frozenset({"read", "write", "open", "stat", "lock", "sync", "recv", "connect", "sleep", "page fault"})


def with_details(rank: ProcessReport, kind: Kind, text: str, still: bool) -> str:
    """``text`` with what the rank waits for, as far as that is known. ``still``: it did the same all the time."""
    last = next(look for look in reversed(rank.looks) if look is not None)
    if kind in ("blocked", "file") and (wait := rank.file_wait) is not None:
        text = filled("is held by the kernel ({0}) in {1}{2}", last.wchan or "uninterruptible", last.call, wait.text)
        text = filled("is blocked in {0}{1}", last.call, wait.text) if kind == "file" else text
    if kind in _HOLDS and (held := held_process(rank, kind)):
        text = filled(_HOLDS[kind][not held[1]], *held)
    if rank.polled and kind in ("sleep", "unknown", "wait"):
        text = filled("{0}; it looks again and again: {1}", text, ", ".join([rank.polled[0], *rank.polled[1]]))
    text = filled("{0}{1}", text, _where(rank.frames))
    tells = kind in ("wait", "file") or (kind == "idle" and any(stopped for _, stopped in rank.answering))
    if rank.answering and still and tells and last.call != "lock":
        names = (filled("{0}, which is stopped", name) if stopped else name for name, stopped in rank.answering)
        text = filled("{0}; at its other end is {1}", text, joined("; ", names))
    if rank.lock_owners and (kind == "sleep" or (kind == "file" and last.call == "lock")):
        text = filled("{0}; a file that it has open is locked by {1}", text, rank.lock_owners[0][1])
    return text


def held_process(rank: ProcessReport, kind: Kind) -> tuple[int, str] | None:
    """Of a rank that waits for one below it, the one that is held up, and in what (empty: it is stopped).

    Idle workers read at a pipe; one beside a rank that sleeps may also read or sleep elsewhere.
    """
    calls = _HOLDS_WORKER - ({"read", "recv", "connect", "sleep"} if kind == "sleep" else set())
    stopped = next((pid for pid, state, _, _ in rank.children if state in ("T", "t")), 0)
    if stopped:
        return stopped, ""
    for pid, state, call, file in rank.children:
        if state != "Z" and call in calls and (call == "write" or "pipe" not in file):
            return pid, filled("{0} of {1}", call, file) if file else call
    return None


def asker_text(rank: ProcessReport) -> str:
    """Who waits for its answer."""
    who, since = rank.requests[0]
    name = who or filled("a client whose connection it has not accepted")
    if since < 0:
        return filled("{0} waits for its answer", name)
    return filled("{0} has waited for its answer for {1} s", name, f"{since:.0f}")


def _where(frames: Sequence[Frame]) -> str:
    """The innermost line of the program itself, in brackets."""
    for name, path, line in frames:
        if is_of_program(path):
            return filled(" ({0} at {1}:{2})", name, path.rpartition("/")[2], line)
    return ""
