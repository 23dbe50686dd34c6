"""Sends one message one way: a command, a webhook, the host's sendmail. Each says why it failed, and never its URL."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from email.message import EmailMessage
from http.client import HTTPException
from typing import TYPE_CHECKING

import msgspec

from doctor.config.notify_targets import NotifyTarget
from doctor.engine.http_answer import http_answer
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.session.notify.message import Message
from doctor.session.notify.shapes import refusal, request_of, shapes

if TYPE_CHECKING:
    from doctor.session.notify.node_status import NodeVerdict

SENDMAIL = ("/usr/sbin/sendmail", "/usr/lib/sendmail")
"""Where the Filesystem Hierarchy Standard and older systems have it, after PATH."""
MAX_ANSWER = 1 << 16
"""Bytes of a webhook's answer that are read."""


class NotSent(Exception):
    """Why a message was not sent: one line without the URL."""


def send(target: NotifyTarget, message: Message, verdicts: Sequence[NodeVerdict] = ()) -> None:
    """``verdicts``: for a receiver that is the nodes themselves. Raises: NotSent."""
    if target.node_parts:
        from doctor.session.notify.node_writer import write_node_verdicts

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
