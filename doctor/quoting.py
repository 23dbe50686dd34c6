"""Where a placeholder stands in a shell command, and how a value is quoted to stay what it is there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

# {name} alone: not the braces of a shell variable, of awk or of a Go template.
PLACE = re.compile(r"(?<![${])\{([a-z_][a-z0-9_]*)\}(?!\})")


def places(template: str) -> set[str]:
    """The names of the placeholders in a text."""
    return set(PLACE.findall(template))


def quoted(value: str, within: str = "") -> str:
    """``value`` so that a shell takes it as it is, outside of quotes or within a kind of them."""
    if within == "'":
        return value.replace("'", "'\\''")
    if within == '"':
        return re.sub(r'([\\"$`])', r"\\\1", value)
    return shlex.quote(value)


class Spot(NamedTuple):
    """One placeholder in a command."""

    name: str
    start: int
    end: int
    within: str
    """What it stands in, as `scan` names it."""
    opened: int
    """Where that begins."""


HARMLESS = ("", "$(", "(", "'", '"')
"""What a value can stand in and be kept one word by `quoted`."""
_ENDS = {"'": "'", '"': '"', "`": "`", "${": "}", "$(": ")", "$((": "))", "(": ")", "#": "\n", "$'": "'"}
_BARE = re.compile(r"\$\(\(|\$\(|\$\{|\$'|<<|[\\'\"`(#]")
_DOUBLE = re.compile(r"\$\(\(|\$\(|\$\{|[\\`]")
_OPENS = {"": _BARE, "$(": _BARE, "(": _BARE, '"': _DOUBLE, "${": _BARE, "$((": _BARE, "`": re.compile(r"\\")}


def scan(command: str) -> Iterator[Spot]:
    r"""Every placeholder, and what it stands in: quotes or a substitution by what opens them, ``#`` for a comment,
    ``\`` behind a backslash, ``<<`` behind the mark of a here document,
    ``case`` behind a case in a substitution.

    >>> [(one.name, one.within) for one in scan("printf '%s' {a} \"{b}\" # {c}")]
    [('a', ''), ('b', '"'), ('c', '#')]
    """
    stack, since = [""], [0]
    at = 0
    lost = ""
    while at < len(command):
        inner = stack[-1]
        found = PLACE.match(command, at)
        if found:
            yield Spot(found[1], at, found.end(), lost or inner, since[-1])
            at = found.end()
            continue
        if inner and command.startswith(_ENDS[inner], at):
            since.pop()
            at += len(_ENDS[stack.pop()])
            continue
        opened = _OPENS[inner].match(command, at) if inner in _OPENS else None
        mark = opened[0] if opened else ""
        if mark == "\\" or (mark == "" and inner == "$'" and command[at] == "\\"):
            behind = PLACE.match(command, at + 1)
            if behind:
                yield Spot(behind[1], at + 1, behind.end(), "\\", at)
            at = behind.end() if behind else at + 2
            continue
        if mark == "<<":
            lost = "<<"
        elif command.startswith("case", at) and "$(" in stack and _begins_word(command, at):
            lost = lost or "case"  # its patterns end in brackets that were never opened
        elif mark and (mark != "#" or _begins_word(command, at)):
            stack.append(mark)
            since.append(at)
        at += len(mark) or 1


def _begins_word(command: str, at: int) -> bool:
    return at == 0 or command[at - 1] in " \t\n;&|()"


def open_quote(before: str) -> str:
    """The quote that is still open at the end of a command's beginning."""
    quote = ""
    for letter in re.sub(r"\\.", "", before):
        if letter == quote:
            quote = ""
        elif not quote and letter in "'\"":
            quote = letter
    return quote
