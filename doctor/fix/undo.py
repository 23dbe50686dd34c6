"""Undoes steps, the last one first. It needs only the journal, also after a crash."""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence

import msgspec

from doctor.engine.record import redact
from doctor.fix.inspect_host import HostExecutors, describe_failure
from doctor.fix.journal import Journal, UndoStep
from doctor.fix.remote_client import ConnectionLost, RemoteExecutor, RequestRejected
from doctor.transport import Transport

STEP_SECONDS = 120.0
MAX_OUTPUT_BYTES = 4096
LOCK_SECONDS = 130.0
"""Seconds to wait for a step that a lost controller has begun."""


class UndoResult(msgspec.Struct, frozen=True):
    """What became of one step's undo."""

    undo: UndoStep
    ok: bool
    detail: str
    host_lost: bool = False
    """The host is unreachable."""


class JournalUndoer:
    """Undoes one journal, host by host, from many threads; after ``stop_event`` no step is begun."""

    def __init__(self, transport: Transport, journal: Journal, force: bool, stop: threading.Event) -> None:
        self.transport, self.journal, self.force, self.stop_event = transport, journal, force, stop

    def undo_host(self, host: str, undos: Sequence[UndoStep]) -> list[UndoResult]:
        """Undoes one host's steps, given in the order in which they ran. Never raises for a host's error."""
        executors = HostExecutors(self.transport, host, LOCK_SECONDS)
        results: list[UndoResult] = []
        try:
            for step in reversed(undos):
                results.append(self._undo_step(executors, step))
                if stop_reason := self._stop_reason(results[-1]):
                    remaining = list(reversed(undos))[len(results) :]
                    return [*results, *(UndoResult(other, False, stop_reason) for other in remaining)]
        finally:
            executors.close()
        return results

    def _stop_reason(self, result: UndoResult) -> str:
        """Why no more is tried on this host."""
        if result.host_lost:
            return result.detail
        return "interrupted before this step" if self.stop_event.is_set() else ""

    def _undo_step(self, executors: HostExecutors, step: UndoStep) -> UndoResult:
        lost = ok = False
        try:
            remote = executors.get(step.root)
            self.journal.record_undo_start(step)
            ok, detail = self._restore_file(remote, step) if step.file else self._run_undo(remote, step)
        except ConnectionLost as error:
            lost, detail = True, str(error)
        except RequestRejected as error:
            detail = str(error)
        detail = redact(detail)
        self.journal.record_undo_end(step, 0 if ok else 1, detail)
        return UndoResult(step, ok, detail, lost)

    def _run_undo(self, remote: RemoteExecutor, step: UndoStep) -> tuple[bool, str]:
        response = remote.call("run", STEP_SECONDS, sh=step.run, limit=MAX_OUTPUT_BYTES)
        ok = not response["code"] and not response.get("trouble")
        if not ok and step.before and self._is_original(remote, step):
            return True, "already as before"
        return ok, "" if ok else f"the command {describe_failure(response)}"

    def _is_original(self, remote: RemoteExecutor, step: UndoStep) -> bool:
        now = remote.call("run", STEP_SECONDS, sh=step.before, limit=65536)
        return not now["code"] and not now["cut"] and now["out"].strip() == step.before_output

    def _restore_file(self, remote: RemoteExecutor, step: UndoStep) -> tuple[bool, str]:
        assert step.old
        old = {**msgspec.structs.asdict(step.old), "data": base64.b64encode(step.old.data).decode("ascii")}
        absent_folders = step.old.missing
        response = remote.call(
            "restore", path=step.file, old=old, new=step.new, missing=absent_folders, force=self.force
        )
        return True, str(response["took"])


def group_by_host(undos: Sequence[UndoStep]) -> dict[str, list[UndoStep]]:
    """The steps of each host, in their order."""
    steps_by_host: dict[str, list[UndoStep]] = {}
    for step in undos:
        steps_by_host.setdefault(step.host, []).append(step)
    return steps_by_host
