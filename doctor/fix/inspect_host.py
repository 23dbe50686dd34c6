"""Inspects a host before a change: the state that the steps will change, and running jobs. Read-only."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

import msgspec

from doctor.engine.sanitize import last_line, strip_control_chars
from doctor.engine.texts import filled
from doctor.fix.file_edits import FileState, edited_content
from doctor.fix.plan import HostInspection, StepProbe
from doctor.fix.remote_client import (
    BusyResponse,
    FilesResponse,
    FilterResponse,
    RemoteExecutor,
    RequestRejected,
    RunResponse,
)
from doctor.fix.select import ReadyStep
from doctor.remedy.playbook import PlaybookStep
from doctor.remote.runtime.reading import ENGINE_MARKS
from doctor.transport import Transport

MAX_OUTPUT_BYTES = 65536
"""Bytes of a command's output."""
READ_SECONDS = 30.0
"""For a read-only command."""
MAX_FILE_BYTES = 1 << 20
MAX_REASON_CHARS = 200
IN_CONTAINER = f"""\
test "$(stat -L -c %i /proc/self/ns/pid)" != 4026531836 || exit 1
for mark in {" ".join(ENGINE_MARKS)}; do test -e $mark && exit; done
grep -Eq 'docker|kubepods|libpod|containerd' /proc/1/cgroup && exit
tr '\\0' '\\n' </proc/1/environ | grep -q '^KUBERNETES_SERVICE_HOST='"""
"""Read-only: exits 0 in a container. 4026531836 is the number of the kernel's first namespace of processes."""
CONTAINER_SKIP = "it belongs to the host, and this is a container: see doctor explain containers"


class HostExecutors:
    """The ways to work on one host: as root and as the login user, each begun when it is first needed."""

    def __init__(self, transport: Transport, host: str, lock: float = -1.0) -> None:
        self._open: Callable[[bool], RemoteExecutor] = lambda root: RemoteExecutor(transport, host, root, lock)
        self._executors: dict[bool, RemoteExecutor] = {}
        self.host = host

    def for_step(self, ready_step: ReadyStep) -> RemoteExecutor:
        """The one that a step is made by. Raises: Lost."""
        return self.get(ready_step.playbook.root)

    def get(self, root: bool) -> RemoteExecutor:
        """Raises: Lost."""
        if False not in self._executors:
            self._executors[False] = self._open(False)
        if self._executors[False].uid == 0:  # who logs in as root is root for every step
            return self._executors[False]
        if root not in self._executors:
            self._executors[root] = self._open(root)
        return self._executors[root]

    def most_privileged(self) -> RemoteExecutor:
        """The started executor with the most rights. Raises: ConnectionLost."""
        return self._executors.get(True) or self.get(False)

    def close(self) -> None:
        for remote in self._executors.values():
            remote.close()


def inspect_host(executors: HostExecutors, ready_steps: Sequence[ReadyStep]) -> HostInspection:
    """Reads the state that the steps will change, of each playbook until it fails. Raises: ConnectionLost."""
    login = executors.get(False)
    root = ""
    if any(ready_step.playbook.root for ready_step in ready_steps):
        root = "login" if login.uid == 0 else "sudo"
        executors.get(True)
    probes: list[StepProbe] = []
    contents: dict[str, bytes | None] = {}
    host_only = any(ready_step.playbook.host_only for ready_step in ready_steps)
    contained = host_only and not _run_read_only(executors.most_privileged(), IN_CONTAINER, {}).code
    failed: set[str] = set()
    for ready_step in ready_steps:
        if contained and ready_step.playbook.host_only:
            probes.append(StepProbe(skip=CONTAINER_SKIP))
        elif ready_step.playbook.name in failed:
            probes.append(StepProbe())
        else:
            probes.append(_probe_step(executors.for_step(ready_step), ready_step.filled_step, contents))
            failed.update([ready_step.playbook.name] if probes[-1].failure else [])
    return HostInspection(tuple(probes), root)


def _probe_step(remote: RemoteExecutor, step: PlaybookStep, contents: dict[str, bytes | None]) -> StepProbe:
    """``contents`` are the files as the steps before this one leave them."""
    if step.only:
        response = _run_read_only(remote, step.only, step.values)
        if response.code == 1:
            return StepProbe(skip="does not apply here")
        if response.code:
            return StepProbe(failure=filled("`{0}` {1}", step.only, describe_failure(response)))
    if step.keep:
        return _probe_kept(remote, step)
    state, filtered = None, None
    if step.file:
        try:
            state = remote.peek(step.file)
            if state.trouble:
                return StepProbe(failure=filled("{0}: {1}", state.real, state.trouble), file=state)
            old = contents.get(state.real, state.content)
            filtered = run_filter(remote, step, old) if step.filter else None
        except RequestRejected as why:
            return StepProbe(failure=filled("{0}: {1}", step.file, why))
        contents[state.real] = edited_content(old, step, filtered)
    probe = _probe_before(remote, step, state)
    managed = managed_header(state.content) if state else ""
    return msgspec.structs.replace(probe, filtered=filtered, managed=managed) if state else probe


def _probe_kept(remote: RemoteExecutor, step: PlaybookStep) -> StepProbe:
    try:
        kept = peek_many(remote, step.file)
    except RequestRejected as why:
        return StepProbe(failure=filled("{0}: {1}", step.file, why))
    bad = next((filled("{0}: {1}", path, state.trouble) for path, state in kept.items() if state.trouble), "")
    return StepProbe(failure=bad, kept=kept)


def peek_many(remote: RemoteExecutor, pattern: str) -> dict[str, FileState]:
    """The files that a pattern matches. Raises: ConnectionLost; RequestRejected."""
    return remote.call(FilesResponse, "peek_many", pattern=pattern).files


def run_filter(remote: RemoteExecutor, step: PlaybookStep, old: bytes | None) -> bytes:
    """What the step's filter makes of a file. Raises: ConnectionLost; RequestRejected."""
    data = base64.b64encode(old or b"").decode("ascii")
    response = remote.call(
        FilterResponse,
        "filter",
        READ_SECONDS,
        sh=step.filter,
        values=dict(step.values),
        data=data,
        limit=MAX_FILE_BYTES,
    )
    if response.code or response.cut or response.trouble:
        raise RequestRejected(filled("`{0}` {1}", step.filter, describe_failure(response)))
    return response.data


_COMMENT = re.compile(rb"\s*(?:#|;|//|<!--|\{#)")
_MANAGED = re.compile(
    r"\b(ansible|puppet|chef|salt|saltstack|cfengine|terraform|cloud-init|warewulf|xcat|confluent|foreman|bcm)\b"
    r"|do not (edit|modify|change)|don't (edit|modify|change)|manage_etc_hosts|managed (by|file)"
    r"|will be (overwritten|lost)"
)
"""Words in the header of a file that a program writes again and again."""


def managed_header(content: bytes | None) -> str:
    r"""The line by which a configuration management or cloud-init says that a file is its own; else empty.

    >>> managed_header(b"# Ansible managed\n127.0.0.1 localhost\n")
    '# Ansible managed'
    >>> managed_header(b"# my hosts\n10.0.0.1 chef\n")
    ''
    """
    for line in (content or b"")[:8192].splitlines()[:60]:
        text = line[:300].decode("utf-8", "replace")
        if _COMMENT.match(line) and _MANAGED.search(text.lower()):
            return strip_control_chars(text.strip(), MAX_REASON_CHARS)
    return ""


def _probe_before(remote: RemoteExecutor, step: PlaybookStep, state: FileState | None) -> StepProbe:
    if not step.before:
        return StepProbe(file=state)
    response = _run_read_only(remote, step.before, step.values)
    if response.code or response.cut:
        return StepProbe(
            failure=filled("`{0}` {1}, so the step could not be undone", step.before, describe_failure(response))
        )
    return StepProbe(before=response.out.strip(), file=state)


def read_before(remote: RemoteExecutor, step: PlaybookStep) -> str:
    """What the step's ``before`` prints. Raises: ConnectionLost; RequestRejected."""
    probe = _probe_before(remote, step, None)
    if probe.failure:
        raise RequestRejected(probe.failure)
    return probe.before


def _run_read_only(remote: RemoteExecutor, sh: str, values: Mapping[str, str]) -> RunResponse:
    try:
        return remote.call(RunResponse, "run", READ_SECONDS, sh=sh, values=dict(values), limit=MAX_OUTPUT_BYTES)
    except RequestRejected as why:
        return RunResponse(126, "", str(why), False)


def describe_failure(response: RunResponse) -> str:
    """How a command ended, as text."""
    if response.trouble:
        return response.trouble
    if response.cut:
        return filled("printed more than {0} bytes", MAX_OUTPUT_BYTES)
    reason = last_line(response.err) or last_line(response.out)
    ended = (
        filled("died of signal {0}", -response.code) if response.code < 0 else filled("ended with {0}", response.code)
    )
    return f"{ended}{f': {reason}' if reason else ''}"


def find_activity(remote: RemoteExecutor) -> tuple[str, ...]:
    """Running work on the host: processes on its accelerators, Slurm jobs. Unknown counts as work.

    Raises: Lost.
    """
    try:
        response = remote.call(BusyResponse, "busy", READ_SECONDS)
    except RequestRejected as why:
        return (filled("the users of its accelerators are unknown: {0}", why), *_jobs(remote))
    activity = [
        filled(
            "process {0} ({1}, {2}) uses {3}",
            holder.pid,
            strip_control_chars(holder.name),
            strip_control_chars(holder.user),
            holder.what,
        )
        for holder in response.holders
    ]
    if response.hidden:
        activity.append(filled("{0} processes cannot be inspected without root", response.hidden))
    if response.trouble:
        activity.append(strip_control_chars(response.trouble))
    return (*activity, *_jobs(remote))


_NO_SLURM = ("Invalid node name", "_establish_config_source", "establish a configuration source")
"""Errors of squeue if there is no cluster, or none with this host."""


def _jobs(remote: RemoteExecutor) -> list[str]:
    """The Slurm jobs on the host, by our own ``squeue``, else by the host's."""
    if shutil.which("squeue"):
        argv = ["squeue", "-h", "-w", remote.host, "-o", "%i"]
        try:
            process = subprocess.run(argv, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired):
            return ["Slurm's jobs on it are unknown: squeue did not answer"]
        code, out, err = process.returncode, process.stdout, process.stderr
    else:
        sh = 'command -v squeue >/dev/null || exit 0; squeue -h -w "$(hostname -s)" -o %i'
        response = _run_read_only(remote, sh, {})
        code, out, err = response.code, response.out, response.err
    if code:
        return (
            []
            if any(pattern in err for pattern in _NO_SLURM)
            else [filled("Slurm's jobs on it are unknown: {0}", strip_control_chars(err))]
        )
    return [filled("Slurm job {0} runs on it", strip_control_chars(job, 40)) for job in out.split()]
