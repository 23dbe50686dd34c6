"""What programs write for the characters of a text that they pass on, and the texts below such layers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence

_MARKS = ("&quot;", "&#", "&lt;", "&gt;", "&amp;", "\\x", "'\"'\"'", "'\\''", "\\u", '\\"', "\\'", "\\n  ")
_MOST_LAYERS = 8
"""Of quoting, one in another, that are taken away: a text may have as many as it has characters."""
LEAST_WORD = 8
"""Characters of a word that is looked for wherever it stands."""
_LONG_WORD = 4096
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
    if "\\" not in text and "&" not in text and "'" not in text:  # as most texts: each of the marks has one of them
        return
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


def without_cut_secret(tail: str, close: str, search: Callable[[str], str], mark: str) -> str:
    """A text without the secret at its end that ``search`` replaces by ``mark`` where ``close`` stands behind it.

    Without a quote before it, only what has eight characters, a digit and a letter is one.
    """
    hidden = search(tail + close).removesuffix(close)
    if not hidden.endswith(mark) or (close == "@h" and hidden.endswith(f"/{mark}")):
        return tail
    cut = "".join([*parts_between(tail, hidden, mark)][-1:])
    return hidden if close in ("'", '"') or _LIKE_PASSWORD.match(cut) else tail


_LIKE_PASSWORD = re.compile(r"(?=\D*\d)(?=[^a-zA-Z]*[a-zA-Z]).{8}")


def without_words(text: str, words: Collection[str], mark: str) -> str:
    """``text`` with ``mark`` in the place of each of the words, of `LEAST_WORD` characters or more; also of all that
    overlap. A text may have as many words as lines: each place of it is compared with a few of them, not with all.

    >>> without_words("a=12345678, b=123456789", {"12345678", "123456789"}, "[x]")
    'a=[x], b=[x]'
    """
    for word in words:
        if len(word) > _LONG_WORD:
            text = text.replace(word, mark)
    ordered = sorted(word for word in words if len(word) <= _LONG_WORD)
    heads, longest = {word[:LEAST_WORD] for word in ordered}, max(map(len, ordered), default=0)
    pieces, end = [], 0
    for place in range(len(text) - LEAST_WORD + 1 if heads else 0):
        if text[place : place + LEAST_WORD] not in heads:
            continue
        size = _longest_start(text[place : place + longest], ordered)
        if size and place >= end:
            pieces += [text[end:place], mark]
        end = max(end, place + size) if size else end
    return "".join([*pieces, text[end:]])


def _longest_start(text: str, ordered: Sequence[str]) -> int:
    """Characters of the longest of the words that ``text`` begins with; 0: it begins with none."""
    while number := bisect_right(ordered, text):
        word = ordered[number - 1]
        if text.startswith(word):
            return len(word)
        text = text[: next(place for place, letter in enumerate(word) if text[place : place + 1] != letter)]
    return 0
