"""kubectl as a program: its words, one request to the API server, and what its complaints mean.

kubectl brings every way to log in (tokens, certificates, exec plugins, the pod's own account); nothing of that is
done here. ``DOCTOR_KUBECTL`` may hold other words, such as ``oc`` or a path.

Sources: kubectl's cmd/exec and cmd/util/helpers.go (``Error from server (Reason): ...``, ``command terminated with
exit code N``); apimachinery's api/errors. What the tests read was printed by a real cluster.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from doctor.engine.bounded_run import TooMuchOutput, run_bounded
from doctor.engine.quantities import bytes_text, seconds_text
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import ending, filled
from doctor.engine.toml_compat import read_table
from doctor.transport import TransportError, TransportErrorKind, transport_error
from doctor.transport.options import CONNECT_TIMEOUT
from doctor.transport.patience import Patience

AnswerT = TypeVar("AnswerT")
REQUEST_SECONDS = 15.0
"""For one request of a list; an API server that is slow answers within that, or not at all."""
MAX_RESPONSE = 64 << 20
"""Bytes of one response: 10,000 pods of 6 KB."""
_RETRY_SECONDS = 0.5
_ABSENT = frozenset(("refused", "dropped", "lost"))
"""Kinds of an API server that may be there again soon."""
_TERMINATED = re.compile(rb"(?:^|\n)command terminated with exit code (\d{1,3})\s*\Z")
_OWN_LOG = re.compile(rb"^[EWI]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [\w.]{1,40}:\d+\] .*\n?", re.MULTILINE)
"""Of klog, which kubectl uses: ``E1124 14:46:31.687105   25087 v2.go:104] ...``."""


class _Complaint(msgspec.Struct, frozen=True):
    pattern: str
    """Of kubectl's message; the first group, if any, is what the text names."""
    kind: TransportErrorKind
    text: str
    hint: str = ""


NO_LOG = "(?:unable to retrieve container logs for|failed to try resolving symlinks in path|failed to open log file)"
"""How the kubelet begins its line where it has a log no longer: kubectl prints it as the log itself, and ends with 0.

Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container.go (GetContainerLogs), logs/logs.go (ReadLogs); the second was
seen with 1.20.2.
"""


@cache
def _complaints() -> tuple[_Complaint, ...]:
    return read_table(Path(__file__).with_suffix(".toml"), dict[str, tuple[_Complaint, ...]])["complaint"]


def command_line(kubeconfig: str = "", context: str = "", environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The program with its options for the cluster. Raises: TransportError, where it is not installed."""
    try:
        program = shlex.split(environ.get("DOCTOR_KUBECTL") or "kubectl")
    except ValueError as error:
        raise transport_error("error", filled("DOCTOR_KUBECTL: {0}", error)) from None
    path = shutil.which(program[0], path=environ.get("PATH"))
    if path is None:
        name = strip_control_chars(program[0], 80)
        raise transport_error("error", filled("{0} is not installed on this machine", name))
    options = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    options += [f"--context={context}"] if context else []
    return (path, *program[1:], *options)


def while_absent(
    attempt: Callable[[], AnswerT], patience: float, begun: Callable[[TransportError], bool] = lambda error: False
) -> AnswerT:
    """What ``attempt`` returns. An API server that is absent is tried again, the last time after ``patience`` seconds.

    ``begun``: whether what was attempted has an effect already, so that it is not done twice.
    Raises: TransportError, that of the last attempt.
    """
    with closing(Patience(patience).watched()) as clock:
        while True:
            is_last = clock.remaining() <= 0
            try:
                return attempt()
            except TransportError as error:
                # An attempt that fails while doctor stands still is not the last one.
                if (is_last and clock.remaining() <= 0) or error.kind not in _ABSENT or begun(error):
                    raise
            time.sleep(_RETRY_SECONDS)


def ask(
    kubectl: Sequence[str],
    *argv: str,
    seconds: float = REQUEST_SECONDS,
    limit: int = MAX_RESPONSE,
    patience: float = CONNECT_TIMEOUT,
) -> bytes:
    """What one command of kubectl prints; it only reads. ``patience``: see `while_absent`. Raises: TransportError."""
    return while_absent(lambda: _ask_once(kubectl, argv, seconds, limit), patience)


def _ask_once(kubectl: Sequence[str], argv: Sequence[str], seconds: float, limit: int) -> bytes:
    try:
        done = run_bounded([*kubectl, *argv], seconds, limit, english_environ())
    except subprocess.TimeoutExpired:
        text = filled("the API server does not answer within {0}", seconds_text(seconds))
        raise transport_error("dropped", text) from None
    except TooMuchOutput:
        raise transport_error("flood", filled("the API server sent more than {0}", bytes_text(limit))) from None
    except OSError as error:
        raise transport_error("error", filled("kubectl could not be started: {0}", error.strerror)) from None
    if done.returncode:
        raise complaint(done.stderr)
    return done.stdout


def english_environ() -> dict[str, str]:
    """The environment in which kubectl's messages are those that `complaint` knows."""
    return {**os.environ, "LC_ALL": "C"}


def reported_exit_code(err: bytes) -> int | None:
    """The exit code of the command in the container, where kubectl tells it; None where kubectl itself failed."""
    match = _TERMINATED.search(err)
    return int(match[1]) if match else None


def without_report(err: bytes) -> bytes:
    """What the command in the container printed, without kubectl's last line on it and its log of its own trouble."""
    return _OWN_LOG.sub(b"", _TERMINATED.sub(b"", err))


def complaint(err: bytes) -> TransportError:
    """Why kubectl failed, by what it printed on stderr: untrusted, and partly the API server's words."""
    text = " ".join(ending(err, 4096).split())
    message = strip_control_chars(_message(text), 300)
    for row in _complaints():
        match = re.search(row.pattern.replace("NO_LOG", NO_LOG), text)
        if match:
            detail = strip_control_chars(next(filter(None, match.groups()), message), 200)
            return transport_error(row.kind, filled(row.text, detail, message=message), _hint(row.hint, text))
    return transport_error("error", filled("kubectl failed: {0}", message or "no reason given"))


def _message(text: str) -> str:
    """The last complaint of several: what went before it are warnings, and attempts by other protocols."""
    starts = [
        match.start() for match in re.finditer(r"(?:error: |Error from server|Unable to connect|The connection)", text)
    ]
    return text[starts[-1] :] if starts else text


def _hint(kind: str, text: str) -> str:
    if kind == "rbac":
        match = re.search(r"cannot (\w{1,20}) resource \"([\w./-]{1,60})\"", text)
        return f"kubectl auth can-i {match[1]} {match[2]}" if match else "kubectl auth can-i --list"
    if kind == "config":
        return "kubectl config view"
    return "kubectl get nodes" if kind == "node" else ""
