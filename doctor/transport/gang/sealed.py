"""How two members of a gang know each other, and how neither takes a word of anybody else. Standard library only.

Each side proves by HMAC-SHA256 over both nonces and the member's introduction that it has the key. Every message after
that carries an HMAC over its number and its bytes, by keys of this connection and this direction, so that nothing can
be put in, left out, repeated or turned round. Nothing is encrypted: what pods tell is as public as their network.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import threading
import time
from typing import Any, Literal

import msgspec

from doctor.engine.decoding import prepare_decoding

HANDSHAKE_SECONDS = 5.0
SILENCE_SECONDS = 25.0
"""Seconds without a message after which the other side is lost: carriers send one every 4 s, the leader every 8 s."""
CHUNK = 1 << 16
_PROTOCOL = "doctor gang 1"
_MAX_MESSAGE = 1 << 20
_MAX_INTRODUCTION = 1 << 14
_HEAD = struct.Struct(">I32s")
_COUNT = struct.Struct(">Q")


class Introduction(msgspec.Struct, frozen=True):
    """A member's own description."""

    index: int
    host: str
    version: str
    """Of doctor, and of the programs that it carries."""
    start: str = ""
    """Random, of this process: tells a container that was started again from one that came back."""


class _Challenge(msgspec.Struct, frozen=True):
    protocol: str
    nonce: str


class _Answer(msgspec.Struct, frozen=True):
    nonce: str
    proof: str
    introduction: str
    """As JSON: what is proved is this text, whatever fields another version writes."""


class _Welcome(msgspec.Struct, frozen=True):
    proof: str = ""
    """Empty: the leader turns this member away."""


class Stranger(Exception):
    """What is at the other end is no member of this gang, or has another key."""


class KeyRefused(Stranger):
    """The leader says that this member's key is another one."""


Side = Literal["leader", "member"]


class SealedLink:
    """Messages in both directions. Any thread may send; one at a time receives."""

    def __init__(self, link: socket.socket, key: bytes, side: Side, nonces: tuple[str, str]) -> None:
        self.address = link.getpeername()[0].removeprefix("::ffff:").partition("%")[0]
        self._link, self._lock = link, threading.Lock()
        other: Side = "member" if side == "leader" else "leader"
        self._send_key, self._receive_key = _mac(key, "stream", side, *nonces), _mac(key, "stream", other, *nonces)
        self._sent_count = self._received_count = 0
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.settimeout(SILENCE_SECONDS)

    def send(self, kind: bytes, data: bytes = b"") -> None:
        """One message of this kind, a byte; data of any length. Raises: OSError."""
        with self._lock:
            for start in range(0, len(data) or 1, _MAX_MESSAGE - 1):
                body = kind + data[start : start + _MAX_MESSAGE - 1]
                tag = _tag(self._send_key, self._sent_count, body)
                self._sent_count += 1
                self._link.sendall(_HEAD.pack(len(body), tag) + body)

    def receive(self) -> tuple[bytes, bytes]:
        """The next message: its kind and data. Raises: OSError, at the end too; Stranger."""
        size, tag = _HEAD.unpack(_exactly(self._link, _HEAD.size))
        if not 1 <= size <= _MAX_MESSAGE:
            raise Stranger
        body = _exactly(self._link, size)
        if not hmac.compare_digest(tag, _tag(self._receive_key, self._received_count, body)):
            raise Stranger
        self._received_count += 1
        return body[:1], body[1:]

    def close(self) -> None:
        """Also wakes who receives."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()


def gang_key(secret: bytes, identity: str) -> bytes:
    """The key of one gang: another gang with the same secret has another key."""
    return hmac.new(secret, f"{_PROTOCOL}\0{identity}".encode(), hashlib.sha256).digest()


def admit(link: socket.socket, key: bytes) -> tuple[Introduction, SealedLink]:
    """The leader's side. Raises: Stranger, with the introduction that was not proved where there was one; OSError."""
    deadline, nonce = time.monotonic() + HANDSHAKE_SECONDS, secrets.token_hex(16)
    _send_line(link, _Challenge(_PROTOCOL, nonce))
    answer: _Answer = _read_line(link, _Answer, deadline)
    nonces, text = (nonce, answer.nonce), answer.introduction
    introduction: Introduction = _decode(text.encode(), Introduction)
    if not hmac.compare_digest(answer.proof.encode(), _proof(key, "member", *nonces, text).encode()):
        _send_line(link, _Welcome())
        raise Stranger(introduction)
    _send_line(link, _Welcome(_proof(key, "leader", *nonces, text)))
    return introduction, SealedLink(link, key, "leader", nonces)


def introduce(link: socket.socket, key: bytes, introduction: Introduction) -> SealedLink:
    """The member's side. Raises: Stranger, OSError."""
    deadline, nonce = time.monotonic() + HANDSHAKE_SECONDS, secrets.token_hex(16)
    challenge: _Challenge = _read_line(link, _Challenge, deadline)
    if challenge.protocol != _PROTOCOL:
        raise Stranger
    nonces, text = (challenge.nonce, nonce), msgspec.json.encode(introduction).decode()
    _send_line(link, _Answer(nonce, _proof(key, "member", *nonces, text), text))
    welcome: _Welcome = _read_line(link, _Welcome, deadline)
    if not welcome.proof:
        raise KeyRefused
    if not hmac.compare_digest(welcome.proof.encode(), _proof(key, "leader", *nonces, text).encode()):
        raise Stranger
    return SealedLink(link, key, "member", nonces)


def _mac(key: bytes, *parts: str) -> bytes:
    return hmac.new(key, "\0".join(parts).encode(), hashlib.sha256).digest()


def _proof(key: bytes, *parts: str) -> str:
    return _mac(key, "proof", *parts).hex()


def _tag(key: bytes, count: int, body: bytes) -> bytes:
    return hmac.digest(key, _COUNT.pack(count) + body, "sha256")


def _exactly(link: socket.socket, size: int) -> bytes:
    """Raises: OSError."""
    data = bytearray()
    while len(data) < size:
        piece = link.recv(min(size - len(data), CHUNK))
        if not piece:
            raise ConnectionResetError("the connection was closed")
        data += piece
    return bytes(data)


def _send_line(link: socket.socket, value: Any) -> None:
    link.sendall(msgspec.json.encode(value) + b"\n")


def _read_line(link: socket.socket, kind: type[Any], deadline: float) -> Any:
    """One line, and not a byte beyond it. Raises: Stranger, OSError."""
    line = bytearray()
    while not line.endswith(b"\n"):
        link.settimeout(max(deadline - time.monotonic(), 0.001))
        peeked = link.recv(CHUNK, socket.MSG_PEEK)
        line += link.recv(peeked.index(b"\n") + 1 if b"\n" in peeked else len(peeked))
        if not peeked or len(line) > _MAX_INTRODUCTION:
            raise Stranger
    return _decode(bytes(line), kind)


def _decode(line: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise Stranger from None


prepare_decoding(Introduction, _Challenge, _Answer, _Welcome)
