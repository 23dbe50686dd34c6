"""Fills a page's "What to do" with a finding's values, so that its commands can be pasted into a shell."""

from __future__ import annotations

import re
from collections.abc import Mapping

from doctor.engine.shell_quote import PLACEHOLDER, open_quote, quote_value


def standalone_placeholders(template: str) -> set[str]:
    """The placeholders that are a line of their own: sentences that the check wrote."""
    return {line.strip()[1:-1] for line in template.splitlines() if PLACEHOLDER.fullmatch(line.strip())}


def fill_advice(template: str, values: Mapping[str, str]) -> str:
    """``template`` with the placeholders that have a value filled in; all other braces stay.

    Between backquotes stands a command. What a host printed must stay one word, or part of one, there: it is quoted
    as its place asks for, unless the placeholder is the whole command and so the check's own.
    """
    parts = re.split(r"(`[^`]*`)", template)
    return "".join(_fill_command(part, values) if part.startswith("`") else _fill_text(part, values) for part in parts)


def _fill_text(part: str, values: Mapping[str, str]) -> str:
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), part)


def _fill_command(part: str, values: Mapping[str, str]) -> str:
    if PLACEHOLDER.fullmatch(part.strip("`")):
        return _fill_text(part, values)

    def substitute(match: re.Match[str]) -> str:
        if match[1] not in values:
            return match[0]
        return quote_value(values[match[1]], open_quote(part[1 : match.start()]))

    return PLACEHOLDER.sub(substitute, part)
