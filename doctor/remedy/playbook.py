"""A remedy as data: what it treats, what it risks, its steps; and a step filled with a finding's values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from doctor.engine.shell_quote import placeholder_names
from doctor.remedy.template import (
    BEFORE,
    before_text,
    fill_content,
    fill_path,
    fill_pattern,
    fill_text,
    sets_variable,
    variable_names,
    variable_text,
)
from doctor.remedy.template import TemplateError as TemplateError

WHO = ("host admin", "job owner", "network", "vendor")
RISKS = ("none", "low", "medium", "interrupts-jobs", "reboot")
"""From what harms nothing to what ends every job on the host; medium: data of one host is written to others."""
ALWAYS_SUPPLIED = frozenset(("host", "hosts"))
"""Values of every finding: the host that is fixed, and all hosts of the finding."""
COMMAND_KEYS = ("only", "before", "run", "undo", "filter")
"""Fixed texts for the shell: values come to them as variables."""
FILLED_KEYS = ("say", "irreversible", "file", "line", "replaces", "text", "remove")
"""Texts with placeholders."""


class PlaybookStep(msgspec.Struct, frozen=True):
    """One step: a command, a change to a file, or, with neither, manual work."""

    number: int
    """From 1, as in the file."""
    say: str
    only: str = ""
    """Read-only: the step is left out where this exits 1."""
    before: str = ""
    """Read-only: prints the state that `run` changes, before it and after it. It is ``$before`` in `run` and `undo`."""
    run: str = ""
    undo: str = ""
    irreversible: str = ""
    """Instead of `undo`: why there is none."""
    changes: bool = True
    """False if `run` only reads."""
    file: str = ""
    line: str = ""
    """A line that is in the file afterwards, in the place of those that `replaces` matches, else at the end."""
    replaces: str = ""
    text: str | None = None
    """The whole file."""
    remove: str = ""
    """Lines that match are removed."""
    filter: str = ""
    """Read-only: prints the new file; the old one is its stdin."""
    keep: bool = False
    """Other steps change the file; undo restores it. The path may hold ``*``."""
    mode: str = ""
    """In octal digits, for a file that was not there."""
    values: Mapping[str, str] = {}
    """The variables of the commands, once filled."""

    @property
    def manual(self) -> bool:
        return not (self.run or self.file)

    @property
    def environ_names(self) -> list[str]:
        """The variables that the commands of the step read and do not set."""
        names = dict.fromkeys(name for key in COMMAND_KEYS for name in free_variables(getattr(self, key)))
        return [name for name in names if name != BEFORE]


class Playbook(msgspec.Struct, frozen=True):
    """One remedy."""

    name: str
    path: str
    title: str
    treats: tuple[str, ...]
    who: str
    risk: str
    root: bool = False
    explicit: bool = False
    """Used only when it is named."""
    host_only: bool = False
    """It changes what belongs to a host (kernel settings, limits, services): nothing is done inside a container."""
    note: str = ""
    steps: tuple[PlaybookStep, ...] = ()

    @property
    def manual(self) -> bool:
        """There is nothing here that software can do."""
        return all(step.manual for step in self.steps)


def commands_write_files(steps: Iterable[PlaybookStep]) -> bool:
    """The commands themselves change files that a host may load when it starts: units, users, packages, rules."""
    return any((step.keep and step.file) or _WRITES_FILES.search(step.run) for step in steps)


def writes_files(steps: Iterable[PlaybookStep]) -> bool:
    """Something that they do can survive a reboot."""
    return any(step.file or commands_write_files([step]) for step in steps)


_WRITES_FILES = re.compile(
    r"\bsystemctl (?:enable|disable|mask|unmask)\b|\btimedatectl set-ntp\b|\busermod\b|\bgpasswd\b|\bpip install\b"
    r"|\bufw\b|\bfirewall-cmd --permanent\b"
)


def free_variables(command: str) -> list[str]:
    """The variables that a command reads and does not set itself.

    >>> free_variables('for n in $npus; do f "$n" "$before"; done')
    ['npus', 'before']
    """
    return [name for name in variable_names(command) if not sets_variable(command, name)]


def fill_step(step: PlaybookStep, values: Mapping[str, Any]) -> PlaybookStep:
    """``step`` for one finding: its texts filled, and its variables in `PlaybookStep.values`.

    Raises: TemplateError.
    """
    names = dict.fromkeys(name for key in COMMAND_KEYS for name in variable_names(getattr(step, key)))
    free = step.environ_names
    # One that the command seems to set is given as well, if there is a value: to set it again does no harm.
    environ = {
        name: variable_text(name, values) for name in names if name in free or (name in values and name != BEFORE)
    }
    if BEFORE in values:
        environ[BEFORE] = before_text(values[BEFORE])
    return msgspec.structs.replace(
        step,
        say=fill_text(step.say, values),
        irreversible=fill_text(step.irreversible, values),
        file=fill_path(step.file, values),
        line=fill_content(step.line, values),
        replaces=fill_pattern(step.replaces, values),
        text=None if step.text is None else fill_content(step.text, values),
        remove=fill_pattern(step.remove, values),
        values=environ,
    )


def needed_values(step: PlaybookStep) -> set[str]:
    """The names of the values that a step is filled with."""
    return {name for part in templates(step).values() for name in placeholder_names(part)} | set(step.environ_names)


def templates(step: PlaybookStep) -> dict[str, str]:
    """What values are filled into, by its key."""
    return {key: getattr(step, key) for key in FILLED_KEYS if getattr(step, key)}


def built_in_playbook(path: Path) -> Playbook:
    """One of our own playbooks. They are valid, so that the rules for playbooks need not be loaded."""
    from doctor.engine.toml_compat import loads

    table = loads(path.read_text("utf-8"))
    steps = tuple(PlaybookStep(number, **step) for number, step in enumerate(table.pop("step"), 1))
    return Playbook(path.stem.replace("_", "-"), str(path), treats=tuple(table.pop("treats")), steps=steps, **table)
