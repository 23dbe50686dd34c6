"""How two processes of one job prove to each other that they have its key. Standard library and msgspec only.

The listener sends a challenge; the caller answers with a nonce, what it says of itself, and HMAC-SHA256 over both
nonces and that text; the listener proves the same in turn. Nothing that was recorded serves twice, and nothing that the
caller says of itself can be changed on the way.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import secrets
import socket
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from doctor.engine.decoding import prepare_decoding

_MAX_LINE_BYTES = 1 << 14
_LONG_SECONDS = 86400.0


class ForeignPeer(Exception):
    """What is at the other end does not belong to this job, or has another key."""


def listen_on(ports: Iterable[int], address: str = "", backlog: int = 4096) -> socket.socket:
    """At the first port that is free: on one address, or on all of both families. Raises: OSError."""
    last = OSError("no port to listen on")
    families = [socket.AF_INET6, socket.AF_INET] if not address or ":" in address else [socket.AF_INET]
    for port in ports:
        for family in families[: 1 if address else 2]:
            try:
                dual = family == socket.AF_INET6 and not address
                return socket.create_server((address, port), family=family, backlog=backlog, dualstack_ipv6=dual)
            except (OSError, ValueError) as error:
                last = error if isinstance(error, OSError) else last
                if getattr(error, "errno", 0) == errno.EADDRINUSE:
                    break  # a port that is taken in one family is not taken in the other: peers come by both
    raise last


def is_own_address(text: str) -> bool:
    """Whether this is an address, not a name, that this host has.

    >>> is_own_address("127.0.0.1"), is_own_address("192.0.2.7"), is_own_address("localhost")
    (True, False, False)
    """
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        socket.inet_pton(family, text.partition("%")[0])
        with socket.socket(family) as probe:
            probe.bind((text, 0))
    except OSError:
        return False
    return True


def send_line(link: socket.socket, value: Any) -> None:
    """One line. Raises: OSError."""
    link.sendall(msgspec.json.encode(value) + b"\n")


def read_line(link: socket.socket, deadline: float) -> bytes:
    """One line, and not a byte more than that: what follows is for others. Raises: ForeignPeer, OSError."""
    line = b""
    while not line.endswith(b"\n"):
        link.settimeout(min(max(deadline - time.monotonic(), 0.001), _LONG_SECONDS))
        peeked = link.recv(_MAX_LINE_BYTES, socket.MSG_PEEK)
        piece = link.recv(peeked.index(b"\n") + 1 if b"\n" in peeked else len(peeked))
        line += piece
        if not piece or len(line) > _MAX_LINE_BYTES:
            raise ForeignPeer
    return line


def decode_line(line: bytes, kind: type[Any]) -> Any:
    """What a line says, as ``kind``. Raises: ForeignPeer."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ForeignPeer from None


def read_value(link: socket.socket, kind: type[Any], deadline: float) -> Any:
    """Raises: ForeignPeer, OSError."""
    return decode_line(read_line(link, deadline), kind)


Nonces = tuple[str, str]
"""Of the listener, and of the caller: both are of this connection alone."""


class _Challenge(msgspec.Struct, frozen=True):
    protocol: str
    nonce: str


class _Answer(msgspec.Struct, frozen=True):
    nonce: str
    proof: str
    introduction: str
    """As JSON: what is proved is this text, with any fields that another version writes."""


class _Welcome(msgspec.Struct, frozen=True):
    proof: str = ""
    """Empty: the caller is turned away."""


class KeyRefused(ForeignPeer):
    """The listener says that the caller's key is another one."""


def admit(link: socket.socket, key: bytes, protocol: str, kind: type[Any], seconds: float) -> tuple[Any, Nonces]:
    """The listener's side: the caller's introduction, as ``kind``.

    Raises: ForeignPeer, with the introduction if one came that was not proved; OSError.
    """
    deadline, nonce = time.monotonic() + seconds, secrets.token_hex(16)
    link.settimeout(seconds)
    send_line(link, _Challenge(protocol, nonce))
    answer: _Answer = read_value(link, _Answer, deadline)
    nonces, text = (nonce, answer.nonce), answer.introduction
    introduction = decode_line(text.encode(), kind)
    if not hmac.compare_digest(answer.proof.encode(), _proof(key, "caller", nonces, text).encode()):
        send_line(link, _Welcome())
        raise ForeignPeer(introduction)
    send_line(link, _Welcome(_proof(key, "listener", nonces, text)))
    return introduction, nonces


def introduce(link: socket.socket, key: bytes, protocol: str, introduction: msgspec.Struct, seconds: float) -> Nonces:
    """The caller's side. Raises: ForeignPeer, OSError."""
    deadline, nonce = time.monotonic() + seconds, secrets.token_hex(16)
    challenge: _Challenge = read_value(link, _Challenge, deadline)
    if challenge.protocol != protocol:
        raise ForeignPeer
    nonces, text = (challenge.nonce, nonce), msgspec.json.encode(introduction).decode()
    send_line(link, _Answer(nonce, _proof(key, "caller", nonces, text), text))
    welcome: _Welcome = read_value(link, _Welcome, deadline)
    if not welcome.proof:
        raise KeyRefused
    if not hmac.compare_digest(welcome.proof.encode(), _proof(key, "listener", nonces, text).encode()):
        raise ForeignPeer
    return nonces


def keyed(key: bytes, *parts: str) -> bytes:
    """HMAC-SHA256 over these parts."""
    return hmac.new(key, "\0".join(parts).encode("utf-8", "surrogatepass"), hashlib.sha256).digest()


def _proof(key: bytes, side: str, nonces: Nonces, text: str) -> str:
    return keyed(key, "proof", side, *nonces, text).hex()


prepare_decoding(_Challenge, _Answer, _Welcome)
