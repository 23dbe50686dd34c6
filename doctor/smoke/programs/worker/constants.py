"""Codes that the worker and the agent share: the flight recorder holds each name as its position in these tuples."""

from __future__ import annotations

STAGES = ("start", "rendezvous", "collectives", "pairs", "training", "learning", "loader", "pace", "native", "teardown")
"""In the order in which every rank goes through them."""
STATES = ("start", "input", "compute", "collective", "done")
"""What a rank is doing."""
OPS = (
    "", "broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "recv", "barrier",
    "gather", "scatter",
)  # fmt: skip
DTYPES = ("", "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool")
P2P_GROUP_BASE = 1000000
"""A send from rank A to rank B belongs to group number P2P_GROUP_BASE + A * world size + B."""
