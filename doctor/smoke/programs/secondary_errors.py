"""Errors of a rank that follow from the end of another one. Part of the worker, and read by the controller."""

SECONDARY_MESSAGES = (
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting", "Socket Timeout",
    "remote process exited", "ncclRemoteError", "Connection refused", "Application timeout caused pair closure",
)  # fmt: skip
"""Parts of messages of errors that follow from the end of another rank."""
