"""Safety rules for playbooks, which may run as root on many hosts; violations by key."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.engine.shell_quote import PLACEHOLDER, QUOTABLE_CONTEXTS, Placeholder, placeholder_names, scan_placeholders
from doctor.hosts.nodeset import quote
from doctor.remedy.playbook import COMMAND_KEYS, Playbook, PlaybookStep, templates
from doctor.remedy.template import BEFORE, fill_pattern, is_single_placeholder

Broken = tuple[str, str]
"""A key, and what is wrong with its value and what was expected."""

_FILE_KEYS = ("line", "text", "remove")
_SECOND_SHELL = re.compile(r"\beval\b|\b(?:[a-z]*sh|su|ssh|xargs|python[0-9.]*|perl)\b[^|;&\n]*\s-[a-z]*c\b")
_COMMAND_POSITION = re.compile(
    r"(?:\A|[;&|({!\n]|\b(?:do|then|else|if|elif|while|until|exec|sudo|nohup)\s|\bcase\b.*(?:\bin|;;)[^()]*\))"
    r"\s*(?:\w+=\S*\s+|\$\{?\w+\}?\s*)*\$?[\"']*\Z",
    re.S,
)
"""What a command may begin with before its name: nothing, assignments, variables that may be empty."""
_PROGRAM_ARGUMENT = re.compile(r"\b(sed|[gm]?awk|perl|jq)\s[^|;&\n]*\Z")
"""What takes a program of its own among its words."""
_AWK_ASSIGNMENT = re.compile(r"\s-v\s+\w+=[^\s'\"]*(?:\"[^\"]*\"|'[^']*')*\Z")
_UNQUOTABLE_CONTEXTS = {
    "\\": "behind a backslash",
    "#": "in a comment",
    "`": "in backquotes",
    "${": "in a ${...}",
    "$((": "in an arithmetic expression",
    "$'": "in a $'...'",
    "<<": "in a here document",
    "case": "in a command substitution with a case",
}


def step_violations(step: PlaybookStep) -> Iterator[Broken]:
    """All that is wrong with one step by itself."""
    if not step.say.strip() or "\n" in step.say:
        yield "say", "expected one line that describes the step"
    if step.run and step.file:
        yield "file", "this step has a run already; expected one of the two"
    yield from _command_violations(step)
    yield from _file_violations(step)
    for key in COMMAND_KEYS:
        yield from ((key, why) for why in _shell_problems(getattr(step, key)))
    for key, text in templates(step).items():
        if BEFORE in placeholder_names(text) and key not in ("run", "undo"):
            yield key, "{before} is available only in run and undo"


def _command_violations(step: PlaybookStep) -> Iterator[Broken]:
    if not step.run:
        yield from ((key, "expected only beside run") for key in ("before", "undo") if getattr(step, key))
        if not step.changes:
            yield "changes", "expected only beside run"
        return
    if step.changes and not step.undo:
        yield "run", "changes something and has no undo; expected undo, or changes = false for a read-only step"
    if step.undo and not step.changes:
        yield "undo", "changes = false leaves nothing to undo; expected one of the two"
    uses = [key for key in ("run", "undo") if BEFORE in placeholder_names(getattr(step, key))]
    if uses and not step.before:
        yield uses[0], "{before} is the output of before, which is missing"


def _file_violations(step: PlaybookStep) -> Iterator[Broken]:
    if not step.file:
        used_keys = [key for key in (*_FILE_KEYS, "replaces", "mode") if getattr(step, key) not in ("", None)]
        yield from ((key, "expected only beside file") for key in used_keys)
        return
    if not _is_path(step.file):
        yield "file", f"{quote(step.file)}: expected an absolute path without .. and //"
    used_keys = [key for key in _FILE_KEYS if getattr(step, key) not in ("", None)]
    if len(used_keys) != 1:
        yield "file", f"expected one of line, text and remove beside it; found {' and '.join(used_keys) or 'none'}"
    if "\n" in step.line or (step.line and not step.line.strip()):
        yield "line", "expected one line"
    if step.replaces and not step.line:
        yield "replaces", "expected only beside line"
    if step.mode and not re.fullmatch(r"0[0-7]{3}", step.mode):
        yield "mode", f'{quote(step.mode)}: expected an octal mode such as "0644"'
    for key in ("replaces", "remove"):
        yield from ((key, why) for why in _pattern_problems(getattr(step, key)))


def _is_path(path: str) -> bool:
    parts = path.split("/")
    return not parts[0] and all(part not in ("", ".", "..") for part in parts[1:]) and path.isprintable()


def _pattern_problems(pattern: str) -> Iterator[str]:
    try:
        re.compile(fill_pattern(pattern, dict.fromkeys(placeholder_names(pattern), "x")), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        yield f"not a regular expression: {error}"


def _shell_problems(command: str) -> Iterator[str]:
    """A value must stay one word for every shell that reads the command."""
    if "\0" in command:
        yield "expected a command without NUL"
    if is_single_placeholder(command):
        if placeholder_names(command) == {BEFORE}:
            yield "{before} would be the command that is run; expected a command that the playbook names"
        return
    for spot in scan_placeholders(command):
        name = f"{{{spot.name}}}"
        if spot.context not in QUOTABLE_CONTEXTS:
            yield f"{name} stands {_UNQUOTABLE_CONTEXTS[spot.context]}, where no value can be quoted"
        elif _COMMAND_POSITION.search(command[: spot.start]):
            yield f"{name} would be the command that is run; expected a command that the playbook names"
        elif _SECOND_SHELL.search(command) and (spot.context in ("'", '"') or "eval" in command):
            yield f"{name} would be read by a second shell; expected it outside of quotes, as its argument"
        elif _is_inside_program(command, spot):
            yield f"{name} would be read as a part of a program; expected a word of its own, or awk -v v={name}"


def _is_inside_program(command: str, spot: Placeholder) -> bool:
    """A quoted value is one word, but one that sed, awk and their like would take for a part of what they are to do."""
    if spot.context in ("'", '"'):
        return _PROGRAM_ARGUMENT.search(command[: spot.context_start]) is not None
    before = command[: spot.start]
    glued = not before[-1:].isspace() and not _AWK_ASSIGNMENT.search(before)
    return glued and _PROGRAM_ARGUMENT.search(before) is not None


def finding_placeholders(step: PlaybookStep) -> Iterator[tuple[str, str]]:
    """Each key with a placeholder that only a finding can fill."""
    for key, text in templates(step).items():
        yield from ((key, name) for name in PLACEHOLDER.findall(text) if name != BEFORE)


def changes_nothing(playbook: Playbook) -> bool:
    """No step of it changes a host."""
    return not any(step.file or (step.run and step.changes) for step in playbook.steps)
