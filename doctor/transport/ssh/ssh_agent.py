"""The ssh-agent: which keys it holds, and signatures by them.

One short connection a request: many threads sign at once, and an agent that hangs for one holds up no other.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

_LIST, _LISTED, _SIGN, _SIGNED = 11, 12, 13, 14
_MAX_ANSWER = 1 << 20
_SIGN_FLAGS = {"rsa-sha2-256": 2, "rsa-sha2-512": 4}
_SIGN_TIMEOUT = 30.0
"""Seconds for a signature: the agent may want its user's consent first."""


class AgentKey(NamedTuple):
    """A key that the ssh-agent holds."""

    comment: str
    blob: bytes
    """The public key, or the certificate."""
    sign: Callable[[bytes, str], bytes]
    """Signs data with an algorithm. Raises: OSError, ValueError."""


def list_keys(path: str) -> list[AgentKey]:
    """The keys that the agent at a socket holds. Raises: OSError, ValueError."""
    kind, answer = _request(path, bytes([_LIST]), 5.0)
    if kind != _LISTED:
        raise ValueError("the ssh-agent does not list its keys")
    if len(answer) < 4:
        raise ValueError("the ssh-agent's answer is incomplete")
    (count,), rest = struct.unpack(">I", answer[:4]), answer[4:]
    held = []
    for _ in range(count):
        blob, rest = unpack_string(rest)
        comment, rest = unpack_string(rest)
        held.append(AgentKey(comment.decode("utf-8", "replace"), blob, _signer(path, blob)))
    return held


def _signer(path: str, blob: bytes) -> Callable[[bytes, str], bytes]:
    def sign(data: bytes, algorithm: str) -> bytes:
        flags = _SIGN_FLAGS.get(algorithm.removesuffix("-cert-v01@openssh.com"), 0)
        kind, answer = _request(
            path, bytes([_SIGN]) + pack_string(blob) + pack_string(data) + struct.pack(">I", flags), _SIGN_TIMEOUT
        )
        if kind != _SIGNED:
            raise ValueError("the ssh-agent refused to sign")
        return unpack_string(answer)[0]

    return sign


def _request(path: str, request: bytes, timeout: float) -> tuple[int, bytes]:
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as agent:
        agent.settimeout(timeout)
        agent.connect(path)
        agent.sendall(pack_string(request))
        (length,) = struct.unpack(">I", _receive_exactly(agent, 4))
        if not 0 < length <= _MAX_ANSWER:
            raise ValueError("the program at the ssh-agent's socket is not an agent")
        answer = _receive_exactly(agent, length)
        return answer[0], answer[1:]


def _receive_exactly(agent: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        chunk = agent.recv(count - len(got))
        if not chunk:
            raise ConnectionResetError("the ssh-agent hung up")
        got += chunk
    return got


def pack_string(content: bytes) -> bytes:
    """Bytes with their length before them, as SSH packs them."""
    return struct.pack(">I", len(content)) + content


def unpack_string(packed: bytes) -> tuple[bytes, bytes]:
    """The first packed bytes, and the rest. Raises: ValueError."""
    if len(packed) < 4:
        raise ValueError("cut short")
    (length,) = struct.unpack(">I", packed[:4])
    if len(packed) < 4 + length:
        raise ValueError("cut short")
    return packed[4 : 4 + length], packed[4 + length :]
