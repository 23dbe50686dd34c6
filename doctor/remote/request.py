"""The controller's side of a program on a host: its request, and how its answers are separated from other output."""

from __future__ import annotations

import os

import msgspec

from doctor.remote.runtime import framing


class Request(msgspec.Struct, frozen=True):
    """The start command and input of a program on a host."""

    command: str
    """For the login shell."""
    program: bytes
    """The program as it is sent, one object for all hosts."""
    first: bytes
    """What the program reads first."""
    marker: str
    """That frames its answers, or begins each of its lines."""
    common: bytes = b""
    """What it reads behind that; one object for all hosts."""
    end: bytes = b""
    """The last bytes of its answer, where the program then waits for a follow-up; empty when it ends."""

    @property
    def stdin(self) -> bytes:
        """Sent before anything else: the program and its first request. Made anew: many hosts are asked at once."""
        return self.program + self.first + self.common

    @property
    def follow_up(self) -> bytes:
        """Sent in place of the command and its input to a program that an earlier request has started, if it waits."""
        return b"%08d" % (len(self.first) + len(self.common)) + self.first + self.common


def new_marker() -> str:
    """One that no output of a host has by chance.

    >>> len(new_marker())
    23
    """
    return "doctor-" + os.urandom(8).hex()


def frame_end(marker: str) -> bytes:
    r"""The last bytes of a framed record.

    >>> frame_end("doctor-1")
    b'\ndoctor-1 end\n'
    """
    return str(framing.frame(marker, "")).encode("ascii")[len(marker) + 2 :]  # type: ignore[no-untyped-call]


def framed_record(text: str, marker: str) -> tuple[str | None, bool]:
    """The record in what a host printed, without other output of its login shell, and whether the record began.

    None: it is not there, or not complete.
    """
    _, record, begun = framing.split_frame(text, marker)  # type: ignore[no-untyped-call]
    return record, begun


def marked_text(line: bytes, marker: bytes) -> bytes | None:
    """What a line of a program carries; None for a line of anybody else.

    >>> marked_text(b"doctor-1 {}", b"doctor-1"), marked_text(b"Welcome!", b"doctor-1")
    (b'{}', None)
    """
    prefix = marker + b" "
    return line.removeprefix(prefix) if line.startswith(prefix) else None
