from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.engine.output_encoding import display_width
from doctor.report.layout.formatting import clean, count_noun, duration, format_time, unwrap_lines, wrapped
from tests.report.strategies import texts


@pytest.mark.parametrize(
    ("output", "expected_text"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\r\nok  fine", "a ok fine"),
        ("\u202eexe.gnp", "exe.gnp"),
        ("zero\u200bwidth\ufeff", "zero width"),
        ("\ud800x", "x"),
        ("主机", "主机"),
        ("x" * 500, "x" * 399 + "…"),
    ],
)
def test_foreign_text_is_made_safe(output: str, expected_text: str) -> None:
    assert clean(output) == expected_text


@settings(deadline=None)
@given(texts)
def test_any_text_is_one_printable_line(output: str) -> None:
    assert clean(output, 50).isprintable()
    assert len(clean(output, 50)) <= 50


def test_numbers_have_nouns_and_units() -> None:
    assert (count_noun(1, "check"), count_noun(0, "check")) == ("1 check", "0 checks")
    assert [duration(seconds) for seconds in (0, 4.12, 99.96, 192, float("nan"))] == [
        "0.0 s",
        "4.1 s",
        "1 min 39 s",
        "3 min 12 s",
        "? s",
    ]
    assert (
        format_time("2026-11-20T10:15:02.123Z") == format_time("2026-11-20T10:15:02+00:00") == "2026-11-20 10:15:02 UTC"
    )
    assert format_time("yesterday") == "yesterday"


def test_soft_line_breaks_are_undone_and_others_kept() -> None:
    page = "One\nsentence.\n\nAnother\n- item that\n  goes on\n- second\n{hint}\nAfter.\n\n    indented\n    code\n"
    assert unwrap_lines(page + "```\nx\n y\n```\nEnd") == [
        "One sentence.",
        "Another",
        "- item that goes on",
        "- second",
        "{hint}",
        "After.",
        "    indented",
        "    code",
        "  x",
        "   y",
        "End",
    ]


def test_wrapping_keeps_commands_whole_and_items_hung() -> None:
    assert wrapped("- do `a b c d` now", 8) == ["- do", "  `a b c d`", "  now"]
    assert wrapped("", 8) == [""]
    assert wrapped("Do. (more: doctor explain link-down)", 33) == ["Do.", "(more: doctor explain link-down)"]
    assert wrapped("执行此操作。（其余见 doctor explain fec-off）", 40)[-1] == "doctor explain fec-off）"


@settings(deadline=None)
@given(st.text(), st.integers(5, 60))
def test_wrapping_loses_no_word(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())  # between ideographs a line ends without a space
    if text.isascii():
        assert " ".join(lines).split() == text.split()
        assert all(display_width(line) <= width for line in lines if len(line.split()) > 1 and "`" not in line)


def test_width_in_a_terminal() -> None:
    assert display_width("主机a") == 5
    assert display_width("e\u0301") == 1
