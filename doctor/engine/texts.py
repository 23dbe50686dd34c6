"""Texts for people that are filled in where they are made, and translated where they are shown.

`filled` and `joined` return plain English, and this process remembers their template and values, by the text: so a text
may be compared, sorted, sent and saved as any other, and `doctor.engine.translation` needs no guess to translate it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

MAX_TEXTS = 100_000
"""That are remembered: some 40 MB. The older half is forgotten when there are more, and is shown in English."""
MAX_CHARS = 8000
"""Characters of a text that is remembered."""
PLACEHOLDER = re.compile(r"\{(\w+)\}")

Values = Mapping[str, str] | Callable[[str], str]
"""By name; or how the template was changed."""

_templates: dict[str, tuple[str, Values]] = {}
"""Template and values by the filled text."""


def filled(template: str, *values: object, **named: object) -> str:
    """``template`` with ``{0}``, ``{1}``... replaced by ``values``, and ``{name}`` by ``named``. Other braces stay.

    Values are formatted as an f-string does; a value that is such a text itself is translated, too.

    >>> filled("no {0} on {host}", "link", host="node1")
    'no link on node1'
    """
    texts = {str(number): format(value) for number, value in enumerate(values)}
    texts.update((name, format(value)) for name, value in named.items())
    text = fill(template, texts)
    remember(text, template, texts)
    return text


def joined(separator: str, texts: Iterable[str]) -> str:
    """What ``separator.join(texts)`` is; each of them is translated for itself.

    >>> joined("; ", [filled("{0} is down", "eth0"), "no route"])
    'eth0 is down; no route'
    """
    items = list(texts)
    text = separator.join(items)
    if len(items) > 1 and len(text) <= MAX_CHARS:
        template = separator.join(f"{{{number}}}" for number in range(len(items)))
        remember(text, template, {str(number): item for number, item in enumerate(items)})
    return text


def enumerated(texts: Iterable[str], conjunction: str = " and ") -> str:
    """Texts as a sentence lists them; empty where there are none.

    >>> enumerated(["a", "b", "c"]), enumerated(["a"], " or ")
    ('a, b and c', 'a')
    """
    items = list(texts)
    if len(items) < 2:
        return "".join(items)
    numbers = [f"{{{number}}}" for number in range(len(items))]
    return filled(", ".join(numbers[:-1]) + conjunction + numbers[-1], *items)


def rewritten(text: str, change: Callable[[str], str]) -> str:
    """``change(text)``, for a change that is the same in every language, as of a placeholder in a command.

    >>> rewritten("see dmesg -T of NODE", lambda text: text.replace("NODE", "node1"))
    'see dmesg -T of node1'
    """
    result = change(text)
    if result != text:
        remember(result, text, change)
    return result


def remember(text: str, template: str, values: Values) -> None:
    """Takes note that ``text`` is ``template``, filled with ``values``, or changed by them."""
    if len(text) > MAX_CHARS:
        return
    if len(_templates) >= MAX_TEXTS:
        for old in list(_templates)[: MAX_TEXTS // 2]:
            _templates.pop(old, None)
    _templates[text] = template, values


def origin(text: str) -> tuple[str, Values] | None:
    """Template and values of a text; None where it was not filled here."""
    return _templates.get(text)


def fill(template: str, values: Mapping[str, str]) -> str:
    """``template`` with each ``{name}`` replaced that has a value. Nothing is replaced within values."""
    return "".join(
        piece if is_text else values.get(piece, f"{{{piece}}}") for is_text, piece in template_pieces(template)
    )


@lru_cache(maxsize=4096)
def template_pieces(template: str) -> tuple[tuple[bool, str], ...]:
    """The pieces of a template in order: its own text (True), and the names of values (False)."""
    pieces: Iterator[tuple[int, str]] = enumerate(PLACEHOLDER.split(template))
    return tuple((number % 2 == 0, piece) for number, piece in pieces if piece)
