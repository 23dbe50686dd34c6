"""Finds the translation of a text in a catalogue: as it stands, by its pattern, or part by part. Pure.

A catalogue has whole texts, and templates with ``{name}`` where values were filled in before the text got here.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MIN_LETTERS = 7
AT_PLACE, OF_PROCESS, IN_BRACKETS = " ({name} at {place})", " (pid {pid} on {host})", " ({text})"
"""Behind what a rank does, behind its number, and behind any text."""
COMMA = ", "
LIST_SIGN = "; "
COLON = ": "
AND = " and "
OR = " or "
MAX_ITEMS = 8
"""Texts of a list that are looked up one by one."""
MAX_DEPTH = 3
"""How often a part of a text is itself looked up."""
MAX_CHARS = 4000
"""Characters of a text that is compared with the patterns of the catalogue."""
MAX_TEMPLATE_CHARS = 600
"""Characters of a template whose parts are looked up."""


class Catalogue:
    """The texts of one language: by their English text, and by its pattern where values were filled in before."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.patterns: dict[str, list[tuple[list[str], str]]] = {}
        """Literal parts and translation, by the first word of the pattern; none whose first part is a value."""
        self.inner_patterns: dict[str, list[tuple[int, list[str], str]]] = {}
        """Those whose first part is a value, each with its place in the order, by a word that the text has to have."""
        for english, translated in texts.items():
            if _PLACEHOLDER.search(english):
                parts, translated = _numbered(english, translated)
                self.patterns.setdefault(_first_word(parts[0]), []).append((parts, translated))
        for patterns in self.patterns.values():
            patterns.sort(key=lambda pattern: -_letters(pattern[0]))
        for place, (parts, translated) in enumerate(self.patterns.pop("", ())):
            self.inner_patterns.setdefault(_needed_word(parts), []).append((place, parts, translated))

    def filled(self, english: str, depth: int = 0) -> str:
        """The translation of ``english``, a text or a template that has been filled, or itself.

        A known sentence behind a colon is taken before patterns, whose last value it would else be part of.
        A pattern of few letters fits only where each value is one word, or no list: it would fit too much.
        """
        exact = self.texts.get(english)
        if exact is not None or depth == MAX_DEPTH or len(english) > MAX_CHARS or " " not in english:
            return exact or english
        divided = self._activity(english, depth)
        divided = self._behind_colon(english, depth) if divided == english else divided
        if divided != english:
            return divided
        fitting = self._fitting(english)
        if fitting is None and english.startswith("`"):  # a command, and what became of it
            command, space, rest = english.partition("` ")
            if space and self.filled(rest, depth + 1) != rest:
                return f"{command}{space}{self.filled(rest, depth + 1)}"
        if fitting is None or not any(". " in part for part in fitting[0]):
            divided = self._in_sentences(english, depth)
        if divided != english:
            return divided
        if fitting is None or not any(AND in part for part in fitting[0]):  # else it is one sentence about two
            divided = self._continued(english, depth)
            divided = self._enumerated(english, depth) if divided == english else divided
        if divided != english:
            return divided
        if fitting is not None:
            _, values, translated = fitting
            return _filled(translated, [self.filled(value, depth + 1) for value in values])
        named = self._with_name(english, depth)
        return named if named != english else self._listed(english, depth)

    def _activity(self, english: str, depth: int) -> str:
        """What a rank does: ``rank 1 (pid 7 on a) sleeps``, ``it waits for input (main at train.py:7)``."""
        place = _PLACE.search(english)
        if place:
            head = english[: place.start()]
            translated = self.filled(head, depth)
            shape = AT_PLACE if place[1] else IN_BRACKETS
            values = {"name": place[1], "place": place[2], "text": place[3]}
            if translated != head:
                return translated + self.texts.get(shape, shape).format(**values)
        match = _ACTIVITY.fullmatch(english)
        if match is None:
            return english
        translated = self.filled(match[4], depth)
        if translated == match[4]:
            return english
        if match[1] == "it":
            return self.texts.get("it", "it ") + translated
        process = self.texts.get(OF_PROCESS, OF_PROCESS).format(pid=match[2], host=match[3]) if match[2] else " "
        return "".join(("rank ", match[1].partition(" ")[2], process, translated))

    def _behind_colon(self, english: str, depth: int) -> str:
        """``subject: sentence`` where the sentence is known, and the subject too, or one word."""
        subject, colon, sentence = english.rpartition(COLON)
        if colon and " " in sentence and sentence in self.texts:
            translated = self.filled(subject, depth + 1)
            if translated != subject or " " not in subject:  # else the subject is part of a sentence of its own
                return translated + self.texts.get(COLON, COLON) + self.texts[sentence]
        return english

    def _in_sentences(self, english: str, depth: int) -> str:
        """Several sentences, where each is known; they may continue a text, and then begin with its full stop."""
        start = ". " if english.startswith(". ") else ""
        parts = _SENTENCE_END.split(english.removeprefix(start), MAX_ITEMS)
        texts = [self.filled(part, depth + 1) for part in parts] if start or len(parts) > 1 else []
        if not texts or any(part == text for part, text in zip(parts, texts, strict=True)):
            return english
        return self.texts.get(start, start) + "".join(
            text if text.endswith("。") or number == len(texts) - 1 else f"{text} " for number, text in enumerate(texts)
        )

    def _with_name(self, english: str, depth: int) -> str:
        """``name: text`` or ``, text`` where the text is known; a number with its noun."""
        if english.startswith(COMMA):  # the continuation of a sentence
            rest = english.removeprefix(COMMA)
            translated = self.filled(rest, depth + 1)
            return english if translated == rest else self.texts.get(COMMA, COMMA) + translated
        name, colon, text = english.partition(COLON)
        if colon and _NAME.fullmatch(name):
            translated = self.filled(text, depth + 1)
            return english if translated == text else f"{name}{self.texts.get(COLON, COLON)}{translated}"
        number, _, noun = english.partition(" ")
        for singular in (noun, noun.removesuffix("s"), f"{noun.removesuffix('ies')}y") if number.isdecimal() else ():
            template = self.texts.get(f"{{count}} {singular}")
            if template:
                return template.replace("{count}", number)
        return english

    def _fitting(self, english: str) -> tuple[list[str], list[str], str] | None:
        """The pattern that fits a text, one with an "and" of its own before others: its parts, values, translation."""
        first = None
        for parts, translated in self._candidates(english):
            values = _values_between(parts, english)
            if values is not None and _is_plausible(parts, values):
                if AND not in english or any(AND in part for part in parts):
                    return parts, values, translated
                first = first or (parts, values, translated)
        return first

    def _candidates(self, english: str) -> Iterator[tuple[list[str], str]]:
        """The patterns that may fit a text, in the order in which they are tried."""
        yield from self.patterns.get(_first_word(english), ())
        inner = [pattern for word in ("", *{*_WORD.findall(english)}) for pattern in self.inner_patterns.get(word, ())]
        yield from ((parts, translated) for _, parts, translated in sorted(inner))

    def _continued(self, english: str, depth: int) -> str:
        """A text with a known continuation, such as ``, and no other host gets an answer from it``."""
        end = len(english)
        for _ in range(MAX_ITEMS):
            end = max(english.rfind(", ", 0, end), english.rfind(LIST_SIGN, 0, end))
            if end <= 0:
                break
            continuation = self.texts.get(english[end:])
            start = self.filled(english[:end], depth + 1) if continuation else english[:end]
            if continuation and start != english[:end]:
                return start + continuation
        return english

    def _enumerated(self, english: str, depth: int) -> str:
        """``a, b and c`` where each is known, or a name; itself where it is something else.

        Without the "and", each item has to be known.
        """
        conjunction_text = AND if AND in english else OR
        before, conjunction, last = english.rpartition(conjunction_text)
        if not conjunction and LIST_SIGN not in english:
            items = _outer_items(english)
            texts = [self.filled(item, depth + 1) for item in items] if 1 < len(items) <= MAX_ITEMS else []
            known = texts and all(item != text for item, text in zip(items, texts, strict=True))
            return self.texts.get(", ", ", ").join(texts) if known else english
        items = [*_outer_items(before), last] if LIST_SIGN not in _BRACKETS.sub("", english) else []
        texts = [self.filled(item, depth + 1) for item in items] if 1 < len(items) <= MAX_ITEMS else []
        if not texts or any(
            item == text and not _NAME.fullmatch(item) for item, text in zip(items, texts, strict=True)
        ):
            return english
        return ", ".join(texts[:-1]) + self.texts.get(conjunction_text, conjunction_text) + texts[-1]

    def _listed(self, english: str, depth: int) -> str:
        """A list of few texts, where each of them is known."""
        stop = "。" if _LAST_STOP.search(english) else ""
        items = (english[:-1] if stop else english).split(LIST_SIGN, MAX_ITEMS)
        texts = [self.filled(item, depth + 1) for item in items] if 1 < len(items) <= MAX_ITEMS else []
        if not texts or any(item == text for item, text in zip(items, texts, strict=True)):
            return english
        if any(item.count("(") != item.count(")") for item in items):  # the sign stands in brackets
            return english
        return self.texts.get(LIST_SIGN, LIST_SIGN).join(texts) + stop

    def template(self, english: str) -> str:
        """The translation of a template, also of one that was joined from several: every part has to be known.

        A part is a text of the catalogue, or placeholders and signs alone. The fewest parts are taken.
        """
        exact = self.texts.get(english)
        if exact is not None or not 0 < len(english) <= MAX_TEMPLATE_CHARS:
            return exact or english
        ends = [
            0,
            *(match.start() for match in _PART_ENDS.finditer(english)),
            len(english),
        ]
        best: dict[int, list[str]] = {0: []}
        for place, end in enumerate(ends[1:], 1):
            for start in ends[:place]:
                before, piece = best.get(start), english[start:end]
                if before is None or (end in best and len(before) + 1 >= len(best[end])):
                    continue
                translated = self.texts.get(piece)
                if translated is None and start == ends[place - 1] and _WITHOUT_WORDS.fullmatch(piece):
                    translated = piece
                if translated:
                    best[end] = [*before, translated]
        return "".join(best.get(len(english), [english]))


_PART_ENDS = re.compile(r"(?<=[ }])(?=\S)|(?<=\S)(?=[ {;,:])")
_WITHOUT_WORDS = re.compile(r"(?:\{\w+\}|[\s,;:.()=/-])+")


_SENTENCE_END = re.compile(r"(?<=[a-z).%]\.) (?=[A-Z]|\S+: )")


_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_NAME = re.compile(
    r"\S+(?: [^\s\d]*\d\S*)?|(?:ranks? )?\d[\d, -]*: \w+ #\d+ \([^()]*\)|[a-z]+(?: [a-z]+)?: [A-Z]\w*", re.ASCII
)
"""What stands in an enumeration as it is: one word, or one with a number; a rank's call; a field of a tool."""
_PLACE = re.compile(r" \((?:([\w.<>]+) at ([^\s()]+:\d+)|(pid \d+))\)\Z", re.ASCII)
"""Behind what a rank does: the line of the program, or the process."""
_ACTIVITY = re.compile(
    r"(it|ranks? \d[\d, -]*)(?: \(pid (\d+) on ([^\s()]+)\))? "
    r"((?:is|has|cannot|waits?|sleeps|computes|moves)(?: .*)?)",
    re.ASCII | re.DOTALL,
)
_LAST_STOP = re.compile(r"\w\.\Z")
_BRACKETS = re.compile(r"\([^()]*\)")


def _outer_items(text: str) -> list[str]:
    """The parts between commas that stand outside of brackets.

    >>> _outer_items("rank 3 (node001, NPU 1), rank 4")
    ['rank 3 (node001, NPU 1)', 'rank 4']
    """
    items: list[str] = []
    depth = 0
    for part in text.split(", "):
        if depth > 0:
            items[-1] += f", {part}"
        else:
            items.append(part)
        depth = max(0, depth + part.count("(") - part.count(")"))
    return items


def _numbered(english: str, translated: str) -> tuple[list[str], str]:
    """``a {x} b {y}`` as ``["a ", " b ", ""]``, and its translation with ``{0}`` and ``{1}`` for the names."""
    parts = _PLACEHOLDER.split(english)
    numbers: dict[str, int] = {}
    for number, name in enumerate(parts[1::2]):
        numbers.setdefault(name, number)
    return parts[::2], _PLACEHOLDER.sub(
        lambda match: f"{{{numbers[match[1]]}}}" if match[1] in numbers else match[0], translated
    )


def _filled(template: str, values: list[str]) -> str:
    """``template`` with ``{0}``, ``{1}``... filled in; whatever else stands in braces, and in the values, stays."""
    pieces = template.split("{")
    result = pieces[0]
    for piece in pieces[1:]:
        number, brace, rest = piece.partition("}")
        is_value = brace and number.isdecimal() and int(number) < len(values)
        result += values[int(number)] + rest if is_value else "{" + piece
    return result


def _letters(parts: list[str]) -> int:
    """How many letters are the same in all that fits a pattern."""
    return sum(letter.isalpha() for part in parts for letter in part)


def _is_plausible(parts: list[str], values: list[str]) -> bool:
    letters = _letters(parts)
    forbidden = " " if letters < MIN_LETTERS else LIST_SIGN if letters < 2 * MIN_LETTERS else ""
    return not forbidden or not any(forbidden in value for value in values)


def _first_word(text: str) -> str:
    word, space, _ = text.partition(" ")
    return word if space else ""


_WORD = re.compile(r"[A-Za-z]+")


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
