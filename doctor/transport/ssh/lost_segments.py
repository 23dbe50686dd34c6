"""Whether large packets to or from a host are lost on the way, by what the kernel knows, and by new connections."""

from __future__ import annotations

import fcntl
import socket
import struct
import time
from collections.abc import Callable

from doctor.engine.texts import filled, joined
from doctor.transport import CommandResult, TransportError, transport_error
from doctor.transport.ssh.config import SshHostConfig

_OUTSTANDING, _READABLE = 0x5411, 0x541B
"""SIOCOUTQ and FIONREAD (tcp(7), ioctls): bytes sent and not acknowledged, bytes received in their order."""
_MEMORY = 55
"""SO_MEMINFO: the first number is what received packets take (linux/sock_diag.h)."""
_RETRANSMITS = 2
"""Place in ``struct tcp_info`` of how often the first unacknowledged packet was sent again."""
_LEAST_REPEATS = 3
_SMALL = 536
"""Bytes that every way carries in one packet (RFC 1122, 4.2.2.6)."""
_SECONDS = 3.0
_ECHOES = (256, 6000)
"""Bytes of an echo: of one small packet, and of several as large as the way allows."""
_HINT = (
    "From {1}, `ping -c 3 -s 56 {0}` and `ping -c 3 -M do -s 1472 {0}` (8972 with an MTU of 9000). Where only the "
    "first is answered, a device on the way carries smaller packets than both ends send, without a message: correct "
    'its MTU, let ICMP "fragmentation needed" through the firewalls, or as root on both ends `ip link set dev NIC mtu '
    "1200` until then. Where both are answered, a firewall drops what belongs to connections that stand."
)


def lost_segments(connected: socket.socket) -> tuple[str, str]:
    """What does not get through on a TCP connection to a host whose sshd answers new ones, and what to do.

    Empty where nothing is known: the kernel of a host that is slow, or whose shell hangs, acknowledges what it is sent.
    """
    try:
        sent = struct.unpack("i", fcntl.ioctl(connected, _OUTSTANDING, bytes(4)))[0]
        readable = struct.unpack("i", fcntl.ioctl(connected, _READABLE, bytes(4)))[0]
        repeats = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[_RETRANSMITS]
        held = struct.unpack("I", connected.getsockopt(socket.SOL_SOCKET, _MEMORY, 4))[0]
        peer = connected.getpeername()
    except (OSError, ValueError, AttributeError, struct.error):  # ValueError: of a socket that is closed
        return "", ""
    text = ""
    if sent > _SMALL and repeats >= _LEAST_REPEATS:
        text = filled(
            "{0} bytes are not acknowledged, sent again {1} times, while a new connection is answered", sent, repeats
        )
    elif held and not readable:
        text = "a part of its answer is missing, and later parts have come, while a new connection is answered"
    return (text, filled(_HINT, peer[0], "this machine")) if text and _answers(peer) else ("", "")


def with_lost_echo(
    error: TransportError, run: Callable[[str, bytes, float], CommandResult], settings: SshHostConfig
) -> TransportError:
    """An error, with the same by echoes: for a socket that is not ours, and where nothing came for the kernel to tell.

    ``run`` runs a command over a new connection each time, as a transport does. A host that is slow, or that stands
    still, returns neither echo.
    """
    small, large = _ECHOES
    began = time.monotonic()
    if not _returns(run, small, _SECONDS):
        return error
    patience = max(_SECONDS, 4 * (time.monotonic() - began))
    if _returns(run, large, patience) or not _returns(run, small, patience):
        return error
    lost = filled("{0} bytes come back from it over a new connection, and {1} do not", small, large)
    hint = filled(_HINT, settings.name, settings.jumps[-1] if settings.jumps else "this machine")
    return transport_error(error.kind, joined(": ", (error.text, lost)), hint, error.partial_result)


def _returns(run: Callable[[str, bytes, float], CommandResult], size: int, seconds: float) -> bool:
    """Whether a host sends back so many bytes."""
    try:
        return len(run(f"head -c {size}", bytes(size), seconds).out) == size
    except TransportError:
        return False


def _answers(peer: tuple[str, int]) -> bool:
    """Whether a new connection gets its first, short line: small packets go both ways."""
    try:
        with socket.create_connection(peer[:2], _SECONDS) as second:
            second.settimeout(_SECONDS)
            return bool(second.recv(256))
    except OSError:
        return False
