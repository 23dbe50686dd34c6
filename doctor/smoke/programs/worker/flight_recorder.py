"""The flight recorder: what a rank is doing, in shared memory that the agent reads even when the rank hangs."""

from __future__ import annotations

import mmap
import os
import time

from doctor.smoke.programs.recorder_page import (
    CALL,
    CALL_SLOTS,
    CALLS_AT,
    COUNT,
    COUNT_SLOTS,
    COUNTS_AT,
    CURRENT,
    CURRENT_AT,
    DTYPES,
    HEADER,
    MAGIC,
    OPS,
    PAGE_SIZE,
    STATES,
    TIMES,
    TIMES_AT,
)

TIME_KIND_OF_STATE = (2, 2, 0, 1, 0, 4)
"""Which of the times each of STATES counts towards: 0 compute, 1 network, 2 input, 4 enqueued."""


class FlightRecorder:
    """One rank's page. Only its main thread writes: no lock, no thread, about two microseconds a collective."""

    def __init__(self, file: int, index: int) -> None:
        self.page = memoryview(mmap.mmap(file, (index + 1) * PAGE_SIZE))[index * PAGE_SIZE :]
        self.stamp = self.calls = self.step = self.stage = 0
        self.state = STATES.index("start")
        self.nanoseconds = [0, 0, 0, 0, 0]  # of compute, network, input, backward with collectives, other enqueued
        self.counts: dict[int, list[int]] = {}  # group -> [slot, entered, exited]
        self.state_since, self.time_kind = time.monotonic_ns(), 2
        HEADER.pack_into(self.page, 0, MAGIC, os.getpid(), self.state_since)
        self.mark("start")

    def mark(
        self, state: str, group: int = 0, seq: int = 0, op: int = 0, dtype: int = 0, root: int = -1, numel: int = 0
    ) -> None:
        """Records the state that begins now, and adds the time since the last mark to the state that ends."""
        now = self.count_time()
        self.state = STATES.index(state)
        self.time_kind = TIME_KIND_OF_STATE[self.state]
        self.moment = self.state, self.stage, op, dtype, self.step, group, seq, root, numel, now
        self._write_moment()

    def _write_moment(self) -> None:
        self.stamp += 1
        compute, network, loading, backward, enqueued = self.nanoseconds
        TIMES.pack_into(self.page, TIMES_AT, compute + backward + enqueued, network, loading, self.calls)
        CURRENT.pack_into(self.page, CURRENT_AT, self.stamp, *self.moment, self.stamp)

    def count_time(self) -> int:
        """Adds the time until now to what the rank has been doing. Returns now."""
        now = time.monotonic_ns()
        self.nanoseconds[self.time_kind] += now - self.state_since
        self.state_since = now
        return now

    def enter(self, group: int, op: str, dtype: str, root: int, numel: int, state: str = "collective") -> None:
        """Records that the rank enters a collective. ``root``: global rank of the root or the peer, -1 for none.

        ``state``: empty where the call changes nothing in what the rank is doing.
        """
        count = self.counts.setdefault(group, [len(self.counts) % COUNT_SLOTS, 0, 0])
        count[1] += 1
        op_code, dtype_code = OPS.index(op), DTYPES.index(dtype) if dtype in DTYPES else 0
        offset = CALLS_AT + self.calls % CALL_SLOTS * CALL.size
        now = time.monotonic_ns() // 1000 & 0xFFFFFFFF
        CALL.pack_into(
            self.page, offset, group, count[1], op_code, dtype_code, self.stage, state == "enqueued", root, numel,
            self.step, now,
        )  # fmt: skip
        self.calls += 1
        self._write_count(group, count)
        if state:
            self.mark(state, group, count[1], op_code, dtype_code, root, numel)
        else:
            self._write_moment()

    def exit(self, group: int) -> None:
        """Records that the rank has left the collective that it entered last in this group."""
        count = self.counts[group]
        count[2] = count[1]
        self._write_count(group, count)
        self.mark("compute")

    def _write_count(self, group: int, count: list[int]) -> None:
        COUNT.pack_into(self.page, COUNTS_AT + count[0] * COUNT.size, group + 1, count[1], count[2])
