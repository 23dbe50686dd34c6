"""What hosts and tools print is untrusted: it is shown on one line, bounded, and with nothing that a terminal obeys."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.sanitize import strip_control_chars
from doctor.transport import format_seconds, format_size, transport_error


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("a\nb\tc", "a b c"),
        ("\x1b[2J\x1b[31mred", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("user\u202egnp.exe", "user gnp.exe"),
        (b"caf\xc3\xa9 \xff", "café �"),
        ("", ""),
    ],
)
def test_control_characters_are_gone(arguments: str | bytes, output: str) -> None:
    assert strip_control_chars(arguments) == output


@given(st.text() | st.binary())
def test_nothing_that_a_terminal_obeys_is_left(arguments: str | bytes) -> None:
    output = strip_control_chars(arguments)
    assert len(output) <= 200
    assert all(letter == " " or unicodedata.category(letter)[0] not in "CZ" for letter in output)


def test_a_long_text_is_cut_and_says_so() -> None:
    assert strip_control_chars("x" * 10_000_000, 10) == "x" * 9 + "…"


def test_an_error_is_safe_whatever_was_put_into_it() -> None:
    error = transport_error("error", "said \x1b[31m" + "x" * 5000, "\x07hint")
    assert "\x1b" not in error.text
    assert len(error.text) <= 400
    assert error.hint == "hint"


def test_spans_and_sizes_are_short() -> None:
    assert (format_seconds(10.0), format_seconds(0.5), format_size(8 << 20), format_size(1536), format_size(7)) == (
        "10 s",
        "0.5 s",
        "8 MiB",
        "1.5 KiB",
        "7 bytes",
    )
