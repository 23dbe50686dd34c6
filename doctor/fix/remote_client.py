"""The controller's end of the executor on a host: one request, one answer."""

from __future__ import annotations

import json
import time
from collections import deque
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from doctor.engine.decoding import prepare_decoding
from doctor.engine.sanitize import last_line, strip_control_chars
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import filled
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

EXECUTOR = HostProgram("doctor.fix.executor.executor")
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


class Done(msgspec.Struct):
    """A request without content in its answer; ``sha``: of the file, after a write."""

    sha: str = ""


class _Refusal(msgspec.Struct):
    refused: Any = None


ResponseT = TypeVar("ResponseT", bound=msgspec.Struct)
_REFUSAL = msgspec.json.Decoder(_Refusal)
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
        self._responses: deque[bytes] = deque()
        request = executor_request(root, lock)
        try:
            self._session = start_session(transport, host, request)
        except TransportError as error:
            raise ConnectionLost(strip_control_chars(error.text)) from None
        super().__init__(EXECUTOR.name, {host: lambda: self._session}, request.marker)
        try:
            hello = self._next_response(ExecutorHello, max(lock, 0) + 2 * RESPONSE_GRACE_SECONDS)
        except RequestRejected as why:
            self.close()
            raise ConnectionLost(str(why)) from None
        except ConnectionLost:
            self.close()
            raise
        self.uid = hello.uid

    def call(self, response: type[ResponseT], op: str, seconds: float = 10.0, /, **arguments: object) -> ResponseT:
        """Asks for one thing, and waits for it. Raises: ConnectionLost; RequestRejected."""
        if op in ("run", "filter"):
            arguments["seconds"] = seconds
        try:
            self._session.send(json.dumps({"op": op, **arguments}).encode("ascii") + b"\n")
        except TransportError as error:
            self.pump(0.0)
            raise ConnectionLost(self._lost_text() or strip_control_chars(error.text)) from None
        more = RESPONSE_GRACE_SECONDS if arguments.get("state") else 0.0
        return self._next_response(response, seconds + more + RESPONSE_GRACE_SECONDS)

    def peek(self, path: str) -> FileState:
        """The file as it is. Raises: ConnectionLost; RequestRejected."""
        return self.call(FileState, "peek", path=path)

    def log(self, text: str) -> None:
        """Writes a line to the host's own log, where it has one. Raises: ConnectionLost."""
        with suppress(RequestRejected):
            self.call(Done, "log", text=log_text(text))

    def close(self, grace: float = 1.0) -> None:
        self._session.close(grace)

    def take_message(self, name: str, data: bytes) -> None:
        self._responses.append(data)

    def end_reason(self, session: RemoteSession) -> ProgramLost:
        errors = session.err.decode("utf-8", "replace")
        reason = last_line(errors)
        if self.root and reason.startswith("sudo:"):
            text = filled("root is not available: sudo -n: {0}", reason.removeprefix("sudo:").strip())
        else:
            text = filled("the program on the host ended: {0}", reason or filled("exit status {0}", session.code))
        return ProgramLost(python_problem(errors) or text)

    def _lost_text(self) -> str:
        """Why no more responses come; empty where they may."""
        return self.lost[self.host].text if self.lost else ""

    def _next_response(self, response: type[ResponseT], seconds: float) -> ResponseT:
        """The next answer, if it is one: a host is not trusted. Raises: ConnectionLost; RequestRejected."""
        if not self.wait(lambda: bool(self._responses or self.lost), time.monotonic() + seconds):
            raise ConnectionLost(filled("no answer within {0} s", f"{seconds:g}"))
        if not self._responses:
            raise ConnectionLost(self._lost_text())
        data = self._responses.popleft()
        try:
            refused = decode_message(_REFUSAL, data).refused
            if refused is None:
                return decode_message(msgspec.json.Decoder(response), data)
        except InvalidMessage:
            self.close()
            raise ConnectionLost(UNREADABLE_RESPONSE) from None
        raise RequestRejected(strip_control_chars(str(refused)))


prepare_decoding(
    ExecutorHello, RunResponse, FilterResponse, FileState, FilesResponse, RecallResponse, BusyResponse, Done
)
