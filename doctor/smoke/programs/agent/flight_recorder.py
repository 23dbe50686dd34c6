"""The flight recorder of a rank: a page of shared memory that the worker writes and the agent reads."""

from collections import namedtuple

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
    STAGES,
    STATES,
    TIMES,
    TIMES_AT,
)

INPUT, COLLECTIVE = STATES.index("input"), STATES.index("collective")

Moment = namedtuple("Moment", "stamp state stage op dtype step group seq root numel nanoseconds stamp_again")


def name_of(table, code):
    """The name of a code; ? for one outside the table."""
    return table[code] if code < len(table) else "?"


class FlightRecorder:
    """Reads the recorder of one rank: its latest moment, and the collectives that it entered.

    `entered` is group -> number of the last call entered; `new_calls` are those since the last report.
    """

    def __init__(self, memory, offset):
        self.memory, self.offset = memory, offset
        self.stamp = self.calls = 0
        self.latest = None
        self.entered = {}
        self.new_calls = []

    def writer(self):
        """The pid that the rank has for itself; None before it has begun to write."""
        magic, pid, _ = HEADER.unpack_from(self.memory, self.offset)
        return pid if magic == MAGIC else None

    def read(self):
        """Takes over what has changed since the last time; whether something has.

        The worker may be in the middle of writing, which begins with zeros: what is not of one piece, or would be
        older than what was read before, is left for the next time.
        """
        place = self.offset + CURRENT_AT
        for _ in range(5):
            moment = Moment._make(CURRENT.unpack_from(self.memory, place))
            if moment.stamp == moment.stamp_again and moment == CURRENT.unpack_from(self.memory, place):
                break
        else:
            return False
        if moment.stamp <= self.stamp:
            return False
        self.stamp, self.latest = moment.stamp, moment
        count = max(self.calls, TIMES.unpack_from(self.memory, self.offset + TIMES_AT)[3])
        if count - self.calls > CALL_SLOTS:
            for slot in range(COUNT_SLOTS):  # more calls than the ring holds: their groups' counters at least
                group, entered, _ = COUNT.unpack_from(self.memory, self.offset + COUNTS_AT + slot * COUNT.size)
                if group:
                    self.entered[group - 1] = max(entered, self.entered.get(group - 1, 0))
        for number in range(max(self.calls, count - CALL_SLOTS), count):
            self.take(CALL.unpack_from(self.memory, self.offset + CALLS_AT + number % CALL_SLOTS * CALL.size))
        self.calls = count
        return True

    def take(self, call):
        group, seq, op, dtype, stage, _, root, numel, step, _ = call
        self.entered[group] = seq
        op, dtype, stage = name_of(OPS, op), name_of(DTYPES, dtype), name_of(STAGES, stage)
        self.new_calls.append([group, seq, op, dtype, numel, root, step, stage])

    def age(self, clock):
        """Seconds since the latest moment."""
        return max(0.0, clock - self.latest.nanoseconds / 1e9)

    def fields(self):
        """The latest moment, as the controller's Snapshot has it."""
        moment = self.latest
        values = {"state": name_of(STATES, moment.state), "stage": name_of(STAGES, moment.stage), "step": moment.step}
        if moment.state == COLLECTIVE:
            values.update(group=moment.group, seq=moment.seq, numel=moment.numel, root=moment.root)
            values.update(op=name_of(OPS, moment.op), dtype=name_of(DTYPES, moment.dtype))
        return values
