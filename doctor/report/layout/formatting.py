"""Formats text for display: host output is cleaned, numbers get their nouns and units."""

from __future__ import annotations

import re
from collections import namedtuple

from doctor.engine import sanitize
from doctor.engine.language import is_english, localized, localized_filled, phrase
from doctor.engine.output_encoding import display_width
from doctor.engine.quantities import number_text
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled

MAX_VALUE_CHARS = 400
"""Characters kept of one foreign value."""


class StatusStyle(namedtuple("StatusStyle", ("word", "sign", "ascii", "colour", "code"))):
    """A status's sign and colour; its word is always shown."""

    word: str
    sign: str
    ascii: str
    colour: str
    """Its name in rich."""
    code: str
    """The same as an SGR parameter."""


STYLES = {
    style.word: style
    for style in (
        StatusStyle("ok", "✓", "+", "green", "32"),
        StatusStyle("FAIL", "✗", "x", "bold red", "1;31"),
        StatusStyle("warn", "!", "!", "yellow", "33"),
        StatusStyle("crash", "✗", "x", "bold magenta", "1;35"),
        StatusStyle("unknown", "?", "?", "magenta", "35"),
        StatusStyle("skip", "-", "-", "dim", "2"),
        StatusStyle("waived", "~", "~", "cyan", "36"),
    )
}


def bracketed(text: str) -> str:
    """`` (text)``, with the brackets of the language; empty where there is no text.

    >>> bracketed("3 of 4"), bracketed("")
    (' (3 of 4)', '')
    """
    return phrase(" ({text})", text=text) if text else ""


def clean(text: str, limit: int = MAX_VALUE_CHARS) -> str:
    """Foreign text made safe: no escapes, control, bidi or invisible characters, one line, at most ``limit`` long."""
    if len(text) <= limit and text.isprintable():
        return text.strip()

    return strip_control_chars(text, limit)


def translated(text: str, limit: int = MAX_VALUE_CHARS) -> str:
    """A sentence in the language of this process, safe to print."""
    return clean(localized_filled(text), limit)


def clean_value(text: str, limit: int = MAX_VALUE_CHARS) -> str:
    """The same for a value that fills a sentence: a blank before its first word stays.

    >>> clean_value(" of rank 3 ")
    ' of rank 3'
    """
    return " " * text.startswith(" ") + clean(text, limit)


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """``1 check``, ``2 checks``, in the language of this process; ``plural`` is for more than an s."""
    if is_english():
        return sanitize.count_noun(number, noun, plural)
    return localized(f"{{count}} {noun}").format(count=number)


def duration(seconds: float) -> str:
    """``4.1 s``, ``3 min 12 s``."""
    if not 0 <= seconds < 1e9:
        return "? s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    return filled("{0} min {1} s", int(seconds) // 60, int(seconds) % 60)


def format_time(started: str) -> str:
    """An ISO 8601 time in UTC as a reader wants it: ``2026-11-20 10:15:02 UTC``."""
    match = re.match(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:?00)\Z", started)
    return f"{match[1]} {match[2]} UTC" if match else clean(started, 40)


_ITEM = re.compile(r"[-*] |\d+[.)] ")
_PLACEHOLDER_LINE = re.compile(r"\{[a-z_]+\}\Z")


def unwrap_lines(text: str) -> list[str]:
    """The lines of a page's section without its soft line breaks.

    A line stands alone when it is indented, within a fence, or a placeholder and nothing else; a list item and an
    empty line begin a new one, and an indented line goes on with its item. All other line breaks are the source
    file's, not the text's.
    """
    lines: list[str] = []
    joins = fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            joins, fenced = False, not fenced
        elif fenced:
            lines.append("  " + line.rstrip())
        elif not line.strip():
            joins = False
        elif joins and not _ITEM.match(line) and not _PLACEHOLDER_LINE.match(line) and _continues(lines[-1], line):
            lines[-1] += " " + line.strip()
        else:
            lines.append(line.rstrip())
            joins = not line.startswith("  ") and not _PLACEHOLDER_LINE.match(line)
    return lines


def _continues(before: str, line: str) -> bool:
    """An indented line belongs to a list item, not to a paragraph."""
    return not line.startswith("  ") or _ITEM.match(before) is not None


_ABBREVIATION = re.compile(r"(?:\be\.g|\bi\.e|\bvs|\betc|\b[A-Z])\.$")


_QUOTED = r"""`[^`]*`|"[^"`]*"(?![^\s.,;:)）。，；：])"""
_SENTENCE_END = re.compile(_QUOTED + r"|[。！？]）?|[.!?]\)?(?=\s+(?:[A-Z0-9`\"/(]|$))")


def sentences(text: str) -> list[str]:
    """The sentences of one paragraph; what stands between backquotes or quotation marks is never divided.

    >>> sentences('Run `a. b`. Then wait 2.5 s (e.g. here): "Timed out. 1/4 joined". Done')
    ['Run `a. b`.', 'Then wait 2.5 s (e.g. here): "Timed out. 1/4 joined".', 'Done']
    """
    parts: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if match[0][0] not in '`"' and not _ABBREVIATION.search(text[start : match.start() + 1]):
            parts.append(text[start : match.end()].strip())
            start = match.end()
    return [*parts, *([text[start:].strip()] if text[start:].strip() else [])]


_WIDE = r"\u2e80-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
_CLOSING = "，。、；：！？）》」』】〉％…—"
"""No line begins with these."""
_OPENING = "（《「『【〈"
"""No line ends with these."""
_UNBROKEN = r"""(?:\(more:\ )?doctor\ explain\ [\w-]{1,100}|`[^`]*`|"\s{0,20}[^"\s]{0,200}\s{0,20}\""""
"""A command, also `doctor explain NAME` without backquotes, or a quoted word with its blanks."""
_ASCII_UNITS = re.compile(rf"(?:{_UNBROKEN}|\S)+")
_UNITS = re.compile(
    rf"(\s?)((?:[{_OPENING}]*(?:(?:{_UNBROKEN}|[^\s{_WIDE}])+|[{_WIDE}])(?:[{_CLOSING}]+|(?=[{_OPENING}]\Z))?)|\S)"
)
"""What stays together on a line: an ideograph, a word or a command, with the punctuation that belongs to it."""


def _units(text: str) -> list[tuple[str, str]]:
    """The parts of ``text`` between which a line may end, each with the space before it, where there is one."""
    if text.isascii():
        return [(" ", word) for word in _ASCII_UNITS.findall(text)]
    return [(" " if space else "", unit) for space, unit in _UNITS.findall(text)]


UNWRAPPED = -10_000
"""In place of a width: a text is marked, for `laid_out` to wrap it when the width is known."""
MARK = "\x1f"


def laid_out(page: str, width: int) -> str:
    """A page that was made with `UNWRAPPED`, in ``width`` columns."""
    lines: list[str] = []
    for line in page.split("\n"):
        indent, mark, text = line.partition(MARK)
        lines += [indent + part for part in wrapped(text, width - len(indent))] if mark else [line]
    return "\n".join(lines)


def wrapped(text: str, width: int, first_width: int = 0) -> list[str]:
    """Lines of at most ``width`` cells, the first one of ``first_width`` where that is given.

    What stands between backquotes, ``doctor explain NAME``, and a long word, is never broken: a terminal folds such a
    line itself, so that a command can still be copied whole. Between ideographs a line may end, but not before a full
    stop or a comma.
    """
    if width < 0:
        return [MARK + text]
    indent = " " * (len(text) - len(text.lstrip()))
    item = _ITEM.match(text)
    hang = indent + " " * (item.end() if item else 0)
    lines: list[str] = []
    line = ""
    for space, unit in _units(text):
        longer = f"{line}{space}{unit}" if line else indent + unit
        if line and display_width(longer) > (first_width or width if not lines else width):
            lines.append(line)
            longer = hang + unit
        line = longer
    return [*lines, line] if line or not lines else lines


BYTE_RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))


def byte_rate(*rates: float) -> str:
    """Bytes a second, all in the unit of the largest: ``1.2 / 2.4 GB/s``."""
    unit, name = next(((unit, name) for unit, name in BYTE_RATES if max(rates) >= unit), BYTE_RATES[-1])
    return f"{' / '.join(number_text(rate / unit) for rate in rates)} {name}"


_RUN = re.compile(r"(.)\1*", re.DOTALL)


def run_lengths(letters: str) -> str:
    """Each run of a letter as its length, which is left out where it is 1, and the letter.

    >>> run_lengths("pppEpp")
    '3pE2p'
    """
    return _RUN.sub(lambda run: f"{len(run[0])}{run[1]}" if len(run[0]) > 1 else run[1], letters)


def short_number(value: float, digits: int = 3) -> float | int:
    """``value`` with so many significant digits, whole where it can be.

    >>> short_number(12345.6), short_number(0.0012345), short_number(2.0)
    (12300, 0.00123, 2)
    """
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded
