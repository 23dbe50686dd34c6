"""Finds and loads playbooks: ours, and a site's own, through the same door."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from doctor.engine.bounded_read import read_bounded
from doctor.engine.catalog import bundled_folder, check_files
from doctor.engine.check_files import AREAS
from doctor.engine.errors import did_you_mean
from doctor.engine.sanitize import file_name, printable_excerpt, quote
from doctor.engine.shell_quote import PLACEHOLDER, placeholder_names
from doctor.engine.texts import filled
from doctor.engine.toml_compat import loads, toml_files
from doctor.remedy.playbook import (
    ALWAYS_SUPPLIED,
    COMMAND_KEYS,
    RISKS,
    WHO,
    Playbook,
    PlaybookStep,
    free_variables,
    templates,
)
from doctor.remedy.template import BEFORE, fill_pattern

MAX_BYTES = 1 << 20
"""Bytes. More than this is no playbook."""

_TOP_KEYS = {
    **dict.fromkeys(("title", "note", "who", "risk"), str),
    **dict.fromkeys(("root", "explicit", "host_only"), bool),
}
_STEP_KEYS = {
    name: bool if name in ("changes", "keep") else str
    for name in PlaybookStep.__struct_fields__
    if name not in ("number", "values")
}
_TYPE_NAMES = {str: "text in quotes", bool: "true or false"}
_CHOICES = {"who": WHO, "risk": RISKS}


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


class PlaybookError(Exception):
    """One line: the file, the line in it, what is wrong, and what was expected."""


def read_playbook(path: Path, check_files: Mapping[str, Path], unread: Collection[str] = ()) -> Playbook:
    """The playbook in one file; ``check_files`` are the checks' files by name. Raises: PlaybookError.

    The values that its steps need are not compared with those that the checks ``unread`` supply.
    """
    reader = _PlaybookReader(path, check_files, unread)
    try:
        return reader.parse()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise PlaybookError(
            filled("{0}: {1}; expected a readable playbook", file_name(path), printable_excerpt(why))
        ) from None


class _PlaybookReader:
    """Parses one file into a `Playbook`."""

    def __init__(self, path: Path, check_files: Mapping[str, Path], unread: Collection[str]) -> None:
        self.path, self.check_files, self.unread = path, check_files, unread
        self.lines: list[str] = []

    def parse(self) -> Playbook:
        name = self.checked_name()
        document = self.parse_toml()
        self.check_keys(document, (*_TOP_KEYS, "treats", "step"), 0)
        top = {key: self.typed_value(document, key, kind, 0) for key, kind in _TOP_KEYS.items() if key in document}
        for key in ("title", "treats", "who", "risk", "step"):
            if key not in document:
                self.refuse(key, 0, "is missing")
        for key, choices in _CHOICES.items():
            if top[key] not in choices:
                self.refuse(key, 0, filled("{0}; expected one of {1}", quote(top[key]), ", ".join(choices)))
        if not top["title"].strip() or "\n" in top["title"]:
            self.refuse("title", 0, "expected one line")
        playbook = Playbook(
            name, str(self.path), treats=self.parse_treats(document["treats"]), steps=self.parse_steps(document), **top
        )
        self.check_playbook(playbook, document)
        return playbook

    def checked_name(self) -> str:
        name = self.path.stem.replace("_", "-")
        if not re.fullmatch(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*", name):
            raise PlaybookError(
                filled("{0}: expected a name of small letters, digits and dashes, .toml", file_name(self.path))
            )
        if name in self.check_files or name in AREAS:
            kind = "a check" if name in self.check_files else "an area"
            raise PlaybookError(
                filled("{0}: {1} is the name of {2}; expected a unique name", file_name(self.path), name, kind)
            )
        return name

    def parse_toml(self) -> dict[str, Any]:
        text = self.read_bytes().decode("utf-8")
        self.lines = text.splitlines()

        try:
            return loads(text)
        except (ValueError, RecursionError) as error:
            message = " ".join(str(error).split())
            line = re.search(r"at line (\d+)", message)
            raise PlaybookError(
                filled(
                    "{0}:{1}: not TOML: {2}",
                    file_name(self.path),
                    line[1] if line else 1,
                    printable_excerpt(message, 200),
                )
            ) from None

    def read_bytes(self) -> bytes:
        return read_bounded(self.path, MAX_BYTES)

    def check_keys(self, table: Mapping[str, Any], allowed_keys: Collection[str], step: int) -> None:
        for key in table:
            if key not in allowed_keys:
                self.refuse(key, step, filled("no such key{0}", did_you_mean(key, allowed_keys)))

    def typed_value(self, table: Mapping[str, Any], key: str, kind: type, step: int) -> Any:
        if type(table[key]) is not kind:
            self.refuse(key, step, filled("expected {0}", _TYPE_NAMES[kind]))
        return table[key]

    def parse_treats(self, names: Any) -> tuple[str, ...]:
        if not isinstance(names, list) or not names or not all(isinstance(entry, str) for entry in names):
            self.refuse("treats", 0, "expected a list of checks")
        for check in names:
            if check not in self.check_files:
                hint = did_you_mean(check, self.check_files) or "; `doctor list` names them all"
                self.refuse("treats", 0, filled("no check is named {0}{1}", quote(check), hint), check)
            if names.count(check) > 1:
                self.refuse("treats", 0, filled("{0} is listed twice", check), check)
        return tuple(names)

    def parse_steps(self, document: Mapping[str, Any]) -> tuple[PlaybookStep, ...]:
        rows = document["step"]
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            self.refuse("step", 0, "expected tables, each headed [[step]]")
        return tuple(self.parse_step(row, number) for number, row in enumerate(rows, 1))

    def parse_step(self, row: Mapping[str, Any], number: int) -> PlaybookStep:
        self.check_keys(row, _STEP_KEYS, number)
        values = {key: self.typed_value(row, key, _STEP_KEYS[key], number) for key in row}
        if "say" not in values:
            self.refuse("say", number, "is missing; expected one line that describes the step")
        for key, value in values.items():
            if value == "" and key != "text":
                self.refuse(key, number, "is empty; leave it out")
        step = PlaybookStep(number, **values)
        for key, why in step_violations(step):
            self.refuse(key, number, why)
        return step

    def check_playbook(self, playbook: Playbook, document: Mapping[str, Any]) -> None:
        """What only all of the playbook tells: its steps against its head, and against what its checks supply."""
        if not changes_nothing(playbook) and "root" not in document:
            self.refuse("root", 0, "is missing; expected true or false where a step changes something")
        names_by_check: dict[str, frozenset[str]] = {}
        checks = [check for check in playbook.treats if check not in self.unread]
        for step in playbook.steps if checks else ():
            for key, name, word in needed_names(step):
                names_by_check = names_by_check or {check: self.finding_values(check) for check in checks}
                self.check_name(step, key, name, word, names_by_check)

    def finding_values(self, check: str) -> frozenset[str]:
        try:
            return read_finding_values(self.check_files[check])
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            self.refuse(
                "treats",
                0,
                filled("the values of {0} cannot be read: {1}", check, printable_excerpt(str(error), 200)),
                check,
            )

    def check_name(
        self, step: PlaybookStep, key: str, name: str, word: str, names_by_check: Mapping[str, frozenset[str]]
    ) -> None:
        for check, names in names_by_check.items():
            if name not in names | ALWAYS_SUPPLIED:
                near = did_you_mean(name, names | ALWAYS_SUPPLIED)
                self.refuse(key, step.number, filled("{0} is not supplied by {1}{2}", word, check, near), word)

    def refuse(self, key: str, step: int, why: str, word: str = "") -> NoReturn:
        """Raises: BadPlaybook at the line of the key, or of the ``word`` in its value."""
        place = filled("step {0}: ", step) if step else ""
        line, reason = self.find_line(key, step, word), printable_excerpt(why, 400)
        raise PlaybookError(
            filled("{0}:{1}: {2}{3}: {4}", file_name(self.path), line, place, printable_excerpt(key), reason)
        )

    def find_line(self, key: str, step: int, word: str) -> int:
        """Where a key stands in the text; else its step; else the beginning."""
        heads = [number for number, line in enumerate(self.lines) if re.match(r"\s*\[\[\s*step\s*\]\]", line)]
        bounds = [0, *heads, len(self.lines)]
        low, high = (bounds[step], bounds[step + 1]) if step + 1 < len(bounds) else (0, len(self.lines))
        pattern = re.compile(rf"\s*(?:[\"']?{re.escape(key)}[\"']?\s*[=.]|\[\[?\s*{re.escape(key)}\s*\]\]?)")
        tables = range(0 if step else len(self.lines))  # at the top a table may stand behind the steps
        at = next((number for number in (*range(low, high), *tables) if pattern.match(self.lines[number])), low)
        near = (number for number in range(at, high) if word in self.lines[number])
        return (next(near, at) if word else at) + 1


def read_finding_values(path: Path) -> frozenset[str]:
    """The names of the values that the check in one file supplies.

    That is the keywords of each ``Finding(...)``, and the placeholders of its templates and of its page: they also
    tell what comes out of ``**values`` and of a function that makes the findings.

    Raises: OSError, SyntaxError, ValueError for a file that is no Python.
    """
    return _names_in_source(path.read_bytes())


@functools.cache
def _names_in_source(source: bytes) -> frozenset[str]:
    """As `read_finding_values`; most checks are treated by several playbooks."""
    tree = ast.parse(source)
    names: set[str] = set()
    for node in ast.walk(tree):
        names.update(_keywords(node))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= placeholder_names(node.value)
    return frozenset(names)


def _keywords(node: ast.AST) -> Iterator[str]:
    """The named values of a finding, or of the call that makes the check's findings."""
    if isinstance(node, ast.YieldFrom):
        yield from (name for inner in ast.walk(node) for name in _keyword_names(inner))
        yield from ("observed", "expected")
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
        yield from _keyword_names(node)


def _keyword_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        yield from (keyword.arg for keyword in node.keywords if keyword.arg)


def load_playbooks(folders: Sequence[Path] = (), checks: Sequence[Path] = ()) -> list[Playbook]:
    """All playbooks: those of this program, then those of ``folders``, by name within each.

    ``checks`` are the folders with a site's own checks, which playbooks may treat as well. That a bundled playbook
    needs no value that a bundled check does not supply is a matter of the tests: taking the source of all checks apart
    takes longer than all else that a command does.

    Raises: PlaybookError for a file that breaks the rules, or a name that is there twice.
    """
    read = _read_bundled if checks else _read_bundled_once
    playbooks = {playbook.name: playbook for playbook in read(bundled_folder("playbooks"), tuple(checks))}
    checks_by_name = check_files_by_name(checks) if folders else {}
    for path in (path for folder in folders for path in _playbook_files(folder)):
        playbook = read_playbook(path, checks_by_name)
        if playbook.name in playbooks:
            first_path = file_name(Path(playbooks[playbook.name].path))
            raise PlaybookError(
                filled("{0}:1: {1} is already defined in {2}", file_name(path), playbook.name, first_path)
            )
        playbooks[playbook.name] = playbook
    return list(playbooks.values())


def _read_bundled(folder: Path, checks: tuple[Path, ...]) -> tuple[Playbook, ...]:
    """Those of this program. Raises: PlaybookError."""
    checks_by_name, bundled_checks = check_files_by_name(checks), check_files_by_name()
    return tuple(read_playbook(path, checks_by_name, bundled_checks) for path in _playbook_files(folder))


_read_bundled_once = cache(_read_bundled)


def _playbook_files(folder: Path) -> list[Path]:
    """The playbooks of a folder; one that cannot be listed is an error, not an empty one."""
    try:
        return toml_files(folder)
    except OSError as error:
        raise PlaybookError(
            filled("{0}: {1}; expected a folder with playbooks", file_name(folder), error.strerror)
        ) from None


def check_files_by_name(folders: Sequence[Path] = ()) -> dict[str, Path]:
    """The file of every check, by its name."""
    return {path.stem.replace("_", "-"): path for path, _ in check_files(folders)}


def playbooks_for(playbooks: Iterable[Playbook], check: str) -> list[Playbook]:
    """Those that treat a check."""
    return [playbook for playbook in playbooks if check in playbook.treats]
