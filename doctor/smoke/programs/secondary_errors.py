"""Errors of a rank that follow from another one. Part of the worker, and read by the controller."""

GAVE_UP_MESSAGES = (
    "Timed out waiting", "Socket Timeout",
    "Launch kernel failed, name:Default/AllReduce", "Launch kernel failed, name:Default/AllGather",
    "Launch kernel failed, name:Default/ReduceScatter", "Launch kernel failed, name:Default/Broadcast",
)  # fmt: skip
"""Of ranks that waited for another one until they gave up. The last four are MindSpore's on CPUs, whose cause is only
logged: "Ring ReduceScatter wait receiving [2,82] failed." (2.10)"""
SECONDARY_MESSAGES = (
    *GAVE_UP_MESSAGES,
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited", "ncclRemoteError",
    "Connection refused", "Application timeout caused pair closure", "The total number of timed out node is",
)  # fmt: skip
"""Parts of messages of errors that follow from another rank: from its end, or from its staying away."""
