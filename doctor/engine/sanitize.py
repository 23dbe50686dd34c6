"""Makes untrusted text from hosts, tools or files safe to show."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence

from doctor.engine.texts import BEHIND_A_CUT, beginning, filled, origin

_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")


def strip_control_chars(text: str | bytes, limit: int = 200) -> str:
    r"""``text`` on one line, without control characters and escape sequences, at most ``limit`` characters.

    >>> strip_control_chars(b"\x1b[31mred\x1b[0m\r\n  alert\x07")
    'red alert'
    """
    if isinstance(text, bytes):
        text = text[: limit * 8 + BEHIND_A_CUT].decode("utf-8", "replace")
    if len(text) <= limit and text.isprintable() and "  " not in text:
        return text.strip()
    text = _ESCAPES.sub(" ", text[: limit * 8 + BEHIND_A_CUT])
    # Word by word: nearly every word is printable, and a host may send many megabytes of them.
    cleaned = " ".join(word if word.isprintable() else _spaced(word) for word in text.split()).strip()
    if len(cleaned) > limit:
        cleaned = beginning(cleaned, limit - 1) + "…"
    return cleaned if cleaned.isprintable() and "  " not in cleaned else " ".join(cleaned.split())


def file_name(path: object) -> str:
    """The path as printable text, cut to 200 characters."""
    return printable_excerpt(str(path), 200)


_NATIVE_FRAME = re.compile(
    r"\s{0,20}(?:frame #\d{1,4}: |@ {1,20}0x[0-9a-f]{6,16} |Exception raised from .{1,300}\(most recent call first\):$)"
)
"""As c10::Error and glog write them."""


def last_line(text: str, limit: int = 200) -> str:
    r"""The last line that holds anything, cleaned: where a tool says why it failed. Frames of C++ follow that.

    >>> last_line("usage\n  Error: b \x1b[0m\n\n")
    'Error: b'
    >>> last_line("Watchdog caught a timeout\nframe #0: f + 0x9d (0x7f34)")
    'Watchdog caught a timeout'
    """
    lines = [line for line in reversed(text.splitlines()) if line.strip()]
    told = [line for line in lines if not _NATIVE_FRAME.match(line)]
    return next(filter(None, (strip_control_chars(line, limit) for line in told or lines)), "")


def _spaced(word: str) -> str:
    """``word`` with a space for each character that is not printable (categories C and Z of Unicode)."""
    return "".join(letter if letter.isprintable() else " " for letter in word)


def printable(text: str, limit: int = 200) -> str:
    """What a user typed or wrote, with what cannot be printed spelled out, at most ``limit`` characters of it."""
    is_cut = len(text) > limit
    text = beginning(text, limit) if is_cut else text
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return escaped + "…" if is_cut else escaped


def comparable_excerpt(text: str, limit: int) -> str:
    """The beginning of a long text, and a checksum that any change of the rest changes, too.

    >>> comparable_excerpt("v" * 4001, 4)
    'vvvv... (4001 characters, CRC-32 4aa4626d)'
    """
    if len(text) <= limit:
        return text
    checksum = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    return filled("{0}... ({1} characters, CRC-32 {2})", beginning(text, limit), len(text), f"{checksum:08x}")


def quote(text: str) -> str:
    """An excerpt of the text, printable and in double quotes."""
    return f'"{printable_excerpt(text)}"'


MAX_QUOTED_CHARS = 100
"""A longer text is what a program printed, and no single value."""


def with_visible_ends(text: str) -> str:
    r"""``text``, in double quotes where a reader would miss what it holds: a blank at an end, a control character.

    What this process has filled is a part of a sentence, and stays; so do several lines, and more than
    `MAX_QUOTED_CHARS` characters.

    >>> with_visible_ends("eth0"), with_visible_ends("eth0 "), with_visible_ends("29500\r")
    ('eth0', '"eth0 "', '"29500\\r"')
    """
    body = text.strip()
    if (len(body) == len(text) and text.isprintable()) or not body or "\n" in body or len(text) > MAX_QUOTED_CHARS:
        return text
    return text if origin(text) else quote(text)


def printable_excerpt(text: str, limit: int = 60) -> str:
    """Foreign text for a message: printable and bounded."""
    return printable(text, limit)


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """``1 check``, ``2 checks``; ``plural`` is that of a noun that takes more than an s."""
    counted = noun if number == 1 else plural or noun + "s"
    return filled(f"{{count}} {counted}", count=number)


def number_ranges(numbers: Iterable[int], between: str = ",") -> str:
    """Numbers in few characters: in order, and neighbours as ranges.

    >>> number_ranges([7, 0, 1, 2, 3])
    '0-3,7'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return between.join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def first_names(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence, with dots for those beyond ``most``.

    >>> first_names(["a", "b", "c"], 2)
    'a, b, ...'
    """
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


def rank_names(ranks: Iterable[int]) -> str:
    """Ranks in words, with neighbours as ranges.

    >>> rank_names([3]), rank_names([0, 1, 2, 5])
    ('rank 3', 'ranks 0-2, 5')
    """
    distinct = set(ranks)
    return f"rank{'s' * (len(distinct) > 1)} {number_ranges(distinct, ', ')}"


_FORMS = (
    (b"\x1f\x8b", "it is compressed by gzip; expected it unpacked"),
    (b"\xfd7zXZ", "it is compressed by xz; expected it unpacked"),
    (b"BZh", "it is compressed by bzip2; expected it unpacked"),
    (b"\x28\xb5\x2f\xfd", "it is compressed by zstd; expected it unpacked"),
    (b"PK\x03\x04", "it is a zip file; expected it unpacked"),
    (b"\xff\xfe", "it is UTF-16; expected UTF-8"),
    (b"\xfe\xff", "it is UTF-16; expected UTF-8"),
)
"""How files begin that hold a document in another form."""
JSON_PROBLEMS = (
    *("expected '\"'", "expected ',' or ']'", "expected ',' or '}'", "expected ':'", "invalid character"),
    *("invalid escape character in string", "invalid number", "trailing characters", "trailing comma in array"),
    "trailing comma in object",
)
"""msgspec's words, which are translated."""
UTF8_MARK = b"\xef\xbb\xbf"
"""What some editors put in front of UTF-8; it is no part of a document."""


def parse_problem(error: BaseException, limit: int = 300, data: bytes = b"") -> str:
    """Why a document cannot be parsed, in at most ``limit`` characters of printable text."""
    for start, problem in _FORMS:
        if data.startswith(start):
            return problem
    if isinstance(error, RecursionError):
        return "nested too deep"
    text = strip_control_chars(str(error) or type(error).__name__, limit)
    if text == "Input data was truncated":  # msgspec's words
        return "it ends too early"
    malformed, colon, place = text.partition("JSON is malformed: ")
    if malformed or not colon:
        return text
    reason, _, byte = place.removesuffix(")").rpartition(" (byte ")
    return (
        filled("JSON is malformed: {0} (byte {1})", reason, byte)
        if byte.isdecimal() and reason in JSON_PROBLEMS
        else text
    )
