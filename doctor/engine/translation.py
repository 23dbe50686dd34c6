"""Finds the translation of a text in a catalogue: as it stands, by its pattern, or part by part. Pure.

A catalogue has whole texts, and templates with ``{name}`` where values were filled in before the text got here.
"""

from __future__ import annotations

import re

from doctor.engine.text_patterns import AND, LIST_SIGN, PatternIndex, TextPattern
from doctor.engine.texts import fill, origin, template_pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

AT_PLACE, OF_PROCESS, IN_BRACKETS = " ({name} at {place})", " (pid {pid} on {host})", " ({text})"
"""Behind what a rank does, behind its number, and behind any text."""
COMMA = ", "
COLON = ": "
OR = " or "
MAX_ITEMS = 8
"""Texts of a list that are looked up one by one."""
MAX_DEPTH = 4
"""How often a part of a text is itself looked up."""
MAX_CHARS = 4000
"""Characters of a text that is compared with the patterns of the catalogue."""
MAX_TEMPLATE_CHARS = 600
"""Characters of a template whose parts are looked up."""


class Catalogue:
    """The texts of one language: by their English text, and by its pattern where values were filled in before."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.patterns = PatternIndex(texts)

    def filled(self, english: str, depth: int = 0) -> str:
        """The translation of ``english``, a text or a template that has been filled, or itself.

        A known sentence behind a colon is taken before patterns, whose last value it would else be part of.
        A pattern of few letters fits only where each value is one word, no list, or a text of ours.
        """
        exact = self.texts.get(english)
        if exact is not None or depth == MAX_DEPTH or len(english) > MAX_CHARS or " " not in english:
            return exact or english
        translated = self.of_origin(english, depth)
        if translated is not None:
            return translated
        divided = self._activity(english, depth)
        divided = self._behind_colon(english, depth) if divided == english else divided
        if divided != english:
            return divided
        fitting = self._fitting(english, depth)
        if fitting is None and english.startswith("`"):  # a command, and what became of it
            command, space, rest = english.partition("` ")
            if space and self.filled(rest, depth + 1) != rest:
                return f"{command}{space}{self.filled(rest, depth + 1)}"
        if fitting is None or not any(". " in part for part in fitting[0].parts):
            divided = self._in_sentences(english, depth)
        if divided != english:
            return divided
        if fitting is None or not fitting[0].has_and:  # else it is one sentence about two
            divided = self._continued(english, depth)
            divided = self._enumerated(english, depth) if divided == english else divided
        if divided != english:
            return divided
        if fitting is not None:
            return _filled(fitting[0].translated, self._filled_all(fitting[1], depth))
        named = self._with_name(english, depth)
        return named if named != english else self._listed(english, depth)

    def of_origin(self, english: str, depth: int) -> str | None:
        """The translation of a text that `doctor.engine.texts` has filled; None of any other.

        Where the template has none, as ``{0}: {1}``, its words and signs are looked up piece by piece, beside values
        that have one. A comma stays where words are between the values: it is that of a list of names.
        """
        origin_of_text = origin(english)
        if origin_of_text is None:
            return None
        template, values = origin_of_text
        if callable(values):
            return values(self.filled(template, depth + 1))
        texts = {name: self.filled(value, depth + 1) for name, value in values.items()}
        shape = self.texts.get(template)
        if shape is not None:
            return fill(shape, texts)
        pieces = template_pieces(template)
        letters = {piece for is_text, piece in pieces if is_text and re.search("[A-Za-z]", piece)}
        if texts == values and not letters & self.texts.keys():
            return english
        as_they_stand = {COMMA} if letters else set[str]()
        return "".join(
            texts.get(piece, piece)
            if not is_text
            else piece
            if piece in as_they_stand
            else self.texts.get(piece, piece)
            for is_text, piece in pieces
        )

    def _activity(self, english: str, depth: int) -> str:
        """What a rank does: ``rank 1 (pid 7 on a) sleeps``, ``it waits for input (main at train.py:7)``."""
        place = _PLACE.search(english)
        if place:
            head = english[: place.start()]
            translated = self.filled(head, depth)
            shape = AT_PLACE if place[1] else IN_BRACKETS
            values = {"name": place[1], "place": place[2], "text": place[3]}
            if translated != head or (place[1] and " " not in head):  # a call, as `broadcast`
                return translated + self.texts.get(shape, shape).format(**values)
        match = _ACTIVITY.fullmatch(english)
        if match is None and english.startswith(_STATES):  # behind "is" of a template
            translated = self.filled(f"is {english}", depth + 1)
            return english if translated == f"is {english}" else translated
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
            if translated != subject or " " not in subject:
                return translated + self.texts.get(COLON, COLON) + self.texts[sentence]
            translated = self.filled(subject + COLON, depth + 1)
            if translated != subject + COLON:  # else the subject is part of a sentence of its own
                return translated + self.texts[sentence]
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

    def _fitting(self, english: str, depth: int) -> tuple[TextPattern, list[str]] | None:
        """The pattern that fits a text, one with an "and" of its own before others, and its values."""
        first = None
        for pattern in self.patterns.candidates(english):
            values = pattern.values(english)
            if values is None or (first and not pattern.has_and) or not self._may_be_meant(pattern, values, depth):
                continue
            if AND not in english or pattern.has_and:
                return pattern, values
            first = first or (pattern, values)
        return first

    def _may_be_meant(self, pattern: TextPattern, values: list[str], depth: int) -> bool:
        """Whether the text that a pattern fits was made of it, and is no sentence of another program."""
        if not pattern.fits_too_much(values):
            return not pattern.leaves_prose(values) or not pattern.leaves_prose(self._filled_all(values, depth))
        one_text = values[0] if len(values) == 1 and LIST_SIGN not in values[0] else ""
        if one_text and pattern.is_list_of_names(one_text):
            return True
        translated = self.filled(one_text, depth + 1)
        return translated != one_text and not pattern.leaves_prose([translated])

    def _filled_all(self, values: list[str], depth: int) -> list[str]:
        return [self.filled(value, depth + 1) for value in values]

    def _continued(self, english: str, depth: int) -> str:
        """A text with a known continuation, such as ``, and no other host gets an answer from it``."""
        end = len(english)
        for _ in range(MAX_ITEMS):
            end = max(english.rfind(", ", 0, end), english.rfind(LIST_SIGN, 0, end))
            if end <= 0:
                break
            continuation = self.texts.get(english[end:])
            start = self.filled(english[:end], depth + 1) if continuation else english[:end]
            if continuation and (start != english[:end] or _COMMAND.fullmatch(start)):
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
            all_translated = texts and all(item != text for item, text in zip(items, texts, strict=True))
            return self.texts.get(", ", ", ").join(texts) if all_translated else english
        items = [*_outer_items(before), last] if LIST_SIGN not in _BRACKETS.sub("", english) else []
        texts = [self.filled(item, depth + 1) for item in items] if 1 < len(items) <= MAX_ITEMS else []
        if not texts or any(
            item == text and not (_NAME.fullmatch(item) or _COMMAND.fullmatch(item))
            for item, text in zip(items, texts, strict=True)
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


_NAME = re.compile(
    r"\S+(?: [^\s\d]*\d\S*)?|(?:ranks? )?\d[\d, -]*: \w+ #\d+ \([^()]*\)|[a-z]+(?: [a-z]+)?: [A-Z]\w*", re.ASCII
)
"""What stands in an enumeration as it is: one word, or one with a number; a rank's call; a field of a tool."""
_PLACE = re.compile(r" \((?:([\w.<>]+) at ([^\s()]+:\d+)|(pid \d+|E[A-Z]{3,}))\)\Z", re.ASCII)
"""Behind what a rank does: the line of the program, or the process; behind an error its name."""
_STATES = ("stopped: ", "frozen ")
_ACTIVITY = re.compile(
    r"(it|ranks? \d[\d, -]*)(?: \(pid (\d+) on ([^\s()]+)\))? "
    r"((?:is|has|cannot|waits?|sleeps|computes|moves)(?: .*)?)",
    re.ASCII | re.DOTALL,
)
_COMMAND = re.compile(r"`[^`]*`")
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


def _filled(template: str, values: list[str]) -> str:
    """``template`` with ``{0}``, ``{1}``... filled in; whatever else stands in braces, and in the values, stays."""
    pieces = template.split("{")
    result = pieces[0]
    for piece in pieces[1:]:
        number, brace, rest = piece.partition("}")
        is_value = brace and number.isdecimal() and int(number) < len(values)
        result += values[int(number)] + rest if is_value else "{" + piece
    return result
