"""The flight recorder of a rank: a page of shared memory that the worker writes and the agent reads."""

import struct
from collections import namedtuple

# As the worker writes it.
MAGIC, PAGE = 0x444F4353, 40960
HEAD = struct.Struct("<IIQ")  # magic, pid, start
NOW = struct.Struct("<QBBBBIIIiQQQ")  # the fields of `Moment`
TIMES = struct.Struct("<QQQQ")  # nanoseconds of compute, network, input; calls so far
COUNT = struct.Struct("<III")  # group + 1, entered, done
CALL = struct.Struct("<IIBBBBiQII")  # group, seq, op, dtype, stage, 0, root, numel, step, 0
AT_NOW, AT_TIMES, AT_COUNTS, AT_RING = 64, 192, 256, 8192
SLOTS, RING = 512, 1024
STATES = ("start", "input", "compute", "collective", "done")
STAGES = ("start", "rendezvous", "collectives", "pairs", "training", "learning", "loader", "pace", "native", "teardown")
OPS = (
    "", "broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "recv", "barrier",
    "gather", "scatter",
)  # fmt: skip
DTYPES = ("", "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool")
INPUT, COLLECTIVE = STATES.index("input"), STATES.index("collective")

Moment = namedtuple("Moment", "stamp state stage op dtype step group seq root numel nanoseconds stamp_again")


def name_of(table, code):
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
        magic, pid, _ = HEAD.unpack_from(self.memory, self.offset)
        return pid if magic == MAGIC else None

    def read(self):
        """Takes over what has changed since the last time; whether something has.

        The worker may be in the middle of writing, which begins with zeros: what is not of one piece, or would be
        older than what was read before, is left for the next time.
        """
        for _ in range(5):
            moment = Moment._make(NOW.unpack_from(self.memory, self.offset + AT_NOW))
            if moment.stamp == moment.stamp_again and moment == NOW.unpack_from(self.memory, self.offset + AT_NOW):
                break
        else:
            return False
        if moment.stamp <= self.stamp:
            return False
        self.stamp, self.latest = moment.stamp, moment
        count = max(self.calls, TIMES.unpack_from(self.memory, self.offset + AT_TIMES)[3])
        if count - self.calls > RING:
            self.read_counts()
        for number in range(max(self.calls, count - RING), count):
            self.take(CALL.unpack_from(self.memory, self.offset + AT_RING + number % RING * CALL.size))
        self.calls = count
        return True

    def take(self, call):
        group, seq, op, dtype, stage, _, root, numel, step, _ = call
        self.entered[group] = seq
        op, dtype, stage = name_of(OPS, op), name_of(DTYPES, dtype), name_of(STAGES, stage)
        self.new_calls.append([group, seq, op, dtype, numel, root, step, stage])

    def read_counts(self):
        """More calls than the ring holds: their groups' counters at least."""
        for slot in range(SLOTS):
            group, entered, _ = COUNT.unpack_from(self.memory, self.offset + AT_COUNTS + slot * COUNT.size)
            if group:
                self.entered[group - 1] = max(entered, self.entered.get(group - 1, 0))

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
