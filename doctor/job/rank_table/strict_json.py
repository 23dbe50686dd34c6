"""Strict JSON with positions: numbers keep their spelling, repeated keys are remembered, usual slips are named."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from doctor.engine.fact import Absent, Unreadable
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled, joined

MAX_CHARS = 64 << 20
"""Characters. A table of 10000 ranks has about 2 million."""

NOT_JSON = "rank-table-not-json"
_SPACE = " \t\r\n"
_WIDE_PUNCTUATION = "“”‘’，：；｛｝［］"


class NotARankTable(Unreadable):
    """The text is no rank table that HCCL 1.x reads. ``root_cause`` names the check that reports it; ``form`` the
    program that does read it, empty where none is known.
    """

    def __init__(
        self, reason: str, line: int = 0, column: int = 0, excerpt: str = "", root_cause: str = NOT_JSON, form: str = ""
    ) -> None:
        place = filled("line {0} column {1}: ", line, column) if line else ""
        super().__init__(joined("", (place, reason)), root_cause)
        self.reason, self.line, self.column, self.excerpt = reason, line, column, excerpt
        self.form = form

    @property
    def for_checks(self) -> Absent:
        """What a check of the table gets in its place: it does not apply to another program's table."""
        return Absent(filled("{0}; rank-table-form-invalid checks it", self.reason)) if self.form else self


class NumberText(str):
    """A JSON number, as it is written."""


class JsonObject(dict[str, Any]):
    """A JSON object that remembers which of its keys came more than once; the last one counts, as for HCCL."""

    repeated: tuple[str, ...] = ()

    @classmethod
    def from_pairs(cls, pairs: list[tuple[str, Any]]) -> JsonObject:
        members = cls(pairs)
        if len(members) < len(pairs):
            times = Counter(name for name, _ in pairs)
            members.repeated = tuple(sorted(name for name, number in times.items() if number > 1))
        return members


def parse_json(text: str) -> JsonObject:
    """The JSON object in ``text``; a byte order mark before it is passed over. Raises: NotARankTable."""
    text = text.removeprefix("\ufeff")
    if not text.strip(_SPACE):
        raise NotARankTable("the file is empty")
    if len(text) > MAX_CHARS:
        raise NotARankTable(filled("the file has {0} characters, expected at most {1}", len(text), MAX_CHARS))
    try:
        tree = json.loads(
            text,
            object_pairs_hook=JsonObject.from_pairs,
            parse_int=NumberText,
            parse_float=NumberText,
            parse_constant=NumberText,
        )
    except json.JSONDecodeError as error:
        raise _located_error(text, error) from None
    except RecursionError:
        raise NotARankTable("it is nested too deeply") from None
    if not isinstance(tree, JsonObject):
        raise NotARankTable("its outermost value is not an object in braces {}")
    return tree


def repeated_keys(tree: Any) -> list[str]:
    """The places of all keys that an object has more than once, in order."""
    paths: list[str] = []
    todo: list[tuple[str, Any]] = [("", tree)]
    while todo:
        path, value = todo.pop()
        inner: list[tuple[str, Any]] = []
        if isinstance(value, JsonObject):
            paths += [f"{path}.{printable(name, 40)}".lstrip(".") for name in value.repeated]
            inner = [(f"{path}.{printable(name, 40)}".lstrip("."), child) for name, child in value.items()]
        elif isinstance(value, list):
            inner = [(f"{path}[{number}]", child) for number, child in enumerate(value)]
        todo += [(place, child) for place, child in inner if isinstance(child, (JsonObject, list))]
    return sorted(paths)


def _located_error(text: str, error: json.JSONDecodeError) -> NotARankTable:
    reason, at = _likely_mistake(text, error)
    line = text.count("\n", 0, at) + 1
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    column = at - start + 1
    begin = max(start, at - 30)
    near = printable(text[begin : len(text) if end < 0 else end].strip(), 60)
    return NotARankTable(reason, line, column, near)


def _likely_mistake(text: str, error: json.JSONDecodeError) -> tuple[str, int]:
    """What was probably meant, and where it went wrong."""
    at = re.compile(r"[ \t\r\n]*").match(text, error.pos).end()  # type: ignore[union-attr]
    before = text[: error.pos].rstrip(_SPACE)
    if text[at : at + 1] == "," and text[at + 1 :].lstrip(_SPACE)[:1] in ("]", "}"):
        return "a comma before the closing bracket; remove it", at
    if text[at : at + 1] in ("]", "}") and before.endswith(","):
        return "a comma before the closing bracket; remove it", len(before) - 1
    if text.startswith(("//", "/*", "#"), at):
        return "a comment; JSON has none, remove it", at
    if text[at : at + 1] == "'":
        return "single quotes; JSON has double quotes only", at
    if text[at : at + 1] and text[at] in _WIDE_PUNCTUATION:
        return filled("the character {0} is not valid JSON; use the ASCII one", text[at]), at
    if error.msg == "Extra data":
        return "more text follows the end of the table; the file may contain two tables", at
    if at >= len(text):
        return "the file ends too early; it may be truncated", max(len(text.rstrip(_SPACE)) - 1, 0)
    return error.msg[:1].lower() + error.msg[1:], error.pos
