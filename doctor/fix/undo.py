"""Undoes steps, the last one first. It needs only the journal, also after a crash.

What was changed since the fix is never overwritten: the state that a step left is recorded, and compared with the
state now. Where they differ, the step is refused with all three versions, unless the user chose what to do.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from doctor.engine.grouping import lists_by_key
from doctor.engine.sanitize import printable
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import filled
from doctor.fix.apply import file_fields, record_states
from doctor.fix.file_edits import MAX_DIFF_LINE_CHARS, FileState, file_diff
from doctor.fix.inspect_host import HostExecutors, describe_failure, peek_many
from doctor.fix.journal import Journal, StateAfter, UndoStep
from doctor.fix.remote_client import ConnectionLost, Done, RecallResponse, RemoteExecutor, RequestRejected, RunResponse
from doctor.transport import Transport

STEP_SECONDS = 120.0
MAX_OUTPUT_BYTES = 4096
LOCK_SECONDS = 130.0
"""Seconds to wait for a step that a lost controller has begun."""
Choice = Literal["refuse", "merge", "skip", "overwrite"]
"""What to do with what was changed since: nothing; in files take back only what the fix changed; leave it, and count
the step as undone; restore the state before the fix."""
_ALREADY = "already as before"


class UndoResult(msgspec.Struct, frozen=True):
    """What became of one step's undo."""

    undo: UndoStep
    ok: bool
    detail: str
    host_lost: bool = False
    """The host is unreachable."""
    versions: tuple[str, ...] = ()
    """Before, applied, now: lines for each difference that kept the step from being undone."""
    recorded: bool = True
    """False: the journal could not be written."""


class _ChangedSince(Exception):
    """The state is not the one that the step left; with the three versions."""

    def __init__(self, why: str, versions: Sequence[str]) -> None:
        super().__init__(why)
        self.versions = tuple(hide_secrets(line) for line in versions)


class JournalUndoer:
    """Undoes one journal, host by host, from many threads; after ``stop_event`` no step is begun."""

    def __init__(self, transport: Transport, journal: Journal, choice: Choice, stop: threading.Event) -> None:
        self.transport, self.journal, self.choice, self.stop_event = transport, journal, choice, stop

    def undo_host(self, host: str, undos: Sequence[UndoStep]) -> list[UndoResult]:
        """Undoes one host's steps, given in the order in which they ran. Never raises for a host's error."""
        executors = HostExecutors(self.transport, host, LOCK_SECONDS)
        results: list[UndoResult] = []
        host_undo = _HostUndo(self.journal, self.choice, undos)
        try:
            for step in reversed(undos):
                results.append(self._undo_step(executors, host_undo, step))
                if stop_reason := self._stop_reason(results[-1]):
                    remaining = list(reversed(undos))[len(results) :]
                    return [*results, *(UndoResult(other, False, stop_reason) for other in remaining)]
        finally:
            executors.close()
        return results

    def _stop_reason(self, result: UndoResult) -> str:
        if result.host_lost:
            return result.detail
        return "interrupted before this step" if self.stop_event.is_set() else ""

    def _undo_step(self, executors: HostExecutors, host_undo: _HostUndo, step: UndoStep) -> UndoResult:
        lost = ok = False
        versions: tuple[str, ...] = ()
        try:
            remote = executors.get(step.root)
            host_undo.prepare(remote, step.root)
            self.journal.record_undo_start(step)
            ok, detail = host_undo.undo(remote, step)
        except ConnectionLost as error:
            lost, detail = True, str(error)
        except RequestRejected as error:
            detail = str(error)
        except _ChangedSince as error:
            ok, detail, versions = self.choice == "skip", str(error), error.versions
            detail = filled("left as it is: {0}", detail) if ok else detail
        detail = hide_secrets(detail)
        if ok:
            host_undo.undone.add(step.number)
        recorded = self.journal.record_undo_end(step, 0 if ok else 1, detail)
        if not lost:
            outcome = "undone" if ok else filled("not undone: {0}", detail)
            with suppress(ConnectionLost):
                executors.get(step.root).log(f"{self.journal.origin}: {step.playbook}: {step.description}: {outcome}")
        return UndoResult(step, ok, detail, lost, versions, recorded)


class _HostUndo:
    def __init__(self, journal: Journal, choice: Choice, undos: Sequence[UndoStep]) -> None:
        self.journal, self.choice, self.undos = journal, choice, undos
        self.after: dict[int, StateAfter] = journal.states_after()
        self._kept_at_start: dict[int, dict[str, FileState]] = {}
        """The kept files as they were found, before any step of theirs was undone."""
        self._changed: set[int] = set()
        """The steps that keep files, where one of these files was changed since."""
        self._refused: dict[int, _ChangedSince] = {}
        """Those that therefore cannot be undone, and with them the steps that change these files."""
        self._prepared: set[bool] = set()
        self.undone: set[int] = set()

    def prepare(self, remote: RemoteExecutor, root: bool) -> None:
        """Learns what interrupted steps left, and reads the kept files. Raises: ConnectionLost; RequestRejected."""
        if root in self._prepared:
            return
        for step in self.undos:
            if step.root == root and step.token:
                state = remote.call(RecallResponse, "recall", token=step.token).state
                record_states(self.journal, step.number, state, self._keepers(step))
                if state:
                    remote.call(Done, "forget", token=step.token)
        self.after = self.journal.states_after()
        self._read_kept_files(remote, root)
        self._prepared.add(root)

    def _read_kept_files(self, remote: RemoteExecutor, root: bool) -> None:
        """Reads the kept files as each step will find them: as now, or as the undo of later steps leaves them."""
        restored: dict[str, FileState] = {}
        """By real path, what the steps that are undone first will restore."""
        keeps = any(step.root == root and step.kept is not None for step in self.undos)
        for step in reversed(self.undos):
            if not keeps or step.root != root:
                continue
            with suppress(_ChangedSince):
                if step.kept is not None:
                    self._read_kept(remote, step, restored)
                elif step.file and step.old and step.new:
                    now = remote.peek(step.file)
                    now = restored.get(now.real, now)
                    restored[step.file] = self._decide(step.file, step.old, step.new, now)

    def _read_kept(self, remote: RemoteExecutor, step: UndoStep, restored: dict[str, FileState]) -> None:
        """Raises: ConnectionLost; RequestRejected."""
        now = peek_many(remote, step.file)
        now |= {path: FileState(path) for path in (step.kept or {}) if path not in now}
        self._kept_at_start[step.number] = {path: restored.get(state.real, state) for path, state in now.items()}
        targets: dict[str, FileState] = {}
        try:
            for path, (old, new, start_state) in self._kept_versions(step).items():
                if not _content_same(start_state, new) and not _content_same(start_state, old):
                    self._changed.add(step.number)
                targets[start_state.real] = self._decide(path, old, new, start_state)
        except _ChangedSince as error:
            self._refused[step.number] = error
        else:
            restored.update(targets)

    def _keepers(self, step: UndoStep) -> dict[str, int]:
        """The steps that keep the files which this step may change, by their pattern."""
        return {
            other.file: other.number
            for other in self.undos
            if other.kept is not None and other.playbook == step.playbook and other.number < step.number
        }

    def undo(self, remote: RemoteExecutor, step: UndoStep) -> tuple[bool, str]:
        """Whether the step is undone, and how. Raises: _ChangedSince; ConnectionLost; RequestRejected."""
        if step.irreversible:
            return False, filled("it cannot be undone: {0}", step.irreversible)
        if step.kept is not None:
            return self._restore_kept(remote, step)
        if step.file:
            remote.call(Done, "tidy", path=step.file)
            assert step.old and step.new
            now = remote.peek(step.file)
            if now.real != step.file:
                raise RequestRejected(filled("is now a link to {0}", now.real))
            target = self._decide(step.file, step.old, step.new, now)
            return True, self._put(remote, step.file, step.old, target, now)
        return self._run_undo(remote, step)

    def _run_undo(self, remote: RemoteExecutor, step: UndoStep) -> tuple[bool, str]:
        now = self._read_state(remote, step)
        if now == step.before_output:
            return True, _ALREADY
        keepers = self._keepers(step)
        for number in keepers.values():
            if number in self._refused:
                raise self._refused[number]
        recorded = self.after.get(step.number)
        applied = recorded.output if recorded else None
        if now is None or (now != applied and self.choice != "overwrite"):
            why = "was changed since" if applied is not None else "may have been changed since"
            raise _ChangedSince(
                filled("{0}, by a user or by a newer plan", why),
                value_versions(step.before_output, applied, "(cannot be read)" if now is None else now),
            )
        token = step.token or "0" * 32
        # What somebody else changed in a kept file is never recorded as a state that we left.
        keepers = {pattern: number for pattern, number in keepers.items() if number not in self._changed}
        response = remote.call(
            RunResponse,
            "run",
            STEP_SECONDS,
            sh=step.run,
            values=step.values,
            limit=MAX_OUTPUT_BYTES,
            token=token,
            state={"sh": step.before, "files": list(keepers)},
        )
        record_states(self.journal, step.number, response.state, keepers)
        remote.call(Done, "forget", token=token)
        if response.code or response.trouble:
            return False, filled("the command {0}", describe_failure(response))
        return True, ""

    def _read_state(self, remote: RemoteExecutor, step: UndoStep) -> str | None:
        now = remote.call(RunResponse, "run", STEP_SECONDS, sh=step.before, values=step.values, limit=65536)
        return None if now.code or now.cut else now.out.strip()

    def _kept_versions(self, step: UndoStep) -> dict[str, tuple[FileState, FileState, FileState]]:
        """Of each kept file: before the fix, as the fix left it, and as it was when this undo began."""
        before, recorded = step.kept or {}, self.after.get(step.number)
        applied = (recorded.kept if recorded else None) or before
        states = (before, applied, self._kept_at_start[step.number])
        return {
            path: (states[0].get(path, absent), states[1].get(path, absent), states[2].get(path, absent))
            for path in sorted({*before, *applied})
            for absent in (FileState(path),)
        }

    def _restore_kept(self, remote: RemoteExecutor, step: UndoStep) -> tuple[bool, str]:
        """Restores the files that other steps changed: by what they were before those were undone."""
        if step.number in self._refused:
            raise self._refused[step.number]
        for other in self.undos:
            if other.run and other.number not in self.undone and step.number in self._keepers(other).values():
                return False, filled("restored when “{0}” is undone, which changes it", other.description)
        current = peek_many(remote, step.file)
        done: list[str] = []
        for path, (old, new, start_state) in self._kept_versions(step).items():
            remote.call(Done, "tidy", path=path)
            target = self._decide(path, old, new, start_state)
            now = current.get(path, FileState(path))
            if old.link and not now.link and now.sha:
                remote.call(Done, "relink", path=path, link=old.link, sha=now.sha)
                now = remote.peek(path)
                done.append("restored")
            done.append(self._put(remote, now.real, old, target, now))
        return True, ", ".join(sorted({word for word in done if word != _ALREADY})) or _ALREADY

    def _decide(self, path: str, old: FileState, new: FileState, start_state: FileState) -> FileState:
        """What the file is to be. Raises: _ChangedSince, where that is for the user to say."""
        if start_state.link not in (new.link, old.link):
            raise _ChangedSince(filled("{0} was made a link to {1} since", path, start_state.link), ())
        target = _target_state(old, new, start_state)
        if _content_same(start_state, new) or _content_same(start_state, old):
            return target
        if self.choice == "overwrite":
            return old
        if self.choice == "merge":
            return self._merged(path, old, new, start_state, target)
        raise _ChangedSince(
            filled("{0} was changed since, by a user or by a newer plan", path),
            file_versions(path, old.content, new.content, start_state.content),
        )

    def _put(self, remote: RemoteExecutor, path: str, old: FileState, target: FileState, now: FileState) -> str:
        """Writes or removes a file. Raises: ConnectionLost; RequestRejected."""
        if _content_same(now, target) and (not now.sha or _attributes(now) == _attributes(target)):
            if not now.sha and old.missing:
                remote.call(Done, "write", path=path, sha="", missing=old.missing, data=None)
            return _ALREADY
        if now.trouble:
            raise RequestRejected(filled("{0}: {1}", path, now.trouble))
        fields = file_fields(target) if target.kind == "file" else {"data": None}
        remote.call(Done, "write", path=path, sha=now.sha, missing=old.missing, **fields)
        if not _content_same(target, old):
            return "merged: only what the fix changed was taken back"
        return "restored" if target.kind == "file" else "removed"

    def _merged(self, path: str, old: FileState, new: FileState, now: FileState, target: FileState) -> FileState:
        try:
            data = take_back(old.content, new.content, now.content)
        except ValueError as why:
            raise _ChangedSince(
                filled("{0} cannot be merged: {1}", path, why),
                file_versions(path, old.content, new.content, now.content),
            ) from None
        if data is None:
            return FileState(path)
        sha = hashlib.sha256(data).hexdigest()
        return msgspec.structs.replace(target if target.kind == "file" else now, kind="file", data=data, sha=sha)


def _content_same(first: FileState, second: FileState) -> bool:
    return (first.kind, first.sha) == (second.kind, second.sha)


def _attributes(state: FileState) -> tuple[object, ...]:
    return (state.mode, state.uid, state.gid, state.xattrs)


def _target_state(old: FileState, new: FileState, now: FileState) -> FileState:
    """The old content; of mode, owner and attributes those that somebody changed since the fix stay."""
    if old.kind != "file" or now.kind != "file" or new.kind != "file":
        return old
    kept = {
        name: getattr(now, name)
        for name in ("mode", "uid", "gid", "xattrs")
        if getattr(now, name) != getattr(new, name)
    }
    return msgspec.structs.replace(old, **kept)


def group_by_host(undos: Sequence[UndoStep]) -> Mapping[str, list[UndoStep]]:
    """The steps of each host, in their order."""
    return lists_by_key((step.host, step) for step in undos)


MAX_VALUE_LINES = 20
"""Lines of a command's output that are value_lines."""


def take_back(before: bytes | None, applied: bytes | None, now: bytes | None) -> bytes | None:
    r"""``now`` without what leads from ``before`` to ``applied``; all other lines stay.

    Raises: ValueError where both changed the same lines, or one of them removed the file.

    >>> take_back(b"a\n", b"a\nours\n", b"a\nours\ntheirs\n")
    b'a\ntheirs\n'
    """
    if applied is None or now is None:
        raise ValueError("the file was removed")
    base = _lines(applied)
    ours, theirs = _changes(base, _lines(before or b"")), _changes(base, _lines(now))
    merged: list[bytes] = []
    at = 0
    for low, high, lines in _ordered(ours, theirs):
        merged += [*base[at:low], *lines]
        at = high
    result = b"".join([*merged, *base[at:]])
    return None if before is None and not result else result


_Change = tuple[int, int, Sequence[bytes]]
"""Lines of the base, from the first to the one behind the last, and what stands in their place."""


def _lines(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n|[^\n]+", data)


def _changes(base: Sequence[bytes], other: Sequence[bytes]) -> list[_Change]:
    codes = difflib.SequenceMatcher(None, base, other, autojunk=False).get_opcodes()
    return [(low, high, other[start:end]) for tag, low, high, start, end in codes if tag != "equal"]


def _ordered(ours: Sequence[_Change], theirs: Sequence[_Change]) -> Iterator[_Change]:
    """All changes by their place. Raises: ValueError where two of them meet and are not the same."""
    last: tuple[bool, _Change] | None = None
    for is_ours, change in sorted(
        [*((True, change) for change in ours), *((False, change) for change in theirs)], key=lambda pair: pair[1][:2]
    ):
        if last is not None and last[0] != is_ours:
            (low, high, lines), (start, end, others) = last[1], change
            if (low, high, list(lines)) == (start, end, list(others)):
                continue
            # A line that was added where ours ends is no conflict: it stands behind what is taken out.
            if start < high or (start == low and end == high):
                raise ValueError("both changed the same lines")
        last = (is_ours, change)
        yield change


def file_versions(path: str, before: bytes | None, applied: bytes | None, now: bytes | None) -> list[str]:
    """What the fix changed, and what has changed since, each as a diff."""
    return [
        "changed by the fix:",
        *(f"  {line}" for line in file_diff(path, before, applied)),
        "changed since:",
        *(f"  {line}" for line in file_diff(path, applied, now)),
    ]


def value_versions(before: str, applied: str | None, now: str) -> list[str]:
    """The same for a setting, which is value_lines whole."""
    lines: list[str] = []
    for title, value in (("before the fix:", before), ("as the fix left it:", applied), ("now:", now)):
        value_lines = ["not known, the fix was interrupted"] if value is None else value.splitlines() or ["(nothing)"]
        lines += [title, *(f"  {printable(line, MAX_DIFF_LINE_CHARS)}" for line in value_lines[:MAX_VALUE_LINES])]
        if len(value_lines) > MAX_VALUE_LINES:
            lines.append(filled("  ({0} more lines)", len(value_lines) - MAX_VALUE_LINES))
    return lines
