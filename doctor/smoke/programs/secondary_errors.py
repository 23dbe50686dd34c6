"""Errors of a rank that follow from another one. Part of the worker, and read by the controller."""

import re

GAVE_UP_MESSAGES = re.compile(
    r"Timed out waiting|Socket Timeout|wait timeout after \d{1,12} ?ms"
    r"|Watchdog caught collective operation timeout|ran for \d{1,12} milliseconds before timing out"
    r"|\bEI000[26]\b|Notify register times out|Getting socket times out"
    r"|Launch kernel failed(?:, name)?: ?\S{0,300}(?:AllReduce|AllGather|ReduceScatter|Broadcast|AlltoAll|Barrier)"
)
"""Of ranks that waited for another one until they gave up: of gloo, of torch's store (TCPStore.cpp: "wait timeout after
60000ms, keys: ..."), of the watchdogs of NCCL and torch_npu (ProcessGroupNCCL.cpp, ProcessGroupHCCL.cpp), and of HCCL.
"Launch kernel failed" is MindSpore's, on CPUs in PyNative and in graph mode; its cause is only logged: "Ring
ReduceScatter wait receiving [2,82] failed." (2.10)"""
SECONDARY_MESSAGES = (
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited", "ncclRemoteError",
    "Connection refused", "Application timeout caused pair closure", "The total number of timed out node is",
    "communicator was aborted", "timed out connecting",
)  # fmt: skip
"""Parts of messages of other errors that follow from another rank's end."""
PEER_ADDRESS = re.compile(r"(local=)?\[([0-9A-Fa-f:.]{2,45})\]:\d{1,5}")
"""Of gloo's errors (pair.cc, address.cc): "Read error [10.77.1.2]:44749: Connection reset by peer", and of a connection
attempt "local=[...]:1, remote=[...]:2"."""


def gave_up_waiting(text: str) -> bool:
    """Whether the error is that of a rank which another one did not reach in its time."""
    return GAVE_UP_MESSAGES.search(text) is not None


def is_secondary(text: str) -> bool:
    """Whether the error follows from another rank: from its end, or from its staying away."""
    return gave_up_waiting(text) or any(part in text for part in SECONDARY_MESSAGES)


def peer_addresses(text: str) -> list[str]:
    """The addresses of other ranks that an error names.

    >>> peer_addresses("timed out connecting, local=[10.0.0.1]:5, remote=[10.0.0.2]:6")
    ['10.0.0.2']
    """
    return [address for local, address in PEER_ADDRESS.findall(text) if not local]
