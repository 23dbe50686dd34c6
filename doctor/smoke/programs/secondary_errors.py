"""Errors of a rank that follow from another one. Part of the worker, and read by the controller."""

import re

GAVE_UP_MESSAGES = re.compile(
    r"Timed out waiting|Socket Timeout|wait timeout after \d{1,12} ?ms"
    r"|Watchdog caught collective operation timeout|ran for \d{1,12} milliseconds before timing out"
    r"|\bEI000[26]\b|Notify register times out|Getting socket times out"
    r"|hccl fftsplus task timeout|(?:timed out in|failed to pass) monitoredBarrier|client socket has timed out"
    r"|(?:Read|Write|Connect) timeout \[|Timeout waiting for key"
    r"|Launch kernel failed(?:, name)?: ?\S{0,300}(?:AllReduce|AllGather|ReduceScatter|Broadcast|AlltoAll|Barrier)"
)
"""Of ranks that waited for another one until they gave up: of gloo, of torch's store (TCPStore.cpp: "wait timeout after
60000ms, keys: ..."), of the watchdogs of NCCL and torch_npu (ProcessGroupNCCL.cpp, ProcessGroupHCCL.cpp), and of HCCL
("hccl fftsplus task timeout occurred during task execution, ... stuck notify num:7", EI9999 of CANN's
device_error_proc.cc), of gloo's synchronous pairs ("Read timeout [10.0.0.1]:5") and its monitored barrier.
"Launch kernel failed" is MindSpore's, on CPUs in PyNative and in graph mode; its cause is only logged: "Ring
ReduceScatter wait receiving [2,82] failed." (2.10)"""
SECONDARY_MESSAGES = (
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited", "ncclRemoteError",
    "Connection refused", "Application timeout caused pair closure", "The total number of timed out node is",
    "communicator was aborted", "timed out connecting",
)  # fmt: skip
"""Parts of messages of other errors that follow from another rank's end."""
OF_SERVICES = re.compile(
    r"(?!\w{0,40}RuntimeError: |Dist\w{0,20}Error: |HorovodInternalError: |Exception: )"
    r"[A-Za-z_]\w{0,60}(?:Error|Exception|Timeout|Disconnected|IncompleteRead): "
)
"""How an error begins that the libraries by which ranks reach each other do not raise: of Python's sockets
("ConnectionResetError: [Errno 104] Connection reset by peer"), or of clients of a store or a hub (botocore, urllib3,
aiohttp, fsspec). The other end of such a connection is no rank."""
LOST_PEER = re.compile(
    r"Connection closed by remote peer|Socket closed \[|[Ff]ailed to (?:recv, got|send, sent) 0 bytes"
    r"|Connection was likely closed|reached monitoredBarrier, but received errors|client socket has failed to connect"
)
"""More of them: of gloo's pair.cc, of torch's store
(Utils.hpp, socket.cpp), and of NCCL's socket.cc ("Net : Connection closed by remote peer node2<42830>"), whose code
by then may be ncclInternalError or ncclSystemError (NVIDIA/nccl issues 795 and 1514)."""
PEER_ADDRESS = re.compile(
    r"(local=|addr=)?\[(?:::ffff:)?([0-9A-Fa-f:.]{2,45})\]:\d{1,5}"
    r"|\b(?:from|to|peer) ([0-9A-Za-z:._-]{2,64})<\d{1,5}>"
)
"""Of gloo's errors (pair.cc, address.cc): "Read error [10.77.1.2]:44749: Connection reset by peer", of a connection
attempt "local=[...]:1, remote=[...]:2", of the store's socket "addr=[...]:1, remote=[...]:2", and of NCCL: "Call to
recv from 10.77.1.2<33759> failed", with the host's name where it resolves."""
MOST_LINES = 60
CODED = re.compile(r"(?:\[rank\d{1,6}\]: ?)?E[A-Z]\d{4}: ")
"""CANN's own error codes; the line before them is that of the call."""


def gave_up_waiting(text: str) -> bool:
    """Whether the error is that of a rank which another one did not reach in its time."""
    return GAVE_UP_MESSAGES.search(text) is not None


def timed_out_number(text: str) -> int:
    """The number within its group of the collective that a watchdog has given up; 0: the error names none.

    >>> timed_out_number("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=29, OpType=ALLREDUCE, ...)")
    29
    """
    found = re.search(r"\bSeqNum=(\d{1,12})\b", text)
    return int(found[1]) if found else 0


def is_secondary(text: str) -> bool:
    """Whether the error follows from another rank: from its end, or from its staying away."""
    return bool(GAVE_UP_MESSAGES.search(text) or LOST_PEER.search(text)) or (
        OF_SERVICES.match(text) is None and any(part in text for part in SECONDARY_MESSAGES)
    )


def peer_addresses(text: str) -> list[str]:
    """The addresses of other ranks that an error names; of NCCL, host names.

    >>> peer_addresses("timed out connecting, local=[10.0.0.1]:5, remote=[10.0.0.2]:6")
    ['10.0.0.2']
    >>> peer_addresses("Net : Connection closed by remote peer node2<42830>")
    ['node2']
    """
    return [address or name for local, address, name in PEER_ADDRESS.findall(text) if not local]


def headline(text: str) -> str:
    """The first line of an error, and the one that says what became of the other rank: of NCCL and HCCL a later one."""
    lines = [line.strip() for line in text[:20000].splitlines() if line.strip()][:MOST_LINES]
    if not lines:
        return ""
    first, later = lines[0], lines[1:]
    last = later[later.index("Last error:") + 1 :][:1] if "Last error:" in later else []
    details = [*filter(is_secondary, [*last, *later]), *last, *filter(CODED.match, later)]
    return f"{first[:380]}; {details[0][:218]}" if details and details[0] not in first else first[:600]
