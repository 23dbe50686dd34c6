"""A remedy as data: what it treats, what it risks, its steps; and a step filled with a finding's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from doctor.engine.shell_quote import placeholder_names
from doctor.remedy.template import TemplateError as TemplateError
from doctor.remedy.template import fill_command, fill_content, fill_path, fill_pattern, fill_text

WHO = ("host admin", "job owner", "network", "vendor")
RISKS = ("none", "low", "interrupts-jobs", "reboot")
"""From what harms nothing to what ends every job on the host."""
ALWAYS_SUPPLIED = frozenset(("host", "hosts"))
"""Values of every finding: the host that is fixed, and all hosts of the finding."""
TEMPLATE_KEYS = ("say", "only", "before", "run", "undo", "file", "line", "replaces", "text", "remove")
COMMAND_KEYS = ("only", "before", "run", "undo")


class PlaybookStep(msgspec.Struct, frozen=True):
    """One step: a command, a change to a file, or, with neither, work for hands."""

    number: int
    """From 1, as in the file."""
    say: str
    only: str = ""
    """Read-only: the step is left out where this exits 1."""
    before: str = ""
    """Read-only: what it prints, stripped, is ``{before}`` in `run` and `undo`."""
    run: str = ""
    undo: str = ""
    changes: bool = True
    """False if `run` only reads."""
    file: str = ""
    line: str = ""
    """A line that is in the file afterwards, in the place of those that `replaces` matches, else at the end."""
    replaces: str = ""
    text: str | None = None
    """The whole file."""
    remove: str = ""
    """Lines that match go."""
    mode: str = ""
    """In octal digits, for a file that was not there."""

    @property
    def manual(self) -> bool:
        return not (self.run or self.file)


class Playbook(msgspec.Struct, frozen=True):
    """One remedy."""

    name: str
    path: str
    title: str
    treats: tuple[str, ...]
    who: str
    risk: str
    root: bool = False
    persistent: bool = False
    explicit: bool = False
    """Used only when it is named."""
    note: str = ""
    steps: tuple[PlaybookStep, ...] = ()

    @property
    def manual(self) -> bool:
        """There is nothing here that software can do."""
        return all(step.manual for step in self.steps)


def fill_step(step: PlaybookStep, values: Mapping[str, Any]) -> PlaybookStep:
    """``step`` for one finding; ``{before}`` stays in its commands until it is among ``values``.

    Raises: Unfillable.
    """
    return msgspec.structs.replace(
        step,
        say=fill_text(step.say, values),
        only=fill_command(step.only, values),
        before=fill_command(step.before, values),
        run=fill_command(step.run, values),
        undo=fill_command(step.undo, values),
        file=fill_path(step.file, values),
        line=fill_content(step.line, values),
        replaces=fill_pattern(step.replaces, values),
        text=None if step.text is None else fill_content(step.text, values),
        remove=fill_pattern(step.remove, values),
    )


def needed_values(step: PlaybookStep) -> set[str]:
    """The names of the values that a step is filled with."""
    return {name for part in templates(step).values() for name in placeholder_names(part)}


def templates(step: PlaybookStep) -> dict[str, str]:
    """What values are filled into, by its key."""
    return {key: getattr(step, key) for key in TEMPLATE_KEYS if getattr(step, key)}
