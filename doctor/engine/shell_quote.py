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
_BARE = re.compile(r"\$\(\(|\$\(|\$\{|\$'|<<|['\"`(#]")
_DOUBLE = re.compile(r"\$\(\(|\$\(|\$\{|`")
_OPENS = {"": _BARE, "$(": _BARE, "(": _BARE, '"': _DOUBLE, "${": _BARE, "$((": _BARE}


def scan(command: str) -> Iterator[Spot]:
    r"""Every placeholder, and what it stands in: quotes or a substitution by what opens them, ``#`` for a comment,
    ``\`` behind a backslash, ``<<`` behind the mark of a here document, ``case`` behind one in a substitution.

    >>> [(one.name, one.within) for one in scan("printf '%s' {a} \"{b}\" # {c}")]
    [('a', ''), ('b', '"'), ('c', '#')]
    """
    return _Scanner(command).spots()


class _Scanner:
    """Goes once through a command, and knows at each place what is open."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.open = [("", 0)]
        """What is open, the innermost last, and where each begins."""
        self.lost = ""
        """What keeps all that follows from being understood."""

    def spots(self) -> Iterator[Spot]:
        at = 0
        while at < len(self.command):
            within, since = self.open[-1]
            escapes = self.command[at] == "\\" and within not in ("'", "#")
            found = PLACE.match(self.command, at + escapes)
            if found and escapes:
                yield Spot(found[1], at + 1, found.end(), "\\", at)
            elif found:
                yield Spot(found[1], at, found.end(), self.lost or within, since)
            at = found.end() if found else at + 2 if escapes else self.passed(at, within)

    def passed(self, at: int, within: str) -> int:
        """Where what stands here ends; it opens and closes what it opens and closes."""
        if within and self.command.startswith(_ENDS[within], at):
            self.open.pop()
            return at + len(_ENDS[within])
        found = _OPENS[within].match(self.command, at) if within in _OPENS else None
        mark = found[0] if found else ""
        begins = at == 0 or self.command[at - 1] in " \t\n;&|()"
        if mark == "<<":
            self.lost = mark
        elif begins and self.command.startswith("case", at) and any(mark == "$(" for mark, _ in self.open):
            self.lost = self.lost or "case"  # its patterns end in brackets that were never opened
        elif mark and (begins or mark != "#"):
            self.open.append((mark, at))
        return at + (len(mark) or 1)


def open_quote(before: str) -> str:
    """The quote that is still open at the end of a command's beginning."""
    quote = ""
    for letter in re.sub(r"\\.", "", before):
        if letter == quote:
            quote = ""
        elif not quote and letter in "'\"":
            quote = letter
    return quote
