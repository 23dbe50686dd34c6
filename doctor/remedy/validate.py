"""Safety rules for playbooks, which may run as root on many hosts; violations by key."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.engine.sanitize import quote
from doctor.engine.shell_quote import PLACEHOLDER, placeholder_names
from doctor.engine.texts import filled
from doctor.remedy.playbook import COMMAND_KEYS, Playbook, PlaybookStep, free_variables, templates
from doctor.remedy.template import BEFORE, fill_pattern

Broken = tuple[str, str]
"""A key, and what is wrong with its value and what was expected."""

_EDIT_KEYS = ("line", "text", "remove", "filter", "keep")


def step_violations(step: PlaybookStep) -> Iterator[Broken]:
    """All that is wrong with one step by itself."""
    if not step.say.strip() or "\n" in step.say:
        yield "say", "expected one line that describes the step"
    if step.run and step.file:
        yield "file", "this step has a run already; expected one of the two"
    yield from _run_violations(step)
    yield from _file_violations(step)
    for key in COMMAND_KEYS:
        yield from ((key, why) for why in command_violations(getattr(step, key)))
        if BEFORE in free_variables(getattr(step, key)) and key not in ("run", "undo"):
            yield key, "$before is available only in run and undo"
    for key, text in templates(step).items():
        if BEFORE in placeholder_names(text):
            yield key, "{before} is available only in run and undo, as $before"


def command_violations(command: str) -> Iterator[str]:
    """A command is a fixed text: no value is ever a part of it."""
    if "\0" in command:
        yield "expected a command without NUL"
    for name in dict.fromkeys(PLACEHOLDER.findall(command)):
        yield filled(
            '{{0}} stands in a command, whose text is fixed; expected "${1}", the variable with the value', name, name
        )
    for name in free_variables(command):
        if name.endswith("_proxy"):
            yield filled("${0} is a variable that programs read by themselves; expected another name", name)


def _run_violations(step: PlaybookStep) -> Iterator[Broken]:
    if not step.run:
        keys = ("before", "undo", "irreversible")
        yield from ((key, "expected only beside run") for key in keys if getattr(step, key))
        if not step.changes:
            yield "changes", "expected only beside run"
        return
    if step.undo and step.irreversible:
        yield "irreversible", "this step has an undo; expected one of the two"
    if step.changes and not (step.undo or step.irreversible):
        yield "run", "changes something and has no undo; expected undo, or changes = false for a read-only step"
    if not step.changes and (step.undo or step.irreversible):
        key = "undo" if step.undo else "irreversible"
        yield key, "changes = false leaves nothing to undo; expected one of the two"
    uses = [key for key in ("run", "undo") if BEFORE in free_variables(getattr(step, key))]
    if uses and not step.before:
        yield uses[0], "$before is the output of before, which is missing"
    elif step.undo and not step.before:
        yield "undo", "expected before as well, which prints the state: undo does not overwrite what changed since"


def _file_violations(step: PlaybookStep) -> Iterator[Broken]:
    if not step.file:
        used_keys = [key for key in (*_EDIT_KEYS, "replaces", "mode") if _is_given(step, key)]
        yield from ((key, "expected only beside file") for key in used_keys)
        return
    if not _is_path(step.file) or ("*" in step.file and not step.keep):
        yield "file", filled("{0}: expected an absolute path without .., // and *", quote(step.file))
    used_keys = [key for key in _EDIT_KEYS if _is_given(step, key)]
    if len(used_keys) != 1:
        listed_keys = " and ".join(used_keys) or "none"
        yield "file", filled("expected one of line, text, remove, filter and keep beside it; found {0}", listed_keys)
    if "\n" in step.line or (step.line and not step.line.strip()):
        yield "line", "expected one line"
    if step.replaces and not step.line:
        yield "replaces", "expected only beside line"
    if step.mode and not re.fullmatch(r"0[0-7]{3}", step.mode):
        yield "mode", filled('{0}: expected an octal mode such as "0644"', quote(step.mode))
    for key in ("replaces", "remove"):
        yield from ((key, why) for why in _pattern_problems(getattr(step, key)))


def _is_given(step: PlaybookStep, key: str) -> bool:
    return step.text is not None if key == "text" else bool(getattr(step, key))


def _is_path(path: str) -> bool:
    parts = path.split("/")
    return not parts[0] and all(part not in ("", ".", "..") for part in parts[1:]) and path.isprintable()


def _pattern_problems(pattern: str) -> Iterator[str]:
    try:
        re.compile(fill_pattern(pattern, dict.fromkeys(placeholder_names(pattern), "x")), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        yield filled("not a regular expression: {0}", error)


def needed_names(step: PlaybookStep) -> Iterator[tuple[str, str, str]]:
    """Each key with a name that only a finding can supply, and how it stands there."""
    for key, text in templates(step).items():
        yield from ((key, name, f"{{{name}}}") for name in PLACEHOLDER.findall(text))
    for key in COMMAND_KEYS:
        yield from ((key, name, f"${name}") for name in free_variables(getattr(step, key)) if name != BEFORE)


def changes_nothing(playbook: Playbook) -> bool:
    """No step of it changes a host."""
    return not any(step.file or (step.run and step.changes) for step in playbook.steps)
