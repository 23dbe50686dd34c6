"""The placeholders of a shell command, and how a value is quoted to stay what it is there."""

from __future__ import annotations

import re
import shlex

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


def open_quote(before: str) -> str:
    """The quote that is still open at the end of a command's beginning."""
    quote = ""
    for letter in re.sub(r"\\.", "", before):
        if letter == quote:
            quote = ""
        elif not quote and letter in "'\"":
            quote = letter
    return quote
