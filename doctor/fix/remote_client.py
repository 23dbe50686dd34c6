"""The controller's end of the executor on a host: one request, one answer."""

from __future__ import annotations

import json
import queue
import threading
import time
from typing import Any

import msgspec

from doctor.engine.decoding import prepare_decoding
from doctor.engine.sanitize import strip_control_chars
from doctor.fix.bootstrap import executor_request
from doctor.fix.file_edits import FileState
from doctor.remote.bootstrap import python_problem
from doctor.remote.request import marked_text
from doctor.transport import Transport, TransportError

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
}
UNREADABLE_RESPONSE = "the output of the program on the host cannot be read"


class ConnectionLost(Exception):
    """The host cannot be worked on, or no longer: one plain sentence without its name."""


class RequestRejected(Exception):
    """The host did not do it, and nothing has changed: one plain sentence."""


class RemoteExecutor:
    """Works on one host, as root or as the login user. For one thread at a time.

    Raises: Lost, when the program does not start.
    """

    def __init__(self, transport: Transport, host: str, root: bool, lock: float = -1.0) -> None:
        self.host, self.root = host, root
        self._responses: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._end_reason = ""
        request = executor_request(root, lock)
        self._marker = request.marker.encode("ascii")
        try:
            self._session = transport.open_session(host, request.command)
            threading.Thread(target=self._read_responses, daemon=True).start()
            self._session.send(request.stdin)
            hello = self._next_response(max(lock, 0) + 2 * RESPONSE_GRACE_SECONDS)
        except TransportError as error:
            raise ConnectionLost(strip_control_chars(error.text)) from None
        except ConnectionLost:
            self.close()
            raise
        if "refused" in hello:
            self.close()
            raise ConnectionLost(strip_control_chars(str(hello["refused"])))
        self.uid: int = self._validated(hello, ExecutorHello)["uid"]

    def call(self, op: str, seconds: float = 10.0, **arguments: Any) -> dict[str, Any]:
        """Asks for one thing, and waits for it. Raises: Lost; Declined."""
        if op in ("run", "filter"):
            arguments["seconds"] = seconds
        try:
            self._session.send(json.dumps({"op": op, **arguments}).encode("ascii") + b"\n")
        except TransportError as error:
            raise ConnectionLost(self._end_reason or strip_control_chars(error.text)) from None
        more = RESPONSE_GRACE_SECONDS if arguments.get("state") else 0.0
        response = self._next_response(seconds + more + RESPONSE_GRACE_SECONDS)
        if "refused" in response:
            raise RequestRejected(strip_control_chars(str(response["refused"])))
        return self._validated(response, RESPONSE_TYPES[op])

    def close(self) -> None:
        self._session.close()

    def _validated(self, response: dict[str, Any], shape: Any) -> dict[str, Any]:
        """The answer, if it is one: a host is not trusted. Raises: Lost."""
        try:
            msgspec.convert(response, shape)
        except msgspec.ValidationError:
            self.close()
            raise ConnectionLost(UNREADABLE_RESPONSE) from None
        return response

    def _read_responses(self) -> None:
        try:
            for line in self._session:
                text = marked_text(line, self._marker)
                if text is not None:
                    self._responses.put(msgspec.json.decode(text, type=dict[str, Any]))
            self._end_reason = self._describe_end()
        except TransportError as error:
            self._end_reason = strip_control_chars(error.text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            self._end_reason = UNREADABLE_RESPONSE
        self._responses.put(None)

    def _describe_end(self) -> str:
        errors = self._session.err.decode("utf-8", "replace")
        if python_problem(errors):
            return python_problem(errors)
        last_line = strip_control_chars((errors.strip().splitlines() or [""])[-1])
        if self.root and last_line.startswith("sudo:"):
            return f"root is not available: sudo -n: {last_line.removeprefix('sudo:').strip()}"
        return f"the program on the host ended: {last_line or f'exit status {self._session.code}'}"

    def _next_response(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            try:
                response = self._responses.get(timeout=min(remaining, 0.5))
            except queue.Empty:
                continue
            if response is None:
                self._responses.put(None)
                raise ConnectionLost(self._end_reason or "the connection was lost")
            return response
        raise ConnectionLost(f"no answer within {seconds:g} s")


prepare_decoding(*RESPONSE_TYPES.values(), dict[str, Any])
