"""The language of what people read: English, or a catalogue beside it. Names, keys and machine formats stay English.

The English text is the key. A catalogue is one JSON file that `tests.translations` compiles from `doctor/locale/`;
it is read when the first text is asked for. Text without an entry stays English.

>>> localized("no such text anywhere")
'no such text anywhere'
"""

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LANGUAGES = ("en", "zh")
OPTION = "--lang"
VARIABLE = "DOCTOR_LANG"
LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
"""In the order in which POSIX asks them: the first that is not empty decides."""
FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "locale")
MIN_LETTERS = 7
LIST_SIGN = "; "
COLON = ": "
AND = " and "
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
        subject, colon, sentence = english.rpartition(COLON)
        if colon and " " in sentence and sentence in self.texts:
            translated_subject = self.filled(subject, depth + 1)
            if translated_subject != subject or " " not in subject:  # else the subject is part of a sentence of its own
                return translated_subject + self.texts.get(COLON, COLON) + self.texts[sentence]
        fitting = self._fitting(english)
        divided = english
        if fitting is None or not any(AND in part for part in fitting[0]):  # else it is one sentence about two
            divided = self._continued(english, depth)
            divided = self._enumerated(english, depth) if divided == english else divided
        if divided != english:
            return divided
        if fitting is not None:
            _, values, translated = fitting
            return _filled(translated, [self.filled(value, depth + 1) for value in values])
        return self._listed(english, depth)

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
        """``a, b and c`` where each is known, or a name; itself where it is something else."""
        before, conjunction, last = english.rpartition(AND)
        items = [*_outer_items(before), last] if conjunction and LIST_SIGN not in english else []
        texts = [self.filled(item, depth + 1) for item in items] if 1 < len(items) <= MAX_ITEMS else []
        if not texts or any(
            item == text and not _NAME.fullmatch(item) for item, text in zip(items, texts, strict=True)
        ):
            return english
        return ", ".join(texts[:-1]) + self.texts.get(AND, AND) + texts[-1]

    def _listed(self, english: str, depth: int) -> str:
        """A list of few texts, where each of them is known."""
        items = english.split(LIST_SIGN, MAX_ITEMS)
        texts = [self.filled(item, depth + 1) for item in items] if 1 < len(items) <= MAX_ITEMS else []
        if not texts or any(item == text for item, text in zip(items, texts, strict=True)):
            return english
        return self.texts.get(LIST_SIGN, LIST_SIGN).join(texts)

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
                known = self.texts.get(piece)
                if known is None and start == ends[place - 1] and _WITHOUT_WORDS.fullmatch(piece):
                    known = piece
                if known:
                    best[end] = [*before, known]
        return "".join(best.get(len(english), [english]))


_PART_ENDS = re.compile(r"(?<=[ }])(?=\S)|(?<=\S)(?=[ {;,:])")
_WITHOUT_WORDS = re.compile(r"(?:\{\w+\}|[\s,;:.()=/-])+")


_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_NAME = re.compile(r"\S+(?: \S*\d\S*)?")
"""What stands in an enumeration as it is: one word, or one with a number."""


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
        known = brace and number.isdecimal() and int(number) < len(values)
        result += values[int(number)] + rest if known else "{" + piece
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


class _Selection:
    """The language of this process. English until a command has read its options and environment."""

    def __init__(self) -> None:
        self.name = "en"
        self.encoding = "utf-8"
        """Of stdout."""
        self.catalogues: dict[str, Catalogue] = {}
        self.suspended = 0

    def catalogue(self) -> Catalogue | None:
        if self.name == "en" or self.suspended:
            return None
        if self.name not in self.catalogues:
            self.catalogues[self.name] = _read(self.name)
        return self.catalogues[self.name]


_selection = _Selection()


def _read(name: str) -> Catalogue:
    import json

    try:
        with open(os.path.join(FOLDER, f"{name}.json"), encoding="utf-8") as file:
            return Catalogue(json.load(file))
    except (OSError, ValueError):  # an incomplete installation speaks English
        return Catalogue({})


def preferred(environ: Mapping[str, str]) -> str:
    """The language that the environment asks for: ``zh`` where it names Chinese, else ``en``.

    >>> preferred({"LANG": "zh_CN.GBK"}), preferred({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"})
    ('zh', 'en')
    """
    name = next((environ[variable] for variable in LOCALE_VARIABLES if environ.get(variable)), "")
    return "zh" if name.replace("-", "_").partition(".")[0].partition("_")[0].lower() == "zh" else "en"


def select(requested: str, environ: Mapping[str, str], encoding: str = "utf-8") -> None:
    """Sets the language of this process: one of `LANGUAGES`, or ``auto`` for that of the environment.

    ``encoding``: that of stdout. ``auto`` chooses no language that it cannot write.
    """
    name = preferred(environ) if requested == "auto" else requested
    if requested == "auto" and name != "en" and not _can_write(encoding):
        name = "en"
    _selection.name, _selection.encoding = name, encoding


def _can_write(encoding: str) -> bool:
    try:
        "网络".encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def take_option(argv: list[str], environ: Mapping[str, str]) -> list[str]:
    """Selects the language that ``--lang``, else DOCTOR_LANG, else the locale names; returns the other words.

    What follows ``--`` is another program's. Raises: UsageError for a language that there is none of.
    """
    remaining, after = _before_launch_line(argv)
    requested, source = environ.get(VARIABLE) or "auto", VARIABLE
    kept: list[str] = []
    remaining.reverse()
    while remaining:
        word = remaining.pop()
        if word == OPTION or word.startswith(f"{OPTION}="):
            source = OPTION
            requested = word[len(OPTION) + 1 :] if word != OPTION else remaining.pop() if remaining else ""
        else:
            kept.append(word)
    if requested not in (*LANGUAGES, "auto"):
        from doctor.engine.errors import UsageError
        from doctor.engine.sanitize import printable

        raise UsageError(f"{source} '{printable(requested, 40)}': expected {', '.join(LANGUAGES)} or auto")
    select(requested, environ, getattr(sys.stdout, "encoding", None) or "ascii")
    return kept + after


def _before_launch_line(argv: list[str]) -> tuple[list[str], list[str]]:
    place = argv.index("--") if "--" in argv else len(argv)
    return argv[:place], argv[place:]


def is_english() -> bool:
    """Whether texts are shown as they are written in the code."""
    return _selection.name == "en" or bool(_selection.suspended)


def language() -> str:
    """The name of this process's language, one of `LANGUAGES`."""
    return "en" if _selection.suspended else _selection.name


def output_encoding() -> str:
    """The encoding of stdout, as `select` was told."""
    return _selection.encoding


def localized(text: str) -> str:
    """A text or template of the program in the language of this process."""
    catalogue = _selection.catalogue()
    return text if catalogue is None else catalogue.texts.get(text, text)


def localized_template(template: str) -> str:
    """The same for the template of a finding, which may be joined from several texts of the program."""
    catalogue = _selection.catalogue()
    return template if catalogue is None else catalogue.template(template)


def localized_filled(text: str) -> str:
    """The same for a text whose values are filled in: a reason, a note, an error line."""
    catalogue = _selection.catalogue()
    return text if catalogue is None else catalogue.filled(text)


def phrase(template: str, **values: object) -> str:
    """``template`` in the language of this process, filled.

    >>> phrase("{count} of {total}", count=3, total=5)
    '3 of 5'
    """
    return localized(template).format(**values)


class english:  # noqa: N801 - reads as what it does: ``with english():``
    """A context in which texts stay English: for what programs read."""

    def __enter__(self) -> None:
        _selection.suspended += 1

    def __exit__(self, *_: object) -> None:
        _selection.suspended -= 1
