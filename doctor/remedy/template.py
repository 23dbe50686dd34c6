"""A finding's values, given to commands, files and sentences.

A value is untrusted text. A command is a fixed text: a value comes to it in a variable of the environment, never in
its text. In a file a value stays within one line, in a path within one part. If that is not possible, `TemplateError`
gives the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from doctor.engine.result import format_value, value_in_sentence
from doctor.engine.sanitize import printable, strip_control_chars
from doctor.engine.shell_quote import PLACEHOLDER
from doctor.engine.texts import filled, remember

BEFORE = "before"
"""What the step's own ``before`` printed: a variable in ``run`` and ``undo``."""
MAX_VALUE_BYTES = 100_000
"""Of one variable: Linux takes 131072."""

_VARIABLE = re.compile(r"""(?:\$\{?|ENVIRON\[")([a-z_][a-z0-9_]*)""")


class TemplateError(Exception):
    """One line: which value is missing, or may not stand where it would."""


def variable_names(command: str) -> list[str]:
    """The variables in lower case that a command reads, in their order.

    >>> variable_names('for n in $npus; do hccn_tool -i "$n" -g "${gateway}" $1; done')
    ['npus', 'n', 'gateway']
    """
    return list(dict.fromkeys(_VARIABLE.findall(command)))


def sets_variable(command: str, name: str) -> bool:
    """The command gives the variable a value itself.

    >>> sets_variable("for n in 1 2; do f $n; done", "n"), sets_variable("f $n", "n")
    (True, False)
    """
    return (
        re.search(rf"(?:^|[\s;&|(!{{]){name}\s*=[^=]|\bfor\s+{name}\s+in\b|\bread\s[^;&|\n]*\b{name}\b", command)
        is not None
    )


def variable_text(name: str, values: Mapping[str, Any]) -> str:
    """What a command finds in the variable: the value as text, of a list each item on a line.

    Raises: TemplateError for an item with a control character, that begins like an option, or is too long.
    """
    texts = _one_line(name, values)
    bad = next((text for text in texts if text.startswith("-")), None)
    if bad is not None:
        raise TemplateError(
            filled("{{0}} is {1}; expected a word that does not begin like an option", name, _quote_value(bad))
        )
    text = "\n".join(texts)
    if len(text.encode("utf-8", "surrogateescape")) > MAX_VALUE_BYTES:
        raise TemplateError(filled("{{0}} is longer than {1} bytes", name, MAX_VALUE_BYTES))
    return text


def before_text(output: str) -> str:
    """What ``before`` printed, as the variable of that name. Raises: TemplateError."""
    if "\0" in output or len(output.encode("utf-8", "surrogateescape")) > MAX_VALUE_BYTES:
        raise TemplateError(filled("{before} holds a zero byte or more than {0} bytes", MAX_VALUE_BYTES))
    return output


def fill_text(template: str, values: Mapping[str, Any]) -> str:
    """A sentence, the values in plain words. Raises: TemplateError."""
    names = dict.fromkeys(PLACEHOLDER.findall(template))
    texts = {name: strip_control_chars(value_in_sentence(_value(name, values)), 400) for name in names}
    text = PLACEHOLDER.sub(lambda match: texts[match[1]], template)
    if texts:
        remember(text, template, texts)
    return text


def fill_content(template: str, values: Mapping[str, Any]) -> str:
    """What a file holds; a list is words parted by spaces. Raises: TemplateError, also for a value that ends a line."""
    return PLACEHOLDER.sub(lambda match: " ".join(_one_line(match[1], values)), template)


def fill_pattern(template: str, values: Mapping[str, Any]) -> str:
    """A regular expression, in which values stand for themselves. Raises: TemplateError."""
    return PLACEHOLDER.sub(lambda match: re.escape(" ".join(_one_line(match[1], values))), template)


def fill_path(template: str, values: Mapping[str, Any]) -> str:
    """The path of a file, in which a value is a part of one name. Raises: TemplateError."""

    def put(match: re.Match[str]) -> str:
        part = " ".join(_one_line(match[1], values))
        if "/" in part or "*" in part or part in ("", ".", ".."):
            raise TemplateError(filled("{{0}} is {1}; expected a part of a file name", match[1], _quote_value(part)))
        return part

    return PLACEHOLDER.sub(put, template)


def _one_line(name: str, values: Mapping[str, Any]) -> list[str]:
    texts = _value_texts(name, values)
    for word in texts:
        if any(ord(letter) < 32 or letter in "\x7f\x85\u2028\u2029" for letter in word):
            raise TemplateError(filled("{{0}} is {1}; expected one line", name, _quote_value(word)))
    return texts


def _value_texts(name: str, values: Mapping[str, Any]) -> list[str]:
    value = _value(name, values)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        if not value:
            raise TemplateError(filled("{{0}} is empty; expected at least one", name))
        return [format_value(item) for item in value]
    return [format_value(value)]


def _value(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise TemplateError(filled("the finding has no value for {{0}}", name))
    return values[name]


def _quote_value(value: object) -> str:
    return f'"{printable(str(value), 60)}"'
