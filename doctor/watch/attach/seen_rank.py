"""A rank that was looked at, and what follows for it from what it does. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection

import msgspec

from doctor.remote.runtime.stack_frames import is_of_program
from doctor.watch.attach.activity_text import held_process
from doctor.watch.attach.inspector.python_stacks import MOST_FRAMES
from doctor.watch.attach.rank_activity import AT_DEVICE, GIVES, HELPED, LONGEST_WAIT, OF_THREADS, SERVERS, Activity
from doctor.watch.attach.rank_report import Frame, Kind, ProcessReport

_MAY_GO_ON: frozenset[Kind] = frozenset({"wait", "child", "file", "loader", "collective", "idle", "unknown"})
"""What each step of a healthy job may be found in at every look."""


class SeenRank(msgspec.Struct, frozen=True):
    """A rank that has a process, and what it does."""

    host: str
    report: ProcessReport
    does: Activity

    @property
    def waits(self) -> bool:
        """It stands still in a wait for the others: in a collective, or, without a stack, for its own threads."""
        in_threads = self.does.kind == "wait" and not self.does.place
        return self.does.still and (self.does.kind in ("collective", "idle") or in_threads)

    @property
    def is_in_library(self) -> bool | None:
        """Whether its wait is in a library of communication, by the native stack alone; None: that is not known."""
        library = self.report.native[:1]
        return bool(library[0]) if library and self.does.kind == "wait" and not self.does.place else None

    @property
    def awaits_device(self) -> bool:
        """It stands still in a wait for its device: for what that computes, or for a collective."""
        return self.does.still and self.does.kind == "device"

    @property
    def asks(self) -> str:
        """The role of those of whom one has to answer its call; empty: it waits for none."""
        return next((role for role, (_, text) in SERVERS.items() if self.does.text.startswith(text)), "")

    @property
    def awaits_another_call(self) -> bool:
        """It may wait for an event until others call it, too, as in a barrier: not in a lock of the program."""
        in_program = any(is_of_program(path) for _, path, _ in self.report.frames[:1])
        calls = [look.call for look in self.report.looks[-1:] if look is not None]
        return self.does.kind == "wait" and calls == ["futex"] and not in_program

    @property
    def far_end(self) -> str:
        """The end on another host that it has not waited for long, and that may work for it; empty: none."""
        link, seconds = self.report.far_end or ("", 0.0)
        near, far = (part.rpartition(":")[0] for part in link.rpartition(">")[::2])
        return self.report.awaited_end if self.does.kind in HELPED and seconds <= LONGEST_WAIT and near != far else ""

    @property
    def polls(self) -> bool:
        """It polls for something."""
        kinds = ("sleep", "unknown", *["wait"] * (self.report.polled is not None))
        return not self.does.unmoved and self.does.kind in kinds

    @property
    def polls_in_vain(self) -> bool:
        """What it polls for only processes of its host bring, or one below it that is held up."""
        lacks = self.report.polled[2] if self.report.polled else False
        lacks = lacks or bool(self.does.kind == "sleep" and held_process(self.report, "sleep"))
        return self.polls and lacks and not (self.does.works or self.does.transfers)

    @property
    def is_held_up(self) -> bool:
        """It rests where no process without work does: at a file, or because another process takes nothing from it."""
        at_file = self.does.kind in ("blocked", "file") and self.report.file_wait is not None
        return self.does.rests and (at_file or self.does.text.startswith(GIVES))

    @property
    def goes_on_in(self) -> float:
        """Seconds until what it waits for, or its call, ends by itself; infinite where nothing shows that it does.

        The limit of a loader's call is for a look at its workers, as that of any who waits for a process of the host,
        and that of a server for others than who asked it.
        """
        of_another = self.does.kind == "loader" or self.report.requests or self.report.answering
        limits = [] if of_another else [self.report.ends_in]
        may_end = self.does.kind in ("child", "loader", "wait", "file", "sleep")
        return min((each for each in (*limits, self.report.sleeps_for) if may_end and each >= 0), default=math.inf)

    @property
    def awaits_request(self) -> bool:
        """It is a server, which rests until it is asked."""
        accepts = any(look is not None and look.call == "accept" for look in self.report.looks[-1:])
        return accepts or self.report.awaits_request

    def asks_for_lock_of(self, ranks: Collection[tuple[str, int]]) -> bool:
        """It waits, or asks again and again, for what one of these processes, by host and pid, keeps locked."""
        calls = [look.call for look in self.report.looks[-1:] if look is not None]
        asks = self.does.kind == "sleep" or (self.does.kind == "file" and calls == ["lock"])
        return asks and any((self.host, pid) in ranks for pid, _ in self.report.lock_owners)

    @property
    def goes_on(self) -> bool:
        """It may make steps that take long: it ran, at no one place alone, and bytes reached or left it."""
        is_apart = self.does.kind == "compute" and not self.does.turns
        has_moved = self.report.took_messages and not (self.does.unmoved or self.does.spins)
        return has_moved and (is_apart or self.does.kind in _MAY_GO_ON)

    @property
    def outer_frames(self) -> tuple[Frame, ...]:
        """The calls of the program, outermost first; none where the stack was cut."""
        frames = self.report.frames
        return (
            tuple(frame for frame in reversed(frames) if is_of_program(frame[1])) if len(frames) < MOST_FRAMES else ()
        )

    @property
    def where(self) -> object:
        """What tells its wait from that of others: the stack, else what it does. Who spins is in any library.

        Without stacks, one collective may hold some ranks at their devices and others in a wait for their threads, and
        of those at their devices only some have a thread that moves bytes (seen: NCCL, CUDA 13, an H200).
        """
        may_be_at_device = self.does.text.startswith((AT_DEVICE, *OF_THREADS))
        return self.does.place or (AT_DEVICE if may_be_at_device else self.does.spins or self.does.text)
