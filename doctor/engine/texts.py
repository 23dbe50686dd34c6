"""Texts for people that are filled in where they are made, and translated where they are shown.

`filled` and `joined` return plain English, and this process remembers their template and values, by the text: so a text
may be compared, sorted, sent and saved as any other, and `doctor.engine.translation` needs no guess to translate it.

A table of them travels with a document or with a host's answer: template -> rows of values, in the order in which their
placeholders come first. The text itself is not in it: the reader fills the template, so that no table gives a text
another meaning than its own words have. Who wrote it is not trusted: rows that do not fit are left out, and a template
that no catalogue has stays English.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice

MAX_TEXTS = 100_000
"""That are remembered: some 40 MB. The older half is forgotten when there are more, and is shown in English."""
MAX_CHARS = 8000
"""Characters of a text that is remembered."""
PLACEHOLDER = re.compile(r"\{(\w+)\}")

_NOUNS = """
    address attempt batch bit bridge buffer byte call card character check collective connection container CPU day
    device element error event file finding gateway GPU group host inode interface job lane layer level line link
    machine member message MTU name neighbour NPU NVLink NVSwitch object operation packet page pair parameter path
    peer place pod port process rank round row sample script second segment slot stage step tensor thread time value
    variable waiver word worker
"""
"""That a text counts. A word that is a verb as well, as `lists`, is none of them: a name before it may be "1"."""
_PLURALS = {f"{noun}{'es' if noun.endswith(('s', 'ch')) else 's'}": noun for noun in _NOUNS.split()}
_PLURALS["entries"] = "entry"
_ONE_OF_MANY = re.compile(rf"\{{(\w+)\}} ((?:[a-z]+ )?)({'|'.join(_PLURALS)})\b(?: (are|have|were)\b)?")
_NAMED_BY_NUMBER = re.compile(r"\b(port|rank|pid)s \{(\w+)\}(?!(?: to | and | or |, ?|-)\{)(?: (are|have|were)\b)?")
"""Things that are named by a number behind them, as in ``TCP ports {ports}``."""
_VERBS = {"are": " is", "have": " has", "were": " was", None: ""}
_SEVERAL = re.compile(r"(?:hosts|pids|ranks) ")
"""How a value begins that names several."""
_OF_SEVERAL = {"does": "do", "has": "have", "is": "are", "was": "were", "its": "their", "itself": "themselves"}
_OF_ONE = "begins computes differs draws ends gets holds keeps loads makes masks puts reads sends takes trains waits"
_OF_SEVERAL.update((verb, verb[:-1]) for verb in _OF_ONE.split())
_SUBJECT = re.compile(
    r"(?:\b(?P<of>among|at|between|by|for|from|in|of|on|than|to|with) )?\{(?P<name>\w+)\}(?P<which>, which|) "
    rf"(?P<verb>{'|'.join(verb for verb in _OF_SEVERAL if not verb.startswith('it'))})\b"
)
"""A value with the verb that it is the subject of; behind a preposition it is none, as in "the loss of {0} differs"."""
_PRONOUN = re.compile(r"\b(?:its|itself)\b")

TextTable = dict[str, list[list[str]]]
"""Rows of values by template."""
MAX_ROWS = MAX_TEXTS // 2
"""Of a document's table that are read."""
MAX_ANSWER_ROWS = 1000
"""Of the table in a host's answer."""

OWN_SPACE = "\0"
"""Stands for a space within a value while loose ones are taken out."""

Values = Mapping[str, str] | Callable[[str], str]
"""By name; or how the template was changed."""

_templates: dict[str, tuple[str, Values]] = {}
"""Template and values by the filled text."""


BEHIND_A_CUT = 600
"""Characters behind a cut in which a secret before it may end."""


def beginning(text: str, limit: int) -> str:
    r"""At most ``limit`` characters of a foreign text, free of secrets before it is cut: a part of one has no shape.

    >>> beginning("echo Hunter2hunter2 | sudo -S ls", 21), beginning("eth0", 21)
    ('echo [hidden] | sudo ', 'eth0')
    """
    return text if len(text) <= limit else _hidden(text[: limit + BEHIND_A_CUT])[:limit]


def ending(text: bytes, limit: int) -> str:
    """The same of the end of what a program printed: what a token begins with may stand before the cut."""
    return _hidden(text[-limit - BEHIND_A_CUT :].decode("utf-8", "replace"))[-limit:]


def _hidden(text: str) -> str:
    from doctor.engine.secrets import hide_secrets  # most texts are short

    return hide_secrets(text)


def filled(template: str, *values: object, **named: object) -> str:
    """``template`` with ``{0}``, ``{1}``... replaced by ``values``, and ``{name}`` by ``named``. Other braces stay.

    Values are formatted as an f-string does; a value that is such a text itself is translated, too.

    >>> filled("no {0} on {host}", "link", host="node1")
    'no link on node1'
    """
    texts = {str(number): format(value) for number, value in enumerate(values)}
    texts.update((name, format(value)) for name, value in named.items())
    text = fill(agreeing(template, texts), texts)
    remember(text, template, texts)
    return text


def joined(separator: str, texts: Iterable[str]) -> str:
    """What ``separator.join(texts)`` is; each of them is translated for itself, unless it was filled as a whole before.

    >>> joined("; ", [filled("{0} is down", "eth0"), "no route"])
    'eth0 is down; no route'
    """
    items = list(texts)
    text = separator.join(items)
    if len(items) > 1 and len(text) <= MAX_CHARS and origin(text) is None:
        template = separator.join(f"{{{number}}}" for number in range(len(items)))
        remember(text, template, {str(number): item for number, item in enumerate(items)})
    return text


def first_few(pairs: Iterable[tuple[str, str]], most: int = 4) -> tuple[str, str]:
    """Texts and remedies, each as one; behind more than ``most`` that there are others. Empty where there are none.

    >>> first_few([("; a", "Mend a."), ("; b", "Mend b.")]), first_few([("; a", "A."), ("; b", "B.")], most=1)
    (('; a; b', 'Mend a. Mend b.'), ('; a; and others', 'A.'))
    """
    named = [*islice(pairs, most + 1)]
    others = ["; and others"] if len(named) > most else []
    return joined("", [text for text, _ in named[:most]] + others), joined(" ", [text for _, text in named[:most]])


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


def restated(text: str, change: Callable[[str], str]) -> str:
    """``change(text)``, which is translated as before where it changes nothing but values, as a pseudonym for a host.

    >>> restated(filled("no {0} on {1}", "link", "node1"), lambda text: text.replace("node1", "host-a"))
    'no link on host-a'
    """
    result = change(text)
    source = origin(text) if result != text else None
    if source is not None and not callable(source[1]):
        values = {name: restated(value, change) for name, value in source[1].items()}
        if fill(agreeing(source[0], values), values) == result:
            remember(result, source[0], values)
    return result


def restated_by_values(text: str, change: Callable[[str], str]) -> str:
    """`restated`, with each value changed for itself before: what ends a line there is within a sentence here.

    >>> restated_by_values(filled("{0} (and {1} more)", "the key is x9", 7), lambda text: re.sub("x9$", "?", text))
    'the key is ? (and 7 more)'
    """
    template, values = origin(text) or ("", {})
    if not callable(values):
        changed = {name: restated_by_values(value, change) for name, value in values.items()}
        if changed != values and fill(agreeing(template, values), values) == text:
            text = fill(agreeing(template, changed), changed)
            remember(text, template, changed)
    return restated(text, change)


def without_start(text: str, start: str) -> str:
    """``text`` without its first words, for a place that has them; its values are translated as before.

    >>> without_start(filled("waits in {0}", "all_reduce"), "waits in ")
    'all_reduce'
    """
    source = origin(text)
    if not text.startswith(start) or source is None:
        return text.removeprefix(start)
    template, values = source
    if callable(values):
        return text.removeprefix(start)
    first = placeholders(template)[0]
    if template.startswith(start):
        return filled(template[len(start) :], **values)
    if template.startswith(f"{{{first}}}"):
        return filled(template, **{**values, first: without_start(values[first], start)})
    return text.removeprefix(start)


def with_own_spaces(value: str) -> str:
    """A value for a text whose loose spaces are removed: spaces within the value are kept, as in a file's name."""
    inner = value.strip(" ")
    return value if value.isascii() else value.replace(inner, inner.replace(" ", OWN_SPACE))


def remember(text: str, template: str, values: Values) -> None:
    """Takes note that ``text`` is ``template``, filled with ``values``, or changed by them.

    A text that is one of its own values, as the others are empty, keeps the template that it has.
    """
    if len(text) > MAX_CHARS or (not callable(values) and text in values.values()):
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
        [piece if is_text else values.get(piece, f"{{{piece}}}") for is_text, piece in template_pieces(template)]
    )


def agreeing(template: str, values: Mapping[str, str]) -> str:
    """``template`` with its nouns and verbs in the number of the values that they belong to.

    A noun, and are, have or were, is in the singular after each placeholder whose value is 1, and where one number
    alone names it; the verb, and ``its``, in the plural after one whose value names several ranks, hosts or pids.

    >>> agreeing("{0} processes on {1} other hosts", {"0": "1", "1": "2"})
    '{0} process on {1} other hosts'
    >>> agreeing("whether TCP ports {0} are open", {"0": "29500"})
    'whether TCP port {0} is open'
    >>> agreeing("ranks {0} to {1} are interleaved", {"0": "2", "1": "7"})
    'ranks {0} to {1} are interleaved'
    >>> agreeing("{0} holds other values than its group; the loss of {0} differs", {"0": "ranks 2 and 3"})
    '{0} hold other values than their group; the loss of {0} differs'
    """
    if "1" in values.values():
        template = _ONE_OF_MANY.sub(lambda match: _singular(match, values), template)
    if any(map(str.isdecimal, values.values())):
        template = _NAMED_BY_NUMBER.sub(lambda match: _named(match, values), template)
    return _with_plural_verbs(template, values) if any(map(_SEVERAL.match, values.values())) else template


def _with_plural_verbs(template: str, values: Mapping[str, str]) -> str:
    changed = _SUBJECT.sub(lambda match: _plural(match, values), template)
    return _PRONOUN.sub(lambda match: _OF_SEVERAL[match[0]], changed) if changed != template else template


def _plural(match: re.Match[str], values: Mapping[str, str]) -> str:
    if (match["of"] and not match["which"]) or not _SEVERAL.match(values.get(match["name"], "")):
        return match[0]
    return match[0][: match.start("verb") - match.start()] + _OF_SEVERAL[match["verb"]]


def _singular(match: re.Match[str], values: Mapping[str, str]) -> str:
    name, between, plural, verb = match.groups()
    return f"{{{name}}} {between}{_PLURALS[plural]}{_VERBS[verb]}" if values.get(name) == "1" else match[0]


def _named(match: re.Match[str], values: Mapping[str, str]) -> str:
    noun, name, verb = match.groups()
    return f"{noun} {{{name}}}{_VERBS[verb]}" if values.get(name, "").isdecimal() else match[0]


def placeholders(template: str) -> tuple[str, ...]:
    """The names of a template's values, each once, in the order in which they come.

    >>> placeholders("{1} of {0}, not of {1}")
    ('1', '0')
    """
    return tuple(dict.fromkeys(piece for is_text, piece in template_pieces(template) if not is_text))


@lru_cache(maxsize=4096)
def template_pieces(template: str) -> tuple[tuple[bool, str], ...]:
    """The pieces of a template in order: its own text (True), and the names of values (False)."""
    pieces: Iterator[tuple[int, str]] = enumerate(PLACEHOLDER.split(template))
    return tuple((number % 2 == 0, piece) for number, piece in pieces if piece)


def texts_within(value: object) -> Iterator[str]:
    """Every text of plain values, as of JSON; not the keys."""
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            todo += part.values()
        elif isinstance(part, (list, tuple)):
            todo += part


def table_of(texts: Iterable[str]) -> TextTable:
    """The rows of those texts that `doctor.engine.texts` has filled, and of their values; sorted."""
    rows: dict[str, set[tuple[str, ...]]] = {}
    todo, visited = list(texts), set[str]()
    while todo:
        text = todo.pop()
        source = origin(text) if len(text) <= MAX_CHARS and text not in visited else None
        visited.add(text)
        if source is None:
            continue
        template, values = source
        if callable(values):
            continue
        names = placeholders(template)
        if all(name in values for name in names):
            rows.setdefault(template, set()).add(tuple(values[name] for name in names))
            todo += values.values()
    return {template: [list(row) for row in sorted(rows[template])] for template in sorted(rows)}


def read_table(table: Mapping[str, Iterable[Sequence[str]]], limit: int = MAX_ROWS) -> None:
    """Makes the first rows of a table, at most ``limit``, known to this process; what it has filled itself stays."""
    rows = ((template, row) for template, rows in table.items() if len(template) <= MAX_CHARS for row in rows)
    for template, row in islice(rows, limit):
        names = placeholders(template)
        if len(names) != len(row) or not names:
            continue
        values = dict(zip(names, row, strict=True))
        size = sum(len(piece) if is_text else len(values[piece]) for is_text, piece in template_pieces(template))
        for shape in {template, agreeing(template, values)} if size <= MAX_CHARS else ():
            if origin(text := fill(shape, values)) is None:
                remember(text, template, values)
