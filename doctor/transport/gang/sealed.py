"""How two members of a gang know each other, and how neither takes a word of anybody else. Standard library only.

Each side proves that it has the key (`doctor.transport.peer_handshake`). Every message after that carries an HMAC over
its number and its bytes, by keys of this connection and this direction, so that nothing can be put in, left out,
repeated or turned round. Nothing is encrypted: what pods tell is as public as their network.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import struct
import threading
from typing import Annotated, Literal

import msgspec

from doctor.engine.decoding import prepare_decoding
from doctor.transport import peer_handshake
from doctor.transport.peer_handshake import ForeignPeer, Nonces, keyed

HANDSHAKE_SECONDS = 5.0
SILENCE_SECONDS = 25.0
"""Seconds without a message after which the other side is lost: carriers send one every 4 s, the leader every 8 s."""
CHUNK = 1 << 16
_PROTOCOL = "doctor gang 2"
_MAX_MESSAGE = 1 << 20
_HEAD = struct.Struct(">I32s")
_COUNT = struct.Struct(">Q")


class Introduction(msgspec.Struct, frozen=True):
    """A member's own description."""

    index: int
    """Negative: it has none by itself."""
    host: Annotated[str, msgspec.Meta(pattern=r"^[^\s\x00-\x1f\x7f]{1,255}\Z")]
    """What it calls itself."""
    version: str
    """Of doctor, and of the programs that it carries."""
    start: str = ""
    """Random, of this process: tells a container that was started again from one that came back."""


Side = Literal["leader", "member"]


class SealedLink:
    """Messages in both directions. Any thread may send; one at a time receives."""

    def __init__(self, link: socket.socket, key: bytes, side: Side, nonces: Nonces) -> None:
        self.address = link.getpeername()[0].removeprefix("::ffff:").partition("%")[0]
        self._link, self._lock = link, threading.Lock()
        other: Side = "member" if side == "leader" else "leader"
        self._send_key, self._receive_key = keyed(key, "stream", side, *nonces), keyed(key, "stream", other, *nonces)
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
        """The next message: its kind and data. Raises: OSError, at the end too; ForeignPeer."""
        size, tag = _HEAD.unpack(_exactly(self._link, _HEAD.size))
        if not 1 <= size <= _MAX_MESSAGE:
            raise ForeignPeer
        body = _exactly(self._link, size)
        if not hmac.compare_digest(tag, _tag(self._receive_key, self._received_count, body)):
            raise ForeignPeer
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
    """The leader's side. Raises: ForeignPeer, with the introduction if one came that was not proved; OSError."""
    introduction, nonces = peer_handshake.admit(link, key, _PROTOCOL, Introduction, HANDSHAKE_SECONDS)
    return introduction, SealedLink(link, key, "leader", nonces)


def introduce(link: socket.socket, key: bytes, introduction: Introduction) -> SealedLink:
    """The member's side. Raises: ForeignPeer, OSError."""
    nonces = peer_handshake.introduce(link, key, _PROTOCOL, introduction, HANDSHAKE_SECONDS)
    return SealedLink(link, key, "member", nonces)


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


prepare_decoding(Introduction)
