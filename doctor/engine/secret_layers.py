"""What programs write for the characters of a text that they pass on, and the texts below such layers."""

from __future__ import annotations

import re
from collections.abc import Iterator

_MARKS = ("&quot;", "&#", "&lt;", "&gt;", "&amp;", "\\x", "'\"'\"'", "'\\''", "\\u", '\\"', "\\'", "\\n  ")
_MOST_LAYERS = 8
"""Of quoting, one in another, that are taken away: a text may have as many as it has characters."""
_LAYERS = (
    (r"&(?:quot|#0?34|#x22);", '"'),
    (r"&(?:apos|#0?39|#x27);|'\"'\"'|'\\''", "'"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&amp;", "&"),
    (r"(?<!\\)\\+([\"'])", r"\1"),
    (r"(?<!\\)\\+[rn]", "\n"),
)
"""What a program that passes a text on writes for a character of it: of HTML, of a shell's words, of JSON."""


def inner_texts(text: str) -> Iterator[str]:
    """The text with one layer of quoting taken away, then with two, and so on.

    >>> list(inner_texts("a &amp;lt; b"))
    ['a &lt; b', 'a < b']
    """
    inner = text
    for _ in range(_MOST_LAYERS):
        outer = inner
        inner = _without_layer(outer) if any(mark in outer for mark in _MARKS) else outer
        if inner == outer:
            return
        yield inner


def _without_layer(text: str) -> str:
    inner = text
    for pattern, plain in _LAYERS:
        inner = re.compile(pattern).sub(plain, inner)
    inner = re.compile(r"(?<!\\)\\+u([0-9a-f]{4})").sub(lambda match: chr(int(match[1], 16)), inner)
    bytes_of = re.compile(r"(?<!\\)(?:\\+x[0-9a-f]{2})+")
    return bytes_of.sub(_decoded, inner)


def _decoded(match: re.Match[str]) -> str:
    return bytes.fromhex(re.sub(r"(?<!\\)\\+x", "", match[0])).decode("utf-8", "replace")


def parts_between(text: str, hidden: str, mark: str) -> Iterator[str]:
    """What of ``text`` is not in ``hidden``, which has ``mark`` in the place of each; none where it has other text.

    >>> list(parts_between("a=b c=d", "a=[x] c=[x]", "[x]"))
    ['b', 'd']
    """
    first, *kept = hidden.split(mark)
    place, end = len(first), len(text) - len(kept[-1]) if kept else 0
    for number, literal in enumerate(kept, 1):
        begin = end if number == len(kept) else text.find(literal, place + 1, end)
        if begin <= place:
            return
        yield text[place:begin]
        place = begin + len(literal)
