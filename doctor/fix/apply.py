"""Runs the steps of a plan on one host. Each step and its undo are saved before the step runs."""

from __future__ import annotations

import base64
import hashlib
import threading
from typing import Any, Literal

import msgspec

from doctor.engine.record import redact
from doctor.engine.sanitize import strip_control_chars
from doctor.fix.file_edits import FileState, edited_content
from doctor.fix.inspect_host import HostExecutors, describe_failure, find_activity, inspect_host, read_before
from doctor.fix.journal import Journal, UndoStep
from doctor.fix.plan import HostPlan, host_plan
from doctor.fix.remote_client import ConnectionLost, RemoteExecutor, RequestRejected
from doctor.fix.select import ReadyStep, Treatment
from doctor.remedy.playbook import PlaybookStep, TemplateError
from doctor.transport import Transport

STEP_SECONDS = 120.0
"""For one step."""
MAX_OUTPUT_BYTES = 4096
LOCK_SECONDS = 10.0
"""Seconds to wait for another `doctor fix` on a host."""


class HostResult(msgspec.Struct, frozen=True):
    """What became of one host."""

    host: str
    state: Literal["applied", "busy", "refused", "stopped"]
    """``find_activity`` and ``refused``: nothing was done on it; ``stopped``: steps were done, or may have been."""
    applied: tuple[str, ...] = ()
    """Descriptions of the completed steps."""
    reason: str = ""


class HostWork(msgspec.Struct, frozen=True):
    """The work on a host: its plan, and the data of the plan."""

    host_plan: HostPlan
    treatments: tuple[Treatment, ...]
    ready_steps: tuple[ReadyStep, ...]


class PlanApplier:
    """Applies one plan, host by host, from many threads; ``stop_event`` keeps every host from its next step."""

    def __init__(self, transport: Transport, journal: Journal, force: bool, stop: threading.Event) -> None:
        self.transport, self.journal, self.force, self.stop_event = transport, journal, force, stop

    def apply_host(self, host_work: HostWork) -> HostResult:
        """Inspects the host again, and runs the steps if it has not changed. Never raises for host errors."""
        executors = HostExecutors(self.transport, host_work.host_plan.host, LOCK_SECONDS)
        applied: list[str] = []
        try:
            refusal = self._refusal(executors, host_work)
            if refusal:
                return refusal
            self._apply_steps(executors, host_work, applied)
        except (ConnectionLost, RequestRejected) as error:
            return HostResult(
                host_work.host_plan.host, "stopped" if applied else "refused", tuple(applied), redact(str(error))
            )
        except _HostStopped as error:
            return HostResult(host_work.host_plan.host, "stopped", tuple(applied), redact(str(error)))
        finally:
            executors.close()
        return HostResult(host_work.host_plan.host, "applied", tuple(applied))

    def _refusal(self, executors: HostExecutors, host_work: HostWork) -> HostResult | None:
        """What speaks against it, before the first step."""
        current_plan = host_plan(
            executors.host, host_work.treatments, host_work.ready_steps, inspect_host(executors, host_work.ready_steps)
        )
        if current_plan.failure or current_plan.digest != host_work.host_plan.digest:
            return HostResult(
                executors.host, "refused", reason=current_plan.failure or "its state differs from the plan"
            )
        activity = () if self.force else find_activity(executors.most_privileged())
        return (
            HostResult(executors.host, "busy", reason=f"{'; '.join(activity[:3])} (--force proceeds)")
            if activity
            else None
        )

    def _apply_steps(self, executors: HostExecutors, host_work: HostWork, applied: list[str]) -> None:
        for ready_step, preview in zip(host_work.ready_steps, host_work.host_plan.steps, strict=True):
            if preview.skip or preview.kind == "hands":
                continue
            if self.stop_event.is_set():
                raise RequestRejected("interrupted before the next step")
            self._apply_step(executors.for_step(ready_step), ready_step, preview.description, applied)

    def _apply_step(self, remote: RemoteExecutor, ready_step: ReadyStep, description: str, applied: list[str]) -> None:
        """Raises: _Stopped, when it was made and failed, or may have been made; Lost and Declined when it was not."""
        was = read_before(remote, ready_step.filled_step)
        try:
            step = ready_step.with_before(was)
        except TemplateError as error:
            raise RequestRejected(strip_control_chars(str(error))) from None
        request, undo, command = (_file_request if step.file else _command_request)(remote, ready_step, step, was)
        try:
            number = self.journal.record_step(remote.host, ready_step.playbook.name, description, command, undo)
        except OSError as error:
            raise RequestRejected(f"the journal cannot be written: {error.strerror}") from None
        try:
            response = remote.call(**request)
        except RequestRejected as why:
            self.journal.record_end(number, remote.host, None, str(why), ran=False)
            raise
        except ConnectionLost as why:
            self.journal.record_end(number, remote.host, None, f"unknown: {why}")
            raise _HostStopped(
                f"connection lost during “{description}”, which may or may not be complete: {why}"
            ) from None
        code = response.get("code", 0)
        self.journal.record_end(number, remote.host, code, f"{response.get('out', '')}\n{response.get('err', '')}")
        if code or response.get("trouble"):
            raise _HostStopped(f"“{description}”: the command {describe_failure(response)}")
        applied.append(description)


class _HostStopped(Exception):
    """The host is left as it is: something was done on it, or may have been."""


def _command_request(
    remote: RemoteExecutor, ready_step: ReadyStep, step: PlaybookStep, was: str
) -> tuple[dict[str, Any], UndoStep | None, str]:
    undo = (
        UndoStep(0, remote.host, ready_step.playbook.root, step.say, step.undo, step.before, was) if step.undo else None
    )
    return {"op": "run", "seconds": STEP_SECONDS, "sh": step.run, "limit": MAX_OUTPUT_BYTES}, undo, step.run


def _file_request(
    remote: RemoteExecutor, ready_step: ReadyStep, step: PlaybookStep, was: str
) -> tuple[dict[str, Any], UndoStep | None, str]:
    """Raises: Lost; Declined."""
    del was
    old = msgspec.convert(remote.call("peek", path=step.file), FileState)
    if old.trouble:
        raise RequestRejected(f"{old.real}: {old.trouble}")
    new = edited_content(old.content, step)
    data = b"" if new is None else new
    sha = hashlib.sha256(data).hexdigest()
    exists = old.kind == "file"
    request = {
        "op": "write",
        "path": old.real,
        "data": base64.b64encode(data).decode("ascii"),
        "mode": old.mode if exists else int(step.mode or "644", 8),
        "uid": old.uid if exists else None,
        "gid": old.gid if exists else None,
        "sha": old.sha,
        "missing": old.missing,
    }
    undo = UndoStep(0, remote.host, ready_step.playbook.root, step.say, file=old.real, old=old, new=sha)
    return request, undo, f"write {old.real}"
