"""The page of a rank's flight recorder: its layout and its codes. The worker writes it, the agent reads it.

Part of both programs. Little-endian: HEADER at 0, CURRENT at 64, TIMES at 192, COUNTS from 256, STEPS (of watched
programs) from 6400, CALLS from 8192. A name
is held as its position in one of the tuples. Python 3.6: the agent runs by the host's own interpreter.
"""

import struct
from typing import NamedTuple

STAGES = (
    "start", "rendezvous", "devices", "collectives", "pairs", "training", "learning", "loader", "pace", "native",
    "soak", "teardown",
)  # fmt: skip
"""In the order in which every rank goes through them."""
STATES = ("start", "input", "compute", "collective", "done", "enqueued")
"""What a rank is doing. ``enqueued``, of a watched program: it has started collectives that it may be waiting for."""
OPS = (
    "", "broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "recv", "barrier",
    "gather", "scatter", "new_group",
)  # fmt: skip
DTYPES = ("", "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool")
UNBOUND_SIZE = 1 << 60
"""Is added to the elements of a call whose size may be another one on each rank, as of `all_gather` into a list."""
P2P_GROUP_BASE = 1000000
MOST_TAGS = 64
"""Tags of messages with a number of their own. See `message_group`."""

MAGIC = 0x444F4353
PAGE_SIZE = 40960
HEADER = struct.Struct("<IIQ")  # magic, pid, start time
CURRENT = struct.Struct("<QBBBBIIIiQQQ")  # stamp, state, stage, op, dtype, step, group, seq, root, numel, time, stamp
TIMES = struct.Struct("<QQQQ")  # nanoseconds of compute, network, input; calls so far
STEP = struct.Struct("<IIIIIIHH")  # step, microseconds of compute, network, input, backward, enqueued; collectives,
# and tens of microseconds until the interpreter was had again, at most 65535 of each
COUNT = struct.Struct("<III")  # group + 1, entered, exited
CALL = struct.Struct(
    "<IIBBBBiQII"
)  # group, seq, op, dtype, stage, 1 if enqueued, root, numel, step, microseconds mod 2**32
CURRENT_AT, TIMES_AT, COUNTS_AT, STEPS_AT, CALLS_AT = 64, 192, 256, 6400, 8192
COUNT_SLOTS, STEP_SLOTS, CALL_SLOTS = 512, 64, 1024


class MessageEnds(NamedTuple):
    """Who sends to whom, and the messages' tag."""

    source: int
    target: int
    tag: int


def message_group(source: int, target: int, world: int, tag: int = 0) -> int:
    """The group number of messages from one rank to another: those of one tag arrive in their order.

    >>> message_group(1, 2, 4), ends_of(message_group(1, 2, 4, 5), 4)
    (1000006, MessageEnds(source=1, target=2, tag=5))
    """
    return P2P_GROUP_BASE + (tag * world + source) * world + target


def ends_of(group: int, world: int) -> MessageEnds:
    """Those of such a group."""
    tag, pair = divmod(group - P2P_GROUP_BASE, world * world)
    return MessageEnds(pair // world, pair % world, tag)
