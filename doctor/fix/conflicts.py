"""Playbooks that would take back, on one host, what another of the same plan does. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.fix.file_edits import FileState, edited_content
from doctor.remedy.playbook import PlaybookStep

Written = tuple[str, PlaybookStep, FileState, "bytes | None"]
"""A playbook's name, its step, what is at the path before the plan, and what the step's filter printed."""


def find_conflicts(steps: Sequence[Written]) -> dict[str, str]:
    """The playbooks that have to be left out, each with the one before it that it contradicts."""
    conflicts: dict[str, str] = {}
    while True:
        more = _first([file_step for file_step in steps if file_step[0] not in conflicts])
        if more is None:
            return conflicts
        conflicts[more[0]] = more[1]


def _first(steps: Sequence[Written]) -> tuple[str, str] | None:
    """The first playbook that takes away a line that another one has put into a file."""
    files: dict[str, bytes | None] = {}
    owned: dict[tuple[str, bytes], str] = {}
    for name, step, state, filtered in steps:
        old = files.get(state.real, state.content)
        new = files[state.real] = edited_content(old, step, filtered)
        remaining_lines = set((new or b"").split(b"\n"))
        for (real, line), owner in owned.items():
            if real == state.real and owner != name and line not in remaining_lines:
                return name, owner
        for line in _lines(step):
            owned.setdefault((state.real, line), name)
    return None


def _lines(step: PlaybookStep) -> list[bytes]:
    text = step.line if step.text is None else step.text
    return [line for line in text.encode().split(b"\n") if line.strip()]
