"""A real finding of each check, for its page: values in place of placeholders. Written by `tests.example_values`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from doctor.report.explain.playbooks import EXAMPLES

EXAMPLES_FILE = Path(__file__).with_name("examples.json")

_PLACEHOLDER = re.compile(r"\{([a-z_][a-z0-9_]*)\}")
_COMMAND = re.compile(r"`[^`]*`")
_PERSONAL_WORD = re.compile(r"\b(PID|NAME|ADDRESS|NIC|CARD|CHIP|ID|N)\b|(?<=\w=)\.\.\.")
_PERSONAL_NAMES = {"NIC": "network interface", "N": "number", "...": "value"}


class ExampleFinding(NamedTuple):
    """One finding as a report would show it."""

    template: str
    values: Mapping[str, str]

    @property
    def message(self) -> str:
        """The finding's sentence."""
        return fill_placeholders(self.template, self.values)


def read_examples() -> dict[str, ExampleFinding]:
    """The example of each check of this program, by the check's name."""
    rows = json.loads(EXAMPLES_FILE.read_text("utf-8"))
    return {name: ExampleFinding(row["template"], row["values"]) for name, row in rows.items()}


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """``text`` with the values of an example finding, else with a plausible value by name, else with ``<name>``.

    >>> fill_placeholders("On {host}: `kill {pid}`, {switch_name}", {"pid": "77"})
    'On node001: `kill 77`, <switch name>'
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        example = values.get(name, EXAMPLES.get(name))
        return f"<{name.replace('_', ' ')}>" if example is None else _text(example)

    return _PLACEHOLDER.sub(value, text)


def mark_personal_words(text: str) -> str:
    """What only the reader knows stands as ``<like this>`` in every command of ``text``.

    >>> mark_personal_words("`kill PID`, then `export MASTER_PORT=...`; a PID is a number")
    '`kill <pid>`, then `export MASTER_PORT=<value>`; a PID is a number'
    """

    def mark(match: re.Match[str]) -> str:
        return f"<{_PERSONAL_NAMES.get(match[0], match[0].lower())}>"

    return _COMMAND.sub(lambda command: _PERSONAL_WORD.sub(mark, command[0]), text)


def _text(value: object) -> str:
    return " and ".join(map(str, value)) if isinstance(value, list) else str(value)
