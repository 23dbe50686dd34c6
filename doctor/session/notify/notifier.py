"""Sends messages by command, webhook or sendmail, each in a thread that is left behind if it does not end in time."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from email.message import EmailMessage
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from doctor.config.file import ConfigError, find_config
from doctor.config.notify_targets import NotifyTarget, WordError, parse_notify
from doctor.engine.check import Check
from doctor.engine.errors import InputError, UsageError
from doctor.engine.exit_code import Exit
from doctor.engine.http_answer import http_answer
from doctor.engine.result import Report
from doctor.engine.sanitize import first_names, printable, strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.engine.toml_compat import loads
from doctor.session.notify.message import Message, line_message, message_of
from doctor.session.notify.node_status import NodeVerdict
from doctor.session.output_files import print_warning
from doctor.session.redact import text_redactor
from doctor.transport import TransportError
from doctor.transport.kubernetes.api_server import MERGE, ApiServer, Conflict

GRACE_SECONDS = 2.0
"""Beyond its own limit, for a thread that is in a call that takes no limit, such as looking up a name."""

MAX_SENDINGS = 256
"""Messages of one process: a bound, for a job whose loss is wrong again and again."""


SENDMAIL = ("/usr/sbin/sendmail", "/usr/lib/sendmail")
"""Where the Filesystem Hierarchy Standard and older systems have it, after PATH."""
MAX_ANSWER = 1 << 16
"""Bytes of a webhook's answer that are read."""


class NotSent(Exception):
    """Why a message was not sent: one line without the URL."""


def send(target: NotifyTarget, message: Message, verdicts: Sequence[NodeVerdict] = ()) -> None:
    """``verdicts``: for a receiver that is the nodes themselves. Raises: NotSent."""
    if target.node_parts:
        if problem := write_node_verdicts(verdicts, target.node_parts, target.seconds):
            raise NotSent(problem)
    elif target.command:
        _run(list(target.command), msgspec.json.encode(message) + b"\n", target.seconds)
    elif target.mail:
        _mail(target, message)
    else:
        _post(target, message)


def _run(argv: list[str], data: bytes, seconds: float) -> None:
    """``data`` on stdin; no shell. It and all that it started are ended after ``seconds``."""
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_unblock_signals,  # noqa: PLW1509 - doctor watch blocks signals, and a child inherits that
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise NotSent(getattr(error, "strerror", None) or "it cannot be started") from None
    try:
        child.communicate(data, timeout=seconds)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise NotSent(filled("no end within {0} s", seconds)) from None
    if child.returncode:
        raise NotSent(filled("exit code {0}", child.returncode))


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _mail(target: NotifyTarget, message: Message) -> None:
    program = shutil.which("sendmail") or next((path for path in SENDMAIL if os.access(path, os.X_OK)), "")
    if not program:
        raise NotSent("this machine has no sendmail")
    mail = EmailMessage()
    mail["To"] = ", ".join(target.mail)
    mail["Subject"] = strip_control_chars(f"doctor {message.command}: {message.headline}", 150)
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834, 5: no answer of a vacation program
    mail.set_content(message.text + "\n")
    # -i: a line with a dot alone does not end it; -t: the addresses are in the header (LSB Core, sendmail).
    _run([program, "-i", "-t"], mail.as_bytes(), target.seconds)


def _post(target: NotifyTarget, message: Message) -> None:
    shape = shapes().get(target.shape)
    url, body = target.url, msgspec.json.encode(message)
    if shape is not None:
        url, document = request_of(shape, target.url, target.secret, message.text, time.time())
        body = msgspec.json.encode(document)
    headers = {"Content-Type": "application/json;charset=utf-8", "User-Agent": "cluster-doctor"}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    answer = _read(request, target.seconds)
    if shape is not None and (why := refusal(shape, answer)):
        raise NotSent(why)


def _read(request: urllib.request.Request, seconds: float) -> bytes:
    """Raises: NotSent."""
    try:
        return http_answer(request, seconds, MAX_ANSWER)
    except urllib.error.HTTPError as error:
        with error:
            if 300 <= error.code < 400:
                raise NotSent(filled("HTTP status {0}; redirects are not followed", error.code)) from None
            raise NotSent(filled("HTTP status {0}", error.code)) from None
    except urllib.error.URLError as error:
        raise NotSent(_reason(error.reason)) from None
    except (OSError, HTTPException, ValueError) as error:
        raise NotSent(_reason(error)) from None


def _reason(error: object) -> str:
    """A few words of the system; what else an exception says may hold the URL."""
    if isinstance(error, (TimeoutError, socket.timeout)):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return strip_control_chars(error.strerror, 120)
    return type(error).__name__


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of ``shapes.toml``."""

    source: str
    """Where the vendor documents it."""
    body: dict[str, object]
    """The JSON of a request, with ``{text}`` in the place of the message."""
    escape: dict[str, str] = {}
    """What stands for a character that the service would read as markup."""
    most: int = 3000
    """Characters of the message."""
    code: str = ""
    """The member of the answer that is 0 where the message was taken; empty: the HTTP status alone says so."""
    reason: str = ""
    """The member that says why not."""
    sign: str = ""
    """Where the signature goes: body, url; empty: it has none."""


@cache
def shapes() -> dict[str, Shape]:
    """By name."""
    with open(os.path.join(os.path.dirname(__file__), "shapes.toml"), encoding="utf-8") as file:
        return msgspec.convert(loads(file.read()), dict[str, Shape])


def request_of(shape: Shape, url: str, secret: str, text: str, now: float) -> tuple[str, dict[str, object]]:
    """The URL and the body, signed where there is a secret. ``now``: Unix time."""
    text = text if len(text) <= shape.most else text[: shape.most - 1] + "…"
    for character, instead in shape.escape.items():
        text = text.replace(character, instead)
    body = _with_text(shape.body, text)
    if secret and shape.sign == "body":
        stamp = str(int(now))
        body = {"timestamp": stamp, "sign": _digest(f"{stamp}\n{secret}", ""), **body}
    elif secret and shape.sign == "url":
        stamp = str(int(now * 1000))
        query = urllib.parse.urlencode({"timestamp": stamp, "sign": _digest(secret, f"{stamp}\n{secret}")})
        url += ("&" if urllib.parse.urlsplit(url).query else "?") + query
    return url, body


def refusal(shape: Shape, answer: bytes) -> str:
    """Why the service did not take a message, though its HTTP status is a good one; empty where it took it."""
    if not shape.code:
        return ""
    try:
        document = msgspec.json.decode(answer, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return "the answer is not the service's JSON"
    code = document.get(shape.code)
    if code == 0 and not isinstance(code, bool):
        return ""
    reason = strip_control_chars(str(document.get(shape.reason, "")), 120)
    return filled("the service answered {0} {1}", printable(str(code), 40), reason)


def _with_text(value: Any, text: str) -> Any:
    if isinstance(value, dict):
        return {key: _with_text(item, text) for key, item in value.items()}
    return text if value == "{text}" else value


def _digest(key: str, message: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), message.encode(), hashlib.sha256).digest()).decode()


_NODES = "/api/v1/nodes/"
_EVENTS = "/api/v1/namespaces/default/events"


def write_node_verdicts(verdicts: Sequence[NodeVerdict], parts: Collection[str], seconds: float) -> str:
    """Writes these parts of each verdict. Returns what could not be written, in one line; empty where all was.

    What one part lacks keeps no other from being written.
    """
    problems: dict[str, list[str]] = {}
    try:
        server = ApiServer(seconds)
        for item in verdicts:
            for problem in _write(server, item, parts):
                problems.setdefault(problem, []).append(item.node)
    except TransportError as error:
        return error.text
    several = len(verdicts) > 1
    return joined(
        "; ", [filled("{0} ({1})", text, first_names(nodes)) if several else text for text, nodes in problems.items()]
    )


def _write(server: ApiServer, item: NodeVerdict, parts: Collection[str]) -> Iterator[str]:
    """What could not be written."""
    path, now = _NODES + quote(item.node, safe=""), datetime.now(timezone.utc)
    node: Mapping[str, Any] = {}
    if {"condition", "event", "taint"} & set(parts):
        try:
            node = server.request("GET", path)
        except TransportError as error:
            yield error.text
            parts = {"label"} & set(parts)  # which alone needs nothing of the node
    requests: list[tuple[str, str, Any, str]] = []
    if "condition" in parts:
        status = {"conditions": [item.condition(node, now)]}
        requests.append(("PATCH", f"{path}/status", {"status": status}, MERGE))
    if "label" in parts:
        requests.append(("PATCH", path, {"metadata": {"labels": item.labels(now)}}, MERGE))
    if "event" in parts and item.changes(node):
        requests.append(("POST", _EVENTS, item.event(now), "application/json"))
    for request in requests:
        try:
            server.request(*request)
        except TransportError as error:
            yield error.text
    if "taint" in parts:
        try:
            _write_taints(server, path, item)
        except TransportError as error:
            yield error.text


def _write_taints(server: ApiServer, path: str, item: NodeVerdict) -> None:
    """The list is one value for the API server: read, and written only to the version that was read.

    Raises: TransportError.
    """
    while True:
        node = server.request("GET", path)
        taints = item.taints(node)
        if taints is None:
            return
        version = node.get("metadata", {}).get("resourceVersion", "")
        try:
            server.request("PATCH", path, {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}, MERGE)
        except Conflict:
            continue  # its deadline ends this
        return


def notify_targets(words: Sequence[str], config: Path | None) -> tuple[NotifyTarget, ...]:
    """Raises: UsageError for a word, InputError for a file that cannot be followed, before anything is done."""
    try:
        return parse_notify(words, find_config(config, os.environ))
    except WordError as error:
        raise UsageError(str(error)) from None
    except ConfigError as error:
        raise InputError(str(error)) from None


def notify(
    targets: Sequence[NotifyTarget],
    report: Report,
    checks: Mapping[str, Check],
    code: int,
    command: str,
    *,
    redact: bool = False,
) -> None:
    """Begins to tell a verdict to all receivers; `await_notifications` waits for them.

    ``redact``: the report has pseudonyms, and this machine gets one as well.
    """
    chosen = [target for target in targets if target.when == "always" or code not in (Exit.HEALTHY, Exit.NOTHING)]
    if chosen:
        try:
            machine = os.uname().nodename
            message = message_of(report, checks, code, command, _redactor(redact)(machine))
            verdicts = _node_verdicts(chosen, report, code, command, message, redact)
        except Exception as error:  # noqa: BLE001 - a verdict does not depend on its message
            print_warning(filled("--notify: not sent: {0}", type(error).__name__))
        else:
            _start(chosen, message, verdicts)


def _node_verdicts(
    targets: Sequence[NotifyTarget], report: Report, code: int, command: str, message: Message, redact: bool
) -> Sequence[NodeVerdict]:
    """The verdicts for the nodes of Kubernetes, where a receiver is these; else nothing."""
    if not any(target.node_parts for target in targets):
        return ()
    from doctor.session.notify.node_status import COMMANDS, node_verdicts

    if code > Exit.NOTHING:
        return ()  # interrupted: the verdict that the nodes have stands until it is too old
    if redact:
        print_warning("--notify kubernetes: not sent: --redact hides the names of the nodes")
        return ()
    if command not in COMMANDS:
        print_warning(filled("--notify kubernetes: not sent: expected {0}", " or ".join(COMMANDS)))
        return ()
    return node_verdicts(report, code, command, message)


def notify_line(
    targets: Sequence[NotifyTarget], headline: str, command: str, source: str, *, is_error: bool, redact: bool = False
) -> None:
    """Begins to tell one line about a run that goes on, such as a loss that is NaN."""
    chosen = [target for target in targets if (is_error or target.when == "always") and not target.node_parts]
    if chosen:
        hide = _redactor(redact)
        texts = hide(headline), command, hide(os.uname().nodename), hide(source)
        _start(chosen, line_message(*texts, is_error=is_error))


def _redactor(redact: bool) -> Callable[[str], str]:
    """What replaces the name of this machine, addresses and users by pseudonyms; nothing without ``--redact``."""
    if not redact:
        return str
    name = os.uname().nodename
    return text_redactor({name, name.partition(".")[0]})


def await_notifications() -> None:
    """Waits for what is on its way, each up to its own limit."""
    for sending in _started:
        sending.join()
    _started.clear()


_started: list[_Sending] = []
"""Of this process."""


def _start(targets: Sequence[NotifyTarget], message: Message, verdicts: Sequence[NodeVerdict] = ()) -> None:
    for target in targets:
        if len(_started) < MAX_SENDINGS and (verdicts or not target.node_parts):
            _started.append(_Sending(target, message, verdicts))


class _Sending:
    """One message on its way to one receiver. Says on stderr, in one line, that it was not sent."""

    def __init__(self, target: NotifyTarget, message: Message, verdicts: Sequence[NodeVerdict]) -> None:
        self.target, self.message, self.verdicts = target, message, verdicts
        self.limit = time.monotonic() + target.seconds + GRACE_SECONDS
        self.told = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        problem = ""
        try:
            send(self.target, self.message, self.verdicts)
        except NotSent as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - its text may hold the URL
            problem = type(error).__name__
        if problem:
            self._tell(problem)

    def _tell(self, problem: str) -> None:
        """Once: a thread that was given up may still come to its end."""
        if self.told:
            return
        self.told = True
        print_warning(filled("--notify {0}: not sent: {1}", self.target.name, problem))

    def join(self) -> None:
        self.thread.join(max(self.limit - time.monotonic(), 0))
        if self.thread.is_alive():
            self._tell(filled("no answer within {0} s", self.target.seconds))
