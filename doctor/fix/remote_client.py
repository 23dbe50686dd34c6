"""Our end of the program that `remote` is: one request, one answer."""

from __future__ import annotations

import json
import queue
import threading
import time
from typing import Any

import msgspec

from doctor.engine.sanitize import plain
from doctor.fix.bootstrap import letter
from doctor.fix.file_edits import State
from doctor.transport import Transport, Unreached

PATIENCE = 30.0
"""Seconds beyond what the work itself may take."""


class Hello(msgspec.Struct):
    """What the program says first. All of these are only to tell an answer from what is none."""

    uid: int


class Ran(msgspec.Struct):
    code: int
    out: str
    err: str
    cut: bool
    trouble: str = ""


class Holder(msgspec.Struct):
    pid: int
    name: str
    user: str
    what: str


class Busy(msgspec.Struct):
    holders: list[Holder]
    hidden: int
    trouble: str


class Restored(msgspec.Struct):
    took: str


SHAPES = {"run": Ran, "peek": State, "write": dict[str, Any], "restore": Restored, "busy": Busy}
GIBBERISH = "what the program there says cannot be read"


class Lost(Exception):
    """The host cannot be worked on, or no longer: one plain sentence without its name."""


class Declined(Exception):
    """The host did not do it, and nothing has changed: one plain sentence."""


class Hand:
    """Works on one host, as root or as the login user. For one thread at a time.

    Raises: Lost, when the program does not start.
    """

    def __init__(self, transport: Transport, host: str, root: bool, lock: float = -1.0) -> None:
        self.host, self.root = host, root
        self._heard: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._why = ""
        sent = letter(root, lock)
        self._marker = sent.marker.encode() + b" "
        try:
            self._conversation = transport.talk(host, sent.command)
            threading.Thread(target=self._listen, daemon=True).start()
            self._conversation.send(sent.stdin)
            hello = self._next(max(lock, 0) + 2 * PATIENCE)
        except Unreached as error:
            raise Lost(plain(error.text)) from None
        except Lost:
            self.close()
            raise
        if "refused" in hello:
            self.close()
            raise Lost(plain(str(hello["refused"])))
        self.uid: int = self._shaped(hello, Hello)["uid"]

    def call(self, op: str, seconds: float = 10.0, **words: Any) -> dict[str, Any]:
        """Asks for one thing, and waits for it. Raises: Lost; Declined."""
        if op == "run":
            words["seconds"] = seconds
        try:
            self._conversation.send(json.dumps({"op": op, **words}).encode("ascii") + b"\n")
        except Unreached as error:
            raise Lost(self._why or plain(error.text)) from None
        answer = self._next(seconds + PATIENCE)
        if "refused" in answer:
            raise Declined(plain(str(answer["refused"])))
        return self._shaped(answer, SHAPES[op])

    def close(self) -> None:
        self._conversation.close()

    def _shaped(self, answer: dict[str, Any], shape: Any) -> dict[str, Any]:
        """The answer, if it is one: a host is not trusted. Raises: Lost."""
        try:
            msgspec.convert(answer, shape)
        except msgspec.ValidationError:
            self.close()
            raise Lost(GIBBERISH) from None
        return answer

    def _listen(self) -> None:
        try:
            for line in self._conversation:
                if line.startswith(self._marker):
                    self._heard.put(msgspec.json.decode(line[len(self._marker) :], type=dict[str, Any]))
            self._why = self._ended()
        except Unreached as error:
            self._why = plain(error.text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            self._why = GIBBERISH
        self._heard.put(None)

    def _ended(self) -> str:
        errors = self._conversation.err.decode("utf-8", "replace")
        if "doctor-no-python" in errors or "sys.version_info(" in errors:
            return "there is no python3 of version 3.6 or later"
        words = plain((errors.strip().splitlines() or [""])[-1])
        if self.root and words.startswith("sudo:"):
            return f"no root: sudo -n: {words.removeprefix('sudo:').strip()}"
        return f"the program there ended: {words or f'exit status {self._conversation.code}'}"

    def _next(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                answer = self._heard.get(timeout=min(left, 0.5))
            except queue.Empty:
                continue
            if answer is None:
                self._heard.put(None)
                raise Lost(self._why or "the connection was lost")
            return answer
        raise Lost(f"no answer within {seconds:g} s")
