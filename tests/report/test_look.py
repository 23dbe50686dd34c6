from __future__ import annotations

import io

import pytest

from doctor.report.layout.terminal import Terminal, detect_terminal


class Stream(io.TextIOWrapper):
    def __init__(self, tty: bool = True, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty


@pytest.mark.parametrize(
    ("flag", "environ", "tty", "colour"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": ""}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"TERM": "dumb", "FORCE_COLOR": "1"}, True, True),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour(flag: str, environ: dict[str, str], tty: bool, colour: bool) -> None:
    assert detect_terminal(Stream(tty), flag, environ).colour is colour


@pytest.mark.parametrize(
    ("encoding", "unicode"), [("utf-8", True), ("UTF8", True), ("ascii", False), ("gbk", False), ("latin-1", False)]
)
def test_signs_beyond_ascii_need_utf8(encoding: str, unicode: bool) -> None:
    assert detect_terminal(Stream(encoding=encoding), "auto", {}).unicode is unicode


@pytest.mark.parametrize(
    ("columns", "width"), [("100", 100), ("9", 40), ("400", 120), ("", 80), ("wide", 80), ("999999", 80)]
)
def test_width_comes_from_columns_and_stays_readable(columns: str, width: int) -> None:
    assert detect_terminal(Stream(), "auto", {"COLUMNS": columns}).width == width


def test_a_stream_that_is_closed_or_none_is_no_terminal() -> None:
    closed = io.StringIO()
    closed.close()
    assert detect_terminal(closed, "auto", {}) == Terminal(unicode=False, width=0)
    assert detect_terminal(None, "auto", {}).tty is False  # type: ignore[arg-type]
