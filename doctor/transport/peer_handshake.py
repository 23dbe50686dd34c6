"""How two processes of one job prove to each other that they have its key. Standard library and msgspec only.

The listener sends a challenge; the caller answers with a nonce, what it says of itself, and HMAC-SHA256 over both
nonces and that text; the listener proves the same in turn. Nothing that was recorded serves twice, and nothing that the
caller says of itself can be changed on the way.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import time
from typing import Any

import msgspec

from doctor.engine.decoding import prepare_decoding
from doctor.transport.peer_lines import ForeignPeer, decode_line, read_value, send_line

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
