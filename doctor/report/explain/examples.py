"""A real finding of each check, for its page: values in place of placeholders. Written by `tests.example_values`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from doctor.engine.language import is_english, localized_filled, localized_template, without_loose_spaces
from doctor.engine.texts import read_table
from doctor.engine.toml_compat import loads

EXAMPLES_FILE = Path(__file__).with_name("examples.json")

EXAMPLES: Mapping[str, Any] = loads(Path(__file__).with_name("plausible_values.toml").read_text("utf-8"))
"""Plausible values by name; any other is its own name in angle brackets."""

_PLACEHOLDER = re.compile(r"\{([a-z_][a-z0-9_]*)\}")


class ExampleFinding(NamedTuple):
    """One finding as a report would show it."""

    template: str
    values: Mapping[str, str]

    @property
    def localized_values(self) -> dict[str, str]:
        """Its values in the language of the process."""
        return {name: localized_filled(value) for name, value in self.values.items()}

    @property
    def message(self) -> str:
        return fill_placeholders(localized_template(self.template), self.localized_values)


def read_examples() -> dict[str, ExampleFinding]:
    """The example of each check of this program, by the check's name."""
    document = msgspec.json.decode(EXAMPLES_FILE.read_bytes())
    if not is_english():
        read_table(document["texts"])
    return {name: ExampleFinding(row["template"], row["values"]) for name, row in document["examples"].items()}


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """``text`` with the values of an example finding, else with a plausible value by name, else with ``<name>``.

    >>> fill_placeholders("On {host}: `kill {pid}`, {switch_name}", {"pid": "77"})
    'On node001: `kill 77`, <switch name>'
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        example = values.get(name, EXAMPLES.get(name))
        return f"<{name.replace('_', ' ')}>" if example is None else _text(example)

    return without_loose_spaces(_PLACEHOLDER.sub(value, text))


def _text(value: object) -> str:
    return " and ".join(map(str, value)) if isinstance(value, list) else str(value)
