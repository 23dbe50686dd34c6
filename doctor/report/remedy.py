"""Fills a page's "What to do" with a finding's values, so that its commands can be pasted into a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

# {name} alone: not the braces of a shell variable, of awk or of a Go template.
_PLACE = re.compile(r"(?<![${])\{([a-z_][a-z0-9_]*)\}(?!\})")


def places(template: str) -> set[str]:
    """The names of the placeholders in a page's text."""
    return set(_PLACE.findall(template))


def whole_places(template: str) -> set[str]:
    """The placeholders that are a line of their own: sentences that the check wrote."""
    return {line.strip()[1:-1] for line in template.splitlines() if _PLACE.fullmatch(line.strip())}


def advise(template: str, words: Mapping[str, str]) -> str:
    """``template`` with the placeholders that have a value filled in; all other braces stay.

    Between backquotes stands a command. What a host printed must stay one word, or part of one, there: it is quoted
    as its place asks for, unless the placeholder is the whole command and so the check's own.
    """
    parts = re.split(r"(`[^`]*`)", template)
    return "".join(_command(part, words) if part.startswith("`") else _text(part, words) for part in parts)


def _text(part: str, words: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda found: words.get(found[1], found[0]), part)


def _command(part: str, words: Mapping[str, str]) -> str:
    if _PLACE.fullmatch(part.strip("`")):
        return _text(part, words)

    def put(found: re.Match[str]) -> str:
        if found[1] not in words:
            return found[0]
        return quoted(words[found[1]], _open_quote(part[1 : found.start()]))

    return _PLACE.sub(put, part)


def quoted(value: str, within: str = "") -> str:
    """``value`` so that a shell takes it as it is, outside of quotes or within a kind of them."""
    if within == "'":
        return value.replace("'", "'\\''")
    if within == '"':
        return re.sub(r'([\\"$`])', r"\\\1", value)
    return shlex.quote(value)


def _open_quote(before: str) -> str:
    """The quote that is still open at the end of a command's beginning."""
    quote = ""
    for letter in re.sub(r"\\.", "", before):
        if letter == quote:
            quote = ""
        elif not quote and letter in "'\"":
            quote = letter
    return quote
