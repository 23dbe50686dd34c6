"""What hosts and tools print is untrusted: it is shown on one line, bounded, and with nothing that a terminal obeys."""

from __future__ import annotations

import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.quantities import bytes_text, seconds_text
from doctor.engine.sanitize import comparable_excerpt, printable, strip_control_chars
from doctor.engine.secrets import hide_secrets
from doctor.transport import transport_error
from tests.attack.secrets import corpus


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
    assert (seconds_text(10.0), seconds_text(0.5), bytes_text(8 << 20), bytes_text(1536), bytes_text(7)) == (
        "10 s",
        "0.5 s",
        "8 MiB",
        "1.5 KiB",
        "7 B",
    )


def test_a_secret_in_which_a_text_is_cut_is_hidden_first() -> None:
    """Every eighth secret of the corpus, cut right behind the secret and within it: by what shows, and on the host."""
    for held in [*corpus(random.Random(5))][::8]:
        if held.hidden not in held.text or held.text.count(" PASS ") or "\n" in held.text:
            continue
        end = held.text.index(held.hidden) + len(held.hidden)
        text = held.text + " and then" * 200
        for limit in (end + 1, end - 4):
            seen = held.hidden[: limit - end - 2] if limit < end else held.hidden
            for cut in (strip_control_chars, printable, comparable_excerpt):
                assert len(seen) <= 8 or seen not in cut(text, limit), (cut, held)


@pytest.mark.parametrize("end", ["echo Xa7hunter2hunter", "printf '%s' Xa7hunter2hunter", "<X_TOKEN>Xa7hunter2hunter",
                                 "password='Xa7hunter2hunter", 'token: "Xa7hunter2hunter',
                                 "at https://me:Xa7hunter2hunter", "glpat-Xa7hunter2hunter"])  # fmt: skip
def test_a_shape_whose_end_was_cut_on_the_host_is_hidden(end: str) -> None:
    assert "hunter" not in hide_secrets(f"failed: {end}")


@pytest.mark.parametrize("end", ["shpat_0a7cdea312c3e9ed2e9b3b", "ms-0a7cdea3-15c9-9b46-ce8a-c3373c88",
                                 "AQVN0a7cdea3pZqX4cgBPn67jm", "key-0a7cdea312c3e9ed2e9b",
                                 "abc8Q~0a7cdea3TdOAfx2jUM38"])  # fmt: skip
def test_the_beginning_of_a_token_at_the_end_is_hidden(end: str) -> None:
    assert "0a7cdea3" not in hide_secrets(f"the key: x, {end}")


@pytest.mark.parametrize("end", ["echo done", "tcp://node1:29500", "key-point 12",
                                 "release t1.23", "ms-marco-2019", "usage: --token <token>", "it's 3 o'clock",
                                 'said "stop', "<b>text of 12345678 words"])  # fmt: skip
def test_the_end_of_an_innocent_text_stays(end: str) -> None:
    assert hide_secrets(f"the key: {end}").endswith(end)
