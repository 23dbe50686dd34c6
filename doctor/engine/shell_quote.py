"""Where a placeholder stands in a shell command, and how a value is quoted to stay what it is there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

# {name} alone: not the braces of a shell variable, of awk or of a Go template.
PLACEHOLDER = re.compile(r"(?<![${])\{([a-z_][a-z0-9_]*)\}(?!\})")


def placeholder_names(template: str) -> set[str]:
    """The names of the placeholders in a text."""
    return set(PLACEHOLDER.findall(template))


def quote_value(value: str, within: str = "") -> str:
    """``value`` so that a shell takes it as it is, outside of quotes or within a kind of them."""
    if within == "'":
        return value.replace("'", "'\\''")
    if within == '"':
        return re.sub(r'([\\"$`])', r"\\\1", value)
    return shlex.quote(value)


class Placeholder(NamedTuple):
    """One placeholder in a command."""

    name: str
    start: int
    end: int
    context: str
    """What it stands in, as `scan_placeholders` names it."""
    context_start: int
    """Where that begins."""


QUOTABLE_CONTEXTS = ("", "$(", "(", "'", '"')
"""What a value can stand in and be kept one word by `quote_value`."""
_CLOSERS = {"'": "'", '"': '"', "`": "`", "${": "}", "$(": ")", "$((": "))", "(": ")", "#": "\n", "$'": "'"}
_OPENERS_UNQUOTED = re.compile(r"\$\(\(|\$\(|\$\{|\$'|<<|['\"`(#]")
_OPENERS_IN_DOUBLE_QUOTES = re.compile(r"\$\(\(|\$\(|\$\{|`")
_OPENERS = {
    "": _OPENERS_UNQUOTED,
    "$(": _OPENERS_UNQUOTED,
    "(": _OPENERS_UNQUOTED,
    '"': _OPENERS_IN_DOUBLE_QUOTES,
    "${": _OPENERS_UNQUOTED,
    "$((": _OPENERS_UNQUOTED,
}


def scan_placeholders(command: str) -> Iterator[Placeholder]:
    r"""Every placeholder, and what it stands in: quotes or a substitution by what opens them, ``#`` for a comment,
    ``\`` behind a backslash, ``<<`` behind the mark of a here document, ``case`` behind one in a substitution.

    >>> [(one.name, one.context) for one in scan_placeholders("printf '%s' {a} \"{b}\" # {c}")]
    [('a', ''), ('b', '"'), ('c', '#')]
    """
    return _Scanner(command).placeholders()


class _Scanner:
    """Scans a command once, and tracks the open quotes and substitutions."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.open_contexts = [("", 0)]
        """What is open, the innermost last, and where each begins."""
        self.unparsable = ""
        """What keeps all that follows from being understood."""

    def placeholders(self) -> Iterator[Placeholder]:
        at = 0
        while at < len(self.command):
            within, since = self.open_contexts[-1]
            escapes = self.command[at] == "\\" and within not in ("'", "#")
            match = PLACEHOLDER.match(self.command, at + escapes)
            if match and escapes:
                yield Placeholder(match[1], at + 1, match.end(), "\\", at)
            elif match:
                yield Placeholder(match[1], at, match.end(), self.unparsable or within, since)
            at = match.end() if match else at + 2 if escapes else self.advance(at, within)

    def advance(self, at: int, within: str) -> int:
        """Where what stands here ends; it opens and closes what it opens and closes."""
        if within and self.command.startswith(_CLOSERS[within], at):
            self.open_contexts.pop()
            return at + len(_CLOSERS[within])
        match = _OPENERS[within].match(self.command, at) if within in _OPENERS else None
        mark = match[0] if match else ""
        begins = at == 0 or self.command[at - 1] in " \t\n;&|()"
        if mark == "<<":
            self.unparsable = mark
        elif begins and self.command.startswith("case", at) and any(mark == "$(" for mark, _ in self.open_contexts):
            self.unparsable = self.unparsable or "case"  # its patterns end in brackets that were never opened
        elif mark and (begins or mark != "#"):
            self.open_contexts.append((mark, at))
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
