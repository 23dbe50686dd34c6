"""The patterns of a catalogue of texts: which of them a filled text may be made of, and with which values. Pure.

A text that another program printed may look like one of ours: ``Bus error`` is no number of errors. So a pattern fits
only where its values can be meant: a number where the translation counts, and no sentence that would stay English.
"""

from __future__ import annotations

import itertools
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MIN_LETTERS = 7
LIST_SIGN = "; "
AND = " and "


class TextPattern:
    """A template and its translation: literal ``parts``, and ``{0}``, ``{1}`` in ``translated`` for what is between."""

    __slots__ = ("has_and", "letters", "numeric", "parts", "quoting", "translated", "word_count")

    def __init__(self, english: str, translated: str) -> None:
        pieces = PLACEHOLDER.split(english)
        numbers: dict[str, int] = {}
        for number, name in enumerate(pieces[1::2]):
            numbers.setdefault(name, number)
        self.parts = pieces[::2]
        self.translated = PLACEHOLDER.sub(
            lambda match: f"{{{numbers[match[1]]}}}" if match[1] in numbers else match[0], translated
        )
        self.letters = sum(letter.isalpha() for part in self.parts for letter in part)
        """How many letters are the same in all that fits."""
        self.word_count = sum(len(_PROSE_WORD.findall(part)) for part in self.parts)
        self.has_and = any(AND in part for part in self.parts)
        counted = {int(match[1]) for match in _COUNTED.finditer(self.translated)}
        self.numeric = [
            number in counted or _NUMBERED.search(part) is not None for number, part in enumerate(self.parts[:-1])
        ]
        """Of each value, whether it is a number."""
        self.quoting = [
            _BEFORE_QUOTATION.search(before) is not None or after.startswith(" (")
            for before, after in itertools.pairwise(self.parts)
        ]
        """Of each value, whether it may be a sentence of another program."""

    def values(self, text: str) -> list[str] | None:
        """What stands for the placeholders in ``text``; None where the pattern does not fit."""
        values = _values_between(self.parts, text)
        if values is None or self._counts(values):
            return values
        if len(self.parts) == 3 and self.parts[1]:  # the first value may be longer, as a list is
            before, _, after = text[: len(text) - len(self.parts[2])].rpartition(self.parts[1])
            values = [before[len(self.parts[0]) :], after]
            return values if self._counts(values) else None
        return None

    def _counts(self, values: Iterable[str]) -> bool:
        """Whether all that are numbers can be one."""
        pairs = zip(values, self.numeric, strict=True)
        return all(not numeric or _is_number(value) for value, numeric in pairs)

    def fits_too_much(self, values: Iterable[str]) -> bool:
        """Whether a pattern of few letters has a value of several words, or one of some more letters a list."""
        sign = " " if self.letters < MIN_LETTERS else LIST_SIGN if self.letters < 2 * MIN_LETTERS else ""
        pairs = zip(values, self.numeric, strict=True)
        return any(sign in value and not numeric for value, numeric in pairs) if sign else False

    @staticmethod
    def is_list_of_names(value: str) -> bool:
        """Whether a value has no word of a sentence, as ``AIV, HOST, 10.0.0.1``."""
        return ", " in value and not _CLOSED_FIRST.match(value) and _PROSE_WORD.search(value) is None

    def leaves_prose(self, values: Iterable[str]) -> bool:
        """Whether more words would stay English in ``values`` than the pattern has: then it is another's sentence.

        Behind a colon, in brackets and between quotation marks a text may stand as it is.
        """
        free = (value for value, quoted in zip(values, self.quoting, strict=True) if not quoted)
        return sum(len(_PROSE_WORD.findall(_QUOTED.sub("", value))) for value in free) > max(self.word_count, 1)


class PatternIndex:
    """The patterns of a catalogue, so that few of them are tried for each text."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._beginning: dict[str, list[tuple[int, TextPattern]]] = {}
        """By the first word, each with its rank in the order."""
        self._containing: dict[str, list[tuple[int, TextPattern]]] = {}
        """Those whose first part is a value, by a word that the text has to have."""
        patterns = (TextPattern(english, text) for english, text in texts.items() if PLACEHOLDER.search(english))
        for order, pattern in enumerate(sorted(patterns, key=lambda pattern: -pattern.letters)):
            word = _first_word(pattern.parts[0])
            index = self._beginning if word else self._containing
            index.setdefault(word or _needed_word(pattern.parts), []).append((order, pattern))

    def candidates(self, english: str) -> Iterator[TextPattern]:
        """The patterns that may fit a text: that with the most letters in common with it first."""
        rows = [*self._beginning.get(_first_word(english), ())]
        for word in ("", *{*_WORD.findall(english)}):
            rows += self._containing.get(word, ())
        yield from (pattern for _, pattern in sorted(rows, key=lambda row: row[0]))


PLACEHOLDER = re.compile(r"\{(\w+)\}")
_COUNTED = re.compile(r"\{(\d+)\} ?(?:[个台次条行项种张块份组对层步天秒]|字节|小时|分钟)")
"""A placeholder before a measure word."""
_NUMBERED = re.compile(r"\b(?:[NG]PU|ranks?|devices?|step|process|pid) \Z")
"""The words before a placeholder that is a number, or has one in it."""
_QUALIFIERS = (
    "about ", "all ", "almost ", "another ", "at least ", "at most ", "fewer than ", "less than ",
    "more than ", "only ",
)  # fmt: skip
_COUNT_WORDS = ("all", "both", "each", "every", "few", "many", "most", "one", "several", "some", "two")
_LIST_WORDS = ("and", "more", "of", "or", "to")
_DIGIT_OR_VALUE, _DIGIT = re.compile(r"[\d<{]"), re.compile(r"\d")
_CLOSED_FIRST = re.compile(r"[^(]*\)")
_BEFORE_QUOTATION = re.compile(r"(?:: |[(\"'`])\Z")
_QUOTED = re.compile(
    r"`[^`]*`|'[^']*'|\"[^\"]*\"|\([^()]*\)|: .*|(?:\A|(?<=, ))[\w-]+(?=, )|(?<=, )[\w-]+\Z", re.DOTALL
)
"""What is no sentence: quotations, what stands in brackets or behind a colon, names in a list."""
_PROSE_WORD = re.compile(r"(?<![\w./=:-])[a-z]{2,}(?![\w/=(]|[.:-]\w)")
_WORD = re.compile(r"[A-Za-z]+")


def _first_word(text: str) -> str:
    word, space, _ = text.partition(" ")
    return word if space else ""


def _needed_word(parts: list[str]) -> str:
    """The longest word of a pattern that no value can be part of; empty where each word is beside a value.

    >>> _needed_word(["", " hosts were not re", ""])
    'hosts'
    """
    last = len(parts) - 1
    literals = (
        match[0]
        for number, part in enumerate(parts)
        for match in _WORD.finditer(part)
        if (match.start() > 0 or number == 0) and (match.end() < len(part) or number == last)
    )
    return max(literals, key=len, default="")


def _values_between(parts: list[str], text: str) -> list[str] | None:
    """What stands between the literal parts of a pattern in ``text``, in linear time; None where it does not fit."""
    first, *between, last = parts
    end = len(text) - len(last)
    if not text.startswith(first) or not text.endswith(last) or end < len(first):
        return None
    values: list[str] = []
    start, adjacent = len(first), 1
    for part in between:
        if part:
            place = text.find(part, start, end)
            while part.isspace() and place > start and text[place - 1] in ",;":  # within a list, not behind it
                place = text.find(part, place + 1, end)
            if place < 0:
                return None
            values += _divided(text[start:place], adjacent)
            start, adjacent = place + len(part), 1
        else:
            adjacent += 1
    return [*values, *_divided(text[start:end], adjacent)]


_DIVISION = re.compile(r"(?<=.)(?:[;,:] | \()", re.DOTALL)


def _divided(text: str, count: int) -> list[str]:
    """The values of placeholders with nothing between: each but the first begins with a sign, or is empty."""
    values: list[str] = []
    while len(values) < count - 1:
        match = _DIVISION.search(text)
        values.append(text[: match.start()] if match else text)
        text = text[match.start() :] if match else ""
    return [*values, text]


def _is_number(text: str) -> bool:
    """Whether a value can be a number, or a list of some: ``at least 3``, ``2, 4 and 7``, ``0-3 of 8``, ``several``."""
    while prefix := next((prefix for prefix in _QUALIFIERS if text.startswith(prefix)), ""):
        text = text[len(prefix) :]
    if text in _COUNT_WORDS:
        return True
    first, *words = text.split(" ")
    if not _DIGIT_OR_VALUE.search(first):
        return False
    before = first
    while words:
        if words[0] in _LIST_WORDS and len(words) > 1:
            del words[0]
        elif not before.endswith(","):
            return False
        before = words.pop(0)
        if not _DIGIT.search(before):
            return False
    return True
