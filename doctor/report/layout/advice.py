"""Fills a page's "What to do" with a finding's values, so that its commands can be pasted into a shell."""

from __future__ import annotations

import re
from collections.abc import Mapping

from doctor.engine.shell_quote import PLACE, open_quote, quoted


def whole_places(template: str) -> set[str]:
    """The placeholders that are a line of their own: sentences that the check wrote."""
    return {line.strip()[1:-1] for line in template.splitlines() if PLACE.fullmatch(line.strip())}


def advise(template: str, words: Mapping[str, str]) -> str:
    """``template`` with the placeholders that have a value filled in; all other braces stay.

    Between backquotes stands a command. What a host printed must stay one word, or part of one, there: it is quoted
    as its place asks for, unless the placeholder is the whole command and so the check's own.
    """
    parts = re.split(r"(`[^`]*`)", template)
    return "".join(_command(part, words) if part.startswith("`") else _text(part, words) for part in parts)


def _text(part: str, words: Mapping[str, str]) -> str:
    return PLACE.sub(lambda found: words.get(found[1], found[0]), part)


def _command(part: str, words: Mapping[str, str]) -> str:
    if PLACE.fullmatch(part.strip("`")):
        return _text(part, words)

    def put(found: re.Match[str]) -> str:
        if found[1] not in words:
            return found[0]
        return quoted(words[found[1]], open_quote(part[1 : found.start()]))

    return PLACE.sub(put, part)
