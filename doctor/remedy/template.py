"""A finding's values, filled into commands, files and sentences.

A value is untrusted text. In a command it stays one word, in a file one line, in a path one part. If that is not
possible, nothing is filled in, and `TemplateError` gives the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from doctor.engine.result import format_value
from doctor.engine.sanitize import printable, strip_control_chars
from doctor.engine.shell_quote import PLACEHOLDER, QUOTABLE_CONTEXTS, Placeholder, quote_value, scan_placeholders

BEFORE = "before"
"""What the step's own ``before`` printed; left as it stands until that is known."""


class TemplateError(Exception):
    """One line: which value is missing, or may not stand where it would."""


def fill_command(template: str, values: Mapping[str, Any]) -> str:
    """A shell command, each value one word of it, or part of one; of a list each item is.

    A placeholder that is the whole command is one that the check wrote and quoted itself: the loader sees to that.

    Raises: Unfillable.
    """
    if is_single_placeholder(template):
        return _command_value(template.strip()[1:-1], values)
    parts, end = [], 0
    for spot in scan_placeholders(template):
        parts += [template[end : spot.start], _quoted_words(template, spot, values)]
        end = spot.end
    return "".join([*parts, template[end:]])


def is_single_placeholder(template: str) -> bool:
    """It is one placeholder and nothing else."""
    return PLACEHOLDER.fullmatch(template.strip()) is not None


def _command_value(name: str, values: Mapping[str, Any]) -> str:
    command = _value(name, values)
    if not isinstance(command, str) or not command.strip() or "\0" in command:
        raise TemplateError(f"{{{name}}} is {_quote_value(command)}; expected a command")
    return command


def _quoted_words(template: str, spot: Placeholder, values: Mapping[str, Any]) -> str:
    if spot.name == BEFORE and BEFORE not in values:
        return template[spot.start : spot.end]
    if spot.context not in QUOTABLE_CONTEXTS:
        raise TemplateError(f"{{{spot.name}}} stands within {spot.context}, where no value can be quoted")
    shell_words = _value_texts(spot.name, values)
    bad = next((word for word in shell_words if "\0" in word), None)
    if bad is None and _begins_word(template[: spot.start]):
        bad = next((word for word in shell_words if word.startswith("-")), None)
    if bad is not None:
        raise TemplateError(
            f"{{{spot.name}}} is {_quote_value(bad)}; expected a word that does not begin like an option"
        )
    return " ".join(quote_value(word, spot.context if spot.context in "'\"" else "") for word in shell_words)


def _begins_word(before: str) -> bool:
    """A value that comes next can be read as an option."""
    command = re.split(r"[;&|\n]", before)[-1]
    bare = command.rstrip("'\"")
    return (not bare or bare[-1].isspace()) and " -- " not in command.replace("\t", " ")


def fill_text(template: str, values: Mapping[str, Any]) -> str:
    """A sentence, the values in plain words. Raises: Unfillable."""
    return PLACEHOLDER.sub(lambda match: strip_control_chars(format_value(_value(match[1], values)), 400), template)


def fill_content(template: str, values: Mapping[str, Any]) -> str:
    """What a file holds; a list is words parted by spaces. Raises: Unfillable, also for a value that ends a line."""
    return PLACEHOLDER.sub(lambda match: " ".join(_one_line(match[1], values)), template)


def fill_pattern(template: str, values: Mapping[str, Any]) -> str:
    """A regular expression, in which values stand for themselves. Raises: Unfillable."""
    return PLACEHOLDER.sub(lambda match: re.escape(" ".join(_one_line(match[1], values))), template)


def fill_path(template: str, values: Mapping[str, Any]) -> str:
    """The path of a file, in which a value is a part of one name. Raises: Unfillable."""

    def put(match: re.Match[str]) -> str:
        part = " ".join(_one_line(match[1], values))
        if "/" in part or part in ("", ".", ".."):
            raise TemplateError(f"{{{match[1]}}} is {_quote_value(part)}; expected a part of a file name")
        return part

    return PLACEHOLDER.sub(put, template)


def _one_line(name: str, values: Mapping[str, Any]) -> list[str]:
    texts = _value_texts(name, values)
    for word in texts:
        if any(ord(letter) < 32 or letter in "\x7f\x85\u2028\u2029" for letter in word):
            raise TemplateError(f"{{{name}}} is {_quote_value(word)}; expected one line")
    return texts


def _value_texts(name: str, values: Mapping[str, Any]) -> list[str]:
    value = _value(name, values)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        if not value:
            raise TemplateError(f"{{{name}}} is empty; expected at least one")
        return [format_value(item) for item in value]
    return [format_value(value)]


def _value(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise TemplateError(f"the finding has no value for {{{name}}}")
    return values[name]


def _quote_value(value: object) -> str:
    return f'"{printable(str(value), 60)}"'
