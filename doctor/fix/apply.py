"""Runs the steps of a plan on one host. Each step and its undo are saved before the step runs."""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from doctor.engine.sanitize import strip_control_chars
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import filled, joined
from doctor.fix.dependence import held_reason
from doctor.fix.file_edits import FileState, edited_content
from doctor.fix.inspect_host import (
    HostExecutors,
    describe_failure,
    find_activity,
    inspect_host,
    peek_many,
    read_before,
    run_filter,
)
from doctor.fix.journal import Journal, StateAfter, UndoStep
from doctor.fix.plan import HostPlan, host_plan, shown_command
from doctor.fix.remote_client import (
    ConnectionLost,
    Done,
    RemoteExecutor,
    RequestRejected,
    RunResponse,
    StateResponse,
    log_text,
)
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
    """``busy`` and ``refused``: nothing was done on it; ``stopped``: steps were done, or may have been."""
    applied: tuple[str, ...] = ()
    """Descriptions of the completed steps."""
    reason: str = ""
    survives: dict[str, str] = {}
    """For each playbook, why a reboot of this host takes its changes back, or why that is not known; empty where it
    does not. Judged after the steps."""
    completed: tuple[str, ...] = ()
    """The playbooks that were applied wholly."""
    failures: dict[str, str] = {}
    """The playbooks that ended at a step, each with the reason; those that do not depend on them went on."""
    held_back: dict[str, str] = {}
    """The playbooks that were not begun, since one on which they depend failed."""


class HostWork(msgspec.Struct, frozen=True):
    """The work on a host: its plan, and the data of the plan."""

    host_plan: HostPlan
    treatments: tuple[Treatment, ...]
    ready_steps: tuple[ReadyStep, ...]
    planned_files: dict[str, bytes] = {}
    """The files as the steps leave them."""


class PlanApplier:
    """Applies one plan, host by host, from many threads; ``stop_event`` keeps every host from its next step."""

    def __init__(self, transport: Transport, journal: Journal, force: bool, stop: threading.Event) -> None:
        self.transport, self.journal, self.force, self.stop_event = transport, journal, force, stop

    def apply_host(self, host_work: HostWork) -> HostResult:
        """Inspects the host again, and runs the steps if it has not changed. Never raises for host errors."""
        executors = HostExecutors(self.transport, host_work.host_plan.host, LOCK_SECONDS)
        progress = _HostProgress(host_work.host_plan)
        try:
            refusal = self._refusal(executors, host_work)
            if refusal:
                return refusal
            count = sum(not step.skip and step.kind in ("run", "file") for step in host_work.host_plan.steps)
            executors.most_privileged().log(filled("{0}: applied, up to {1} steps", self.journal.origin, count))
            self._apply_steps(executors, host_work, progress)
            return progress.result()
        except ConnectionLost as error:
            return progress.stopped_result(hide_secrets(str(error)))
        except _HostStopped as error:
            progress.touched |= error.touched
            return progress.stopped_result(hide_secrets(str(error)))
        except RequestRejected as error:
            return HostResult(host_work.host_plan.host, "refused", reason=hide_secrets(str(error)))
        finally:
            executors.close()

    def _refusal(self, executors: HostExecutors, host_work: HostWork) -> HostResult | None:
        """What speaks against it, before the first step."""
        current_plan = host_plan(
            executors.host, host_work.treatments, host_work.ready_steps, inspect_host(executors, host_work.ready_steps)
        )
        if current_plan.failure or current_plan.digest != host_work.host_plan.digest:
            failed = [why for name, why in current_plan.left_out.items() if name not in host_work.host_plan.left_out]
            reason = current_plan.failure or next(iter(failed), "its state differs from the plan")
            return HostResult(executors.host, "refused", reason=reason)
        activity = () if self.force else find_activity(executors.most_privileged())
        return (
            HostResult(executors.host, "busy", reason=filled("{0} (--force proceeds)", joined("; ", activity[:3])))
            if activity
            else None
        )

    def _apply_steps(self, executors: HostExecutors, host_work: HostWork, progress: _HostProgress) -> None:
        """Raises: ConnectionLost; _HostStopped."""
        kept: dict[str, dict[str, int]] = {}
        """The numbers of the steps that keep files, by playbook and pattern."""
        for ready_step, preview in zip(host_work.ready_steps, host_work.host_plan.steps, strict=True):
            name = ready_step.playbook.name
            if preview.skip or preview.kind == "hands" or not progress.goes_on(name):
                continue
            if self.stop_event.is_set():
                raise _HostStopped("interrupted before the next step")
            remote, patterns = executors.for_step(ready_step), kept.setdefault(name, {})
            try:
                if ready_step.filled_step.keep:
                    patterns[ready_step.filled_step.file] = self._keep_files(remote, ready_step)
                else:
                    self._apply_step(remote, ready_step, preview.description, progress.applied, patterns)
            except RequestRejected as error:
                progress.failures[name] = hide_secrets(str(error))
            except _StepFailed as error:
                progress.failures[name], progress.touched = hide_secrets(str(error)), True

    def _keep_files(self, remote: RemoteExecutor, ready_step: ReadyStep) -> int:
        """Saves the files that the playbook's next steps change. Returns the number of this step."""
        step = ready_step.filled_step
        files = peek_many(remote, step.file)
        undo = UndoStep(
            0, remote.host, ready_step.playbook.root, step.say, ready_step.playbook.name, file=step.file, kept=files
        )
        number = self._record_step(remote.host, ready_step, step.say, filled("save {0}", step.file), undo)
        self.journal.record_state(StateAfter(number, kept=files))
        self.journal.record_end(number, remote.host, 0, "")
        return number

    def _record_step(
        self, host: str, ready_step: ReadyStep, description: str, command: str, undo: UndoStep | None
    ) -> int:
        """Raises: _HostStopped."""
        try:
            return self.journal.record_step(host, ready_step.playbook.name, description, command, undo)
        except OSError as error:
            raise _HostStopped(filled("the journal cannot be written: {0}", error.strerror)) from None

    def _apply_step(
        self,
        remote: RemoteExecutor,
        ready_step: ReadyStep,
        description: str,
        applied: list[str],
        kept: Mapping[str, int],
    ) -> None:
        """Raises: _StepFailed; _HostStopped, when it may have been made; ConnectionLost and RequestRejected if not."""
        was = read_before(remote, ready_step.filled_step)
        try:
            step = ready_step.with_before(was)
        except TemplateError as error:
            raise RequestRejected(strip_control_chars(str(error))) from None
        if step.file:
            request = _file_request(remote, ready_step, step)
        else:
            request = _run_request(remote, ready_step, step, was, kept)
        undo = request.undo
        number = self._record_step(remote.host, ready_step, description, request.command, undo)
        if step.file or step.changes:
            request.arguments["log"] = log_text(f"{self.journal.origin}: {ready_step.playbook.name}: {description}")
        try:
            response = request.send(remote)
        except RequestRejected as why:
            self.journal.record_end(number, remote.host, None, str(why), ran=False)
            raise
        except ConnectionLost as why:
            self.journal.record_end(number, remote.host, None, filled("unknown: {0}", why))
            raise _HostStopped(
                filled("connection lost during “{0}”, which may or may not be complete: {1}", description, why),
                touched=True,
            ) from None
        record_states(self.journal, number, response.state, kept)
        self.journal.record_end(number, remote.host, response.code, f"{response.out}\n{response.err}")
        if undo and undo.token:
            remote.call(Done, "forget", token=undo.token)
        if response.code or response.trouble:
            raise _StepFailed(filled("“{0}”: the command {1}", description, describe_failure(response)))
        applied.append(description)


def record_states(journal: Journal, number: int, state: StateResponse | None, kept: Mapping[str, int]) -> None:
    """Records what a step left: its own state, and that of the files that other steps keep."""
    if not state:
        return
    journal.record_state(StateAfter(number, state.output))
    for pattern, keeper in kept.items():
        if pattern in state.files:
            journal.record_state(StateAfter(keeper, kept=state.files[pattern]))


class _StepFailed(Exception):
    """A command failed: its playbook ends here, and may have changed something."""


class _HostStopped(Exception):
    """Nothing more can be done on the host; ``touched``: a step may have been made that is not known to be complete."""

    def __init__(self, text: str, touched: bool = False) -> None:
        super().__init__(text)
        self.touched = touched


class _HostProgress:
    """What became of the playbooks of one host, so far."""

    def __init__(self, plan: HostPlan) -> None:
        self.plan, self.touched = plan, False
        self.applied: list[str] = []
        """Descriptions of the completed steps."""
        self.failures: dict[str, str] = {}
        self.held_back: dict[str, str] = {}

    def goes_on(self, name: str) -> bool:
        """The playbook has not failed, nor one on which it depends."""
        failed = {**self.failures, **self.held_back}
        why = name not in failed and held_reason(name, self.plan.depends_on, failed)
        if why:
            self.held_back[name] = why
        return name not in self.failures and name not in self.held_back

    def result(self) -> HostResult:
        completed = sorted(self.plan.acting_playbooks - set(self.failures) - set(self.held_back))
        ended = HostResult(self.plan.host, "applied", tuple(self.applied))
        if self.failures:
            ended = self.stopped_result(next(iter(self.failures.values())))
        return msgspec.structs.replace(ended, completed=tuple(completed))

    def stopped_result(self, reason: str) -> HostResult:
        state: Literal["refused", "stopped"] = "stopped" if self.applied or self.touched else "refused"
        return HostResult(
            self.plan.host,
            state,
            tuple(self.applied),
            reason,
            failures=dict(self.failures),
            held_back=dict(self.held_back),
        )


class _StepRequest(NamedTuple):
    op: str
    arguments: dict[str, object]
    undo: UndoStep | None
    command: str
    """What the journal and the user see."""

    def send(self, remote: RemoteExecutor) -> RunResponse:
        """Raises: ConnectionLost; RequestRejected."""
        if self.op == "run":
            return remote.call(RunResponse, "run", STEP_SECONDS, **self.arguments)
        remote.call(Done, self.op, **self.arguments)
        return RunResponse(0, "", "", False)


def _run_request(
    remote: RemoteExecutor, ready_step: ReadyStep, step: PlaybookStep, was: str, kept: Mapping[str, int]
) -> _StepRequest:
    arguments: dict[str, object] = {"sh": step.run, "values": dict(step.values), "limit": MAX_OUTPUT_BYTES}
    undo = None
    if step.changes:
        undo = UndoStep(
            0,
            remote.host,
            ready_step.playbook.root,
            step.say,
            ready_step.playbook.name,
            run=step.undo,
            irreversible=step.irreversible,
            values=dict(step.values),
            before=step.before,
            before_output=was,
            token=secrets.token_hex(16),
        )
        arguments |= {"token": undo.token, "state": {"sh": step.before, "files": list(kept)}}
    return _StepRequest("run", arguments, undo, shown_command(step.run, step.values))


def _file_request(remote: RemoteExecutor, ready_step: ReadyStep, step: PlaybookStep) -> _StepRequest:
    """Raises: ConnectionLost; RequestRejected."""
    old = remote.peek(step.file)
    if old.trouble:
        raise RequestRejected(filled("{0}: {1}", old.real, old.trouble))
    data = edited_content(old.content, step, run_filter(remote, step, old.content) if step.filter else None) or b""
    exists = old.kind == "file"
    new = msgspec.structs.replace(
        old,
        kind="file",
        data=data,
        sha=hashlib.sha256(data).hexdigest(),
        mode=old.mode if exists else int(step.mode or "644", 8),
    )
    arguments = {"path": old.real, "sha": old.sha, "missing": old.missing, **file_fields(new, exists)}
    undo = UndoStep(
        0,
        remote.host,
        ready_step.playbook.root,
        step.say,
        ready_step.playbook.name,
        file=old.real,
        old=msgspec.structs.replace(old, link=""),
        new=msgspec.structs.replace(new, link=""),
    )
    return _StepRequest("write", arguments, undo, filled("write {0}", old.real))


def file_fields(state: FileState, with_owner: bool = True) -> dict[str, object]:
    """What the executor needs to write a file as it is described."""
    return {
        "data": base64.b64encode(state.data).decode("ascii"),
        "mode": state.mode,
        "uid": state.uid if with_owner else None,
        "gid": state.gid if with_owner else None,
        "xattrs": {name: base64.b64encode(value).decode("ascii") for name, value in state.xattrs.items()},
    }
