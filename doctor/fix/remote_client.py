"""The controller's end of the executor on a host: one request, one answer."""

from __future__ import annotations

import json
import time
from collections import deque
from contextlib import suppress
from typing import Any

import msgspec

from doctor.engine.decoding import prepare_decoding
from doctor.engine.sanitize import last_line, strip_control_chars
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import filled
from doctor.fix.executor import MODULES
from doctor.fix.file_edits import FileState
from doctor.remote.bootstrap import python_problem
from doctor.remote.request import Request, new_marker
from doctor.transport import RemoteSession, Transport, TransportError
from doctor.transport.program import (
    HostProgram,
    InvalidMessage,
    ProgramLost,
    ProgramSessions,
    decode_message,
    start_session,
)

EXECUTOR = HostProgram("executor", MODULES)
RESPONSE_GRACE_SECONDS = 30.0
"""Seconds beyond what the work itself may take."""


class ExecutorHello(msgspec.Struct):
    """What the program says first. All of these are only to tell an answer from what is none."""

    uid: int


class StateResponse(msgspec.Struct):
    """The state after a step: what its ``before`` prints, None where that failed, and files by pattern and path."""

    output: str | None
    files: dict[str, dict[str, FileState]]


class RunResponse(msgspec.Struct):
    """The result of a command: exit code, stdout, stderr, and whether they were cut."""

    code: int
    out: str
    err: str
    cut: bool
    trouble: str = ""
    state: StateResponse | None = None


class FilterResponse(RunResponse):
    """The same with stdout as bytes."""

    data: bytes = b""


class FilesResponse(msgspec.Struct):
    """The files of a pattern."""

    files: dict[str, FileState]


class RecallResponse(msgspec.Struct):
    """A state that the host kept, if it did."""

    state: StateResponse | None


class DeviceHolder(msgspec.Struct):
    """A process that has a device open."""

    pid: int
    name: str
    user: str
    what: str


class BusyResponse(msgspec.Struct):
    """Who uses the devices; ``hidden``: processes that could not be looked into."""

    holders: list[DeviceHolder]
    hidden: int
    trouble: str


RESPONSE_TYPES = {
    "run": RunResponse,
    "filter": FilterResponse,
    "peek": FileState,
    "peek_many": FilesResponse,
    "write": dict[str, Any],
    "relink": dict[str, Any],
    "tidy": dict[str, Any],
    "recall": RecallResponse,
    "forget": dict[str, Any],
    "busy": BusyResponse,
    "log": dict[str, Any],
}
UNREADABLE_RESPONSE = "the output of the program on the host cannot be read"


class ConnectionLost(Exception):
    """The host cannot be worked on, or no longer: one plain sentence without its name."""


class RequestRejected(Exception):
    """The host did not do it, and nothing has changed: one plain sentence."""


MAX_LOG_CHARS = 400


def log_text(text: str) -> str:
    """A line for a host's log: without secrets and control characters, and not long."""
    return strip_control_chars(hide_secrets(text), MAX_LOG_CHARS)


def executor_request(root: bool, lock: float) -> Request:
    """Starts the executor; ``lock``: seconds to wait for another one on that host, below 0 takes no lock."""
    marker = new_marker()
    return EXECUTOR.request(marker, json.dumps({"marker": marker, "lock": lock}).encode("ascii"), as_root=root)


class RemoteExecutor(ProgramSessions):
    """Works on one host, as root or as the login user. For one thread at a time.

    ``lock``: seconds to wait for another one on that host; below 0 takes no lock.

    Raises: ConnectionLost, when the program does not start.
    """

    poll_seconds = 0.5

    def __init__(self, transport: Transport, host: str, root: bool, lock: float = -1.0) -> None:
        self.host, self.root = host, root
        self._responses: deque[dict[str, Any]] = deque()
        request = executor_request(root, lock)
        try:
            self._session = start_session(transport, host, request)
        except TransportError as error:
            raise ConnectionLost(strip_control_chars(error.text)) from None
        super().__init__(EXECUTOR.name, {host: lambda: self._session}, request.marker)
        try:
            hello = self._next_response(max(lock, 0) + 2 * RESPONSE_GRACE_SECONDS)
        except ConnectionLost:
            self.close()
            raise
        if "refused" in hello:
            self.close()
            raise ConnectionLost(strip_control_chars(str(hello["refused"])))
        self.uid: int = self._validated(hello, ExecutorHello)["uid"]

    def call(self, op: str, seconds: float = 10.0, **arguments: Any) -> dict[str, Any]:
        """Asks for one thing, and waits for it. Raises: ConnectionLost; RequestRejected."""
        if op in ("run", "filter"):
            arguments["seconds"] = seconds
        try:
            self._session.send(json.dumps({"op": op, **arguments}).encode("ascii") + b"\n")
        except TransportError as error:
            self.pump(0.0)
            raise ConnectionLost(self._lost_text() or strip_control_chars(error.text)) from None
        more = RESPONSE_GRACE_SECONDS if arguments.get("state") else 0.0
        response = self._next_response(seconds + more + RESPONSE_GRACE_SECONDS)
        if "refused" in response:
            raise RequestRejected(strip_control_chars(str(response["refused"])))
        return self._validated(response, RESPONSE_TYPES[op])

    def log(self, text: str) -> None:
        """Writes a line to the host's own log, where it has one. Raises: ConnectionLost."""
        with suppress(RequestRejected):
            self.call("log", text=log_text(text))

    def close(self, grace: float = 1.0) -> None:
        self._session.close(grace)

    def take_message(self, name: str, data: bytes) -> None:
        """Keeps a response for who waits for it."""
        try:
            self._responses.append(decode_message(_DECODER, data))
        except InvalidMessage:
            self.lost[name] = ProgramLost(UNREADABLE_RESPONSE)

    def end_reason(self, session: RemoteSession) -> ProgramLost:
        """See `ProgramSessions.end_reason`."""
        errors = session.err.decode("utf-8", "replace")
        reason = last_line(errors)
        if self.root and reason.startswith("sudo:"):
            text = filled("root is not available: sudo -n: {0}", reason.removeprefix("sudo:").strip())
        else:
            text = filled("the program on the host ended: {0}", reason or filled("exit status {0}", session.code))
        return ProgramLost(python_problem(errors) or text)

    def _validated(self, response: dict[str, Any], shape: Any) -> dict[str, Any]:
        """The answer, if it is one: a host is not trusted. Raises: ConnectionLost."""
        try:
            msgspec.convert(response, shape)
        except msgspec.ValidationError:
            self.close()
            raise ConnectionLost(UNREADABLE_RESPONSE) from None
        return response

    def _lost_text(self) -> str:
        """Why no more responses come; empty where they may."""
        return self.lost[self.host].text if self.lost else ""

    def _next_response(self, seconds: float) -> dict[str, Any]:
        """Raises: ConnectionLost."""
        if not self.wait(lambda: bool(self._responses or self.lost), time.monotonic() + seconds):
            raise ConnectionLost(filled("no answer within {0} s", f"{seconds:g}"))
        if not self._responses:
            raise ConnectionLost(self._lost_text())
        return self._responses.popleft()


_DECODER = msgspec.json.Decoder(dict[str, Any])
prepare_decoding(*RESPONSE_TYPES.values(), dict[str, Any])
