"""Errors of a rank that follow from another one. Part of the worker, and read by the controller."""

import re

GAVE_UP_MESSAGES = re.compile(
    r"Timed out waiting|Socket Timeout"
    r"|Launch kernel failed(?:, name)?: ?\S{0,300}(?:AllReduce|AllGather|ReduceScatter|Broadcast|AlltoAll|Barrier)"
)
"""Of ranks that waited for another one until they gave up. "Launch kernel failed" is MindSpore's, on CPUs in PyNative
and in graph mode; its cause is only logged: "Ring ReduceScatter wait receiving [2,82] failed." (2.10)"""
SECONDARY_MESSAGES = (
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited", "ncclRemoteError",
    "Connection refused", "Application timeout caused pair closure", "The total number of timed out node is",
)  # fmt: skip
"""Parts of messages of other errors that follow from another rank's end."""


def gave_up_waiting(text: str) -> bool:
    """Whether the error is that of a rank which another one did not reach in its time."""
    return GAVE_UP_MESSAGES.search(text) is not None


def is_secondary(text: str) -> bool:
    """Whether the error follows from another rank: from its end, or from its staying away."""
    return gave_up_waiting(text) or any(part in text for part in SECONDARY_MESSAGES)
