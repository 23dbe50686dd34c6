"""The logs of pods as the API server keeps them: of their container, of init containers that failed, of earlier starts.

A pod that has ended can still be read so; nothing runs in it. Each log is read by the excerpter here, as if it lay on
its host, and what ``kubectl describe`` says of the pods, with their events, is the word of their scheduler.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from doctor.diagnose.fetch.ask_hosts import LogRequest, ask_hosts
from doctor.diagnose.fetch.saved_logs import SCHEMA, HostLogs, LogRecord
from doctor.diagnose.signature import Signature
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.engine.utc_time import utc_text
from doctor.transport import CommandResult, RemoteSession, TransportError, transport_error
from doctor.transport.kubernetes import kubectl
from doctor.transport.kubernetes.pods import Pod
from doctor.transport.local import Local
from doctor.transport.options import CONNECT_TIMEOUT
from doctor.transport.program import parallel_map

_MAX_LOG = 256 << 20
"""Bytes of one container's log; kubectl leaves out the rest, which is its beginning's end."""
_LOG_SECONDS = 120.0
_MAX_DESCRIPTION = 16 << 20
_DESCRIBED_AT_ONCE = 100
_WIDTH = 8
"""Logs that are fetched at the same time: the kubelet reads each from its disk."""
PLACE = "~"
_NO_LOG = kubectl.NO_LOG.encode() + rb" [^\n]*\n?"
_MAX_COMPLAINT = 4096


class PodLogSource(msgspec.Struct, frozen=True):
    """The pods that are read, and the way to them."""

    pods: tuple[Pod, ...]
    kubectl: tuple[str, ...]
    namespace: str
    source: str
    container: str = ""
    """As the user named it; empty for the one that kubectl chooses."""
    notes: tuple[str, ...] = ()
    patience: float = CONNECT_TIMEOUT
    """Seconds for which an API server that is absent is asked again."""


def read_pod_logs(
    source: PodLogSource,
    request: LogRequest,
    signatures: Mapping[str, Signature],
    progress: Callable[[str, bool], None] = lambda host, answered: None,
) -> LogRecord:
    """What the logs of the pods hold; of one that cannot be read, why. Nothing is left on this machine."""
    started = utc_text()
    names = [pod.name for pod in source.pods]
    with tempfile.TemporaryDirectory(prefix="doctor-logs-", ignore_cleanup_errors=True) as folder:
        fetched = parallel_map(source.pods, lambda pod: _fetch(source, pod, Path(folder)), _WIDTH)
        problems = {pod.name: problem for pod, problem in fetched if problem}
        places_request = msgspec.structs.replace(request, places=(PLACE,), kernel=False)
        transport = _InFolders(Path(folder))
        try:
            answers = ask_hosts(names, transport, places_request, signatures, _WIDTH, progress)
        finally:
            transport.close()
    hosts = {name: _named(answers[name], problems.get(name, "")) for name in names}
    texts, notes = _descriptions(source, names)
    where = f"kubectl -n {source.namespace} logs"
    return LogRecord(
        SCHEMA, source.source, started, (where,), request.since, hosts, texts, tuple(names), [*source.notes, *notes]
    )


class _InFolders:
    """`doctor.transport.Transport`: each host's program runs here, with that host's folder as its home."""

    def __init__(self, folder: Path) -> None:
        self.warnings: list[str] = []
        self._folder, self._local = folder, Local()

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        return self._local.run(host, f"export HOME='{self._folder / host}'; {command}", stdin, timeout)

    def open_session(self, host: str, command: str) -> RemoteSession:
        return self._local.open_session(host, command)

    def close(self) -> None:
        self._local.close()


def _fetch(source: PodLogSource, pod: Pod, folder: Path) -> str:
    """Writes the logs of one pod into its folder. Returns why some are not there, or not whole; empty where all are."""
    pod_folder = folder / pod.name
    pod_folder.mkdir(mode=0o700)
    container = pod.container(source.container)
    if not container:
        return filled("its pod has no container {0}", source.container)
    problems = {}
    for status in pod.with_logs(container):
        argv = [*source.kubectl, f"--namespace={source.namespace}", "logs", pod.name, f"--container={status.name}"]
        for suffix, more in (("log", ()), ("previous.log", ("--previous",)))[: 2 if status.restart_count else 1]:
            name = f"{status.name}.{suffix}"
            try:
                kubectl.while_absent(partial(_write, [*argv, *more], pod_folder / name), source.patience)
            except TransportError as error:
                problems[name] = error.text
    if any(path.stat().st_size for path in pod_folder.iterdir()):
        return "; ".join(f"{name}: {text}" for name, text in problems.items())
    return next(iter(problems.values()), "its container printed nothing")


def _write(argv: Sequence[str], path: Path) -> None:
    """Raises: TransportError, where the log could not be fetched, or not all of it."""
    with path.open("wb") as file:
        try:
            done = subprocess.run(
                [*argv, f"--limit-bytes={_MAX_LOG}"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.PIPE,
                timeout=_LOG_SECONDS,
                env=kubectl.english_environ(),
            )
        except subprocess.TimeoutExpired:
            text = filled("its log did not come within {0} s", f"{_LOG_SECONDS:.0f}")
            raise transport_error("timeout", text) from None
        except OSError as error:
            raise transport_error("error", filled("kubectl could not be started: {0}", error.strerror)) from None
    if done.returncode:
        raise kubectl.complaint(done.stderr)
    if path.stat().st_size <= _MAX_COMPLAINT and re.fullmatch(_NO_LOG, complaint := path.read_bytes()):
        path.unlink()
        raise kubectl.complaint(complaint)


def _named(logs: HostLogs, problem: str) -> HostLogs:
    """With names that say which log it is, in the place of paths that are gone by now."""
    files = [msgspec.structs.replace(log, path=os.path.basename(log.path)) for log in logs.files]
    return msgspec.structs.replace(logs, files=files, error=problem or logs.error, unmatched=[])


def _descriptions(source: PodLogSource, names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """What ``kubectl describe`` says, by command, and notes on what it does not.

    It has no word for events that it may not list; so they are asked for by themselves, too.
    """
    texts: dict[str, str] = {}
    where = f"--namespace={source.namespace}"
    try:
        for first in range(0, len(names), _DESCRIBED_AT_ONCE):
            part = names[first : first + _DESCRIBED_AT_ONCE]
            words = (where, "describe", "pods", *part)
            output = kubectl.ask(source.kubectl, *words, limit=_MAX_DESCRIPTION, patience=source.patience)
            command = "kubectl describe pods" + (filled(" ({0} to {1})", first + 1, first + len(part)) if first else "")
            texts[command] = output.decode("utf-8", "replace")
    except TransportError as error:
        return texts, [filled("kubectl describe pods: {0}", strip_control_chars(error.text))]
    try:
        events = f"/api/v1/namespaces/{source.namespace}/events?limit=1"
        kubectl.ask(source.kubectl, "get", "--raw", events, patience=source.patience)
    except TransportError as error:
        return texts, [filled("the events of the pods cannot be read: {0}", strip_control_chars(error.text))]
    return texts, []
