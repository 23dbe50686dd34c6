"""Which playbooks of a host's plan depend on which earlier ones, and which take back what another does. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from doctor.engine.texts import filled
from doctor.fix.file_edits import FileState, edited_content
from doctor.fix.select import ReadyStep, Treatment, placeholder_values, same_action
from doctor.remedy.playbook import PlaybookStep, fill_step

Dependences = dict[str, dict[str, str]]
"""For a playbook the earlier ones that it depends on, each with the reason."""


def find_dependences(
    host: str, treatments: Sequence[Treatment], ready_steps: Sequence[ReadyStep], changed_files: Sequence[Sequence[str]]
) -> Dependences:
    """What must not begin on a host where an earlier playbook of its plan has failed.

    ``changed_files``: for each step the files that it changes here, or that its playbook's commands change: paths and
    patterns.

    A playbook depends on an earlier one if both change one file, if both treat one check, if the earlier one makes a
    step for both, or if a check that it treats declares (``follows_from``) that the earlier one's may hold the cause of
    its findings.
    """
    order = list(dict.fromkeys(ready_step.playbook.name for ready_step in ready_steps))
    files: dict[str, dict[str, None]] = {name: {} for name in order}
    for ready_step, paths in zip(ready_steps, changed_files, strict=True):
        files[ready_step.playbook.name].update(dict.fromkeys(paths))
    dependences: Dependences = {}
    for at, name in enumerate(order):
        for earlier in order[:at]:
            reason = _reason(files[earlier], files[name], *_checks_and_causes(treatments, earlier, name))
            reason = reason or _shared_step(host, treatments, ready_steps, earlier, name)
            if reason:
                dependences.setdefault(name, {})[earlier] = reason
    return dependences


def held_reason(name: str, dependences: Mapping[str, Mapping[str, str]], failed: Mapping[str, str]) -> str:
    """Why a playbook waits, now that those of ``failed`` have failed or wait themselves; empty where it need not.

    >>> held_reason("b", {"b": {"a": "both change /etc/hosts"}}, {"a": "it ended with 1"})
    'a was not applied, and both change /etc/hosts'
    >>> held_reason("b", {"b": {"a": "both change /etc/hosts"}}, {"c": "it ended with 1"})
    ''
    """
    return next(
        (
            filled("{0} was not applied, and {1}", earlier, reason)
            for earlier, reason in dependences.get(name, {}).items()
            if earlier in failed
        ),
        "",
    )


def _checks_and_causes(treatments: Sequence[Treatment], earlier: str, later: str) -> tuple[list[str], list[str]]:
    """The checks that both treat, and those of the earlier one that may hold the cause of the later one's findings."""
    checks = {treatment.check: None for treatment in treatments if treatment.playbook.name == earlier}
    members = [treatment for treatment in treatments if treatment.playbook.name == later]
    shared = [treatment.check for treatment in members if treatment.check in checks]
    return shared, [cause for treatment in members for cause in treatment.causes if cause in checks]


def _shared_step(
    host: str, treatments: Sequence[Treatment], ready_steps: Sequence[ReadyStep], earlier: str, later: str
) -> str:
    """The step of both that is made once, as one of the earlier one."""
    earlier_steps = [ready_step for ready_step in ready_steps if ready_step.playbook.name == earlier]
    for treatment in treatments:
        for step in treatment.playbook.steps if treatment.playbook.name == later else ():
            ready = fill_step(step, placeholder_values(treatment.finding, host))
            later_step = ReadyStep(treatment.playbook, step, ready)
            if not step.keep and not step.manual and any(same_action(later_step, other) for other in earlier_steps):
                return filled("both do “{0}”", ready.say)
    return ""


def _reason(
    earlier_files: Mapping[str, None], files: Mapping[str, None], checks: Sequence[str], causes: Sequence[str]
) -> str:
    for file in files:
        if any(fnmatchcase(file, other) or fnmatchcase(other, file) for other in earlier_files):
            return filled("both change {0}", file)
    if checks:
        return filled("both treat {0}", checks[0])
    return filled("{0} may be the cause of what it treats", causes[0]) if causes else ""


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
