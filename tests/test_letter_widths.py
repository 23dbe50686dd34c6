"""How wide letters of ambiguous width are counted, beside the C library: what a terminal has room for, and columns."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.engine import language
from doctor.engine.output_encoding import PLAIN_SIGNS, display_width, encoded
from doctor.net.heat_map import heat_map
from doctor.net.matrix import Matrix, TestedPort
from doctor.report.layout.finding_table import cut
from doctor.report.layout.formatting import wrapped
from doctor.report.layout.terminal import Terminal, columns_line
from tests.report import golden, recorded_fleets, rendering, reports

AMBIGUOUS = "×→●─αЖⅠ①é°“”…—·█"
LETTERS = f"{AMBIGUOUS}Az 0~网络，。（）《》％"
ROOT = Path(__file__).parents[1]


@pytest.fixture
def output(request: pytest.FixtureRequest) -> Iterator[None]:
    """The language and the encoding of the process."""
    name, encoding = request.param
    language.select(name, {}, encoding)
    yield
    language.select("en", {})


@pytest.mark.parametrize("output", [("zh", "gbk"), ("en", "gbk"), ("zh", "utf-8")], indirect=True)
def test_a_letter_of_ambiguous_width_has_two_cells(output: None) -> None:
    assert [display_width(letter) for letter in AMBIGUOUS] == [2] * len(AMBIGUOUS)


def test_elsewhere_it_has_one() -> None:
    assert [display_width(letter) for letter in AMBIGUOUS] == [1] * len(AMBIGUOUS)


def wcwidths(name: str, folder: Path) -> list[int]:
    """The widths of `LETTERS` that the C library has for a locale, which is made for this."""
    if not shutil.which("localedef") or not Path("/usr/share/i18n/charmaps").is_dir():
        pytest.skip("the package locales is not installed")
    charmap = name.partition(".")[2]
    subprocess.run(["localedef", "-c", "-f", charmap, "-i", "zh_CN", str(folder / name)], capture_output=True)
    program = (
        "import ctypes, locale, sys\n"
        f"locale.setlocale(locale.LC_ALL, {name!r})\n"
        f"print(*[ctypes.CDLL(None).wcwidth(ctypes.c_wchar(letter)) for letter in {LETTERS!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", program],
        env={**os.environ, "LOCPATH": str(folder)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize(
    ("name", "output"), [("zh_CN.GBK", ("zh", "gbk")), ("zh_CN.UTF-8", ("en", "utf-8"))], indirect=["output"]
)
def test_the_c_library_counts_the_same(name: str, output: None, tmp_path: Path) -> None:
    assert [display_width(letter) for letter in LETTERS] == wcwidths(name, tmp_path)


@pytest.mark.parametrize("output", [("zh", "gbk"), ("zh", "big5"), ("en", "ascii"), ("en", "iso8859-1")], indirect=True)
def test_what_an_encoding_lacks_has_the_width_of_what_stands_for_it(output: None) -> None:
    encoding = language.output_encoding()
    for letter in (*PLAIN_SIGNS, *AMBIGUOUS, "网", "😀", "ﷺ"):
        assert display_width(letter) == len(encoded(letter, encoding)), letter


@pytest.mark.parametrize("output", [("zh", "gbk"), ("zh", "utf-8"), ("en", "ascii")], indirect=True)
def test_no_line_is_wider_than_its_terminal(output: None) -> None:
    text = "loss 的变化为 3 × 10 → “α”，约 ±0.1 ℃…" * 9
    encoding = language.output_encoding()
    for line in (*wrapped(text, 40), cut(text, 40)):
        assert (max(len(encoded(letter, encoding)) for letter in line) and display_width(line) <= 40) or " " not in line
        assert encoding == "utf-8" or display_width(line) == len(encoded(line, encoding))


@pytest.mark.sample
@pytest.mark.parametrize("output", [("zh", "gbk"), ("zh", "utf-8"), ("en", "gbk"), ("en", "ascii")], indirect=True)
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", [*reports.ALL, *recorded_fleets.RECORDED])
def test_reports_keep_to_the_width_in_every_encoding(name: str, width: int, output: None) -> None:
    encoding = language.output_encoding()
    terminal = Terminal(tty=True, unicode=encoding == "utf-8", width=width)
    report = recorded_fleets.report(name) if name in recorded_fleets.RECORDED else reports.ALL[name]()
    expected_text = rendering.text(report, golden._pages() | reports.PAGES, terminal=terminal)
    for line in expected_text.splitlines():
        cells = display_width(line) if encoding == "utf-8" else len(encoded(line, encoding))
        assert cells <= width or "`" in line or not re.search(r"\S\s+\S{1,60}\Z", line.strip()), line


@pytest.mark.parametrize("name", recorded_fleets.RECORDED)
def test_the_columns_of_the_table_begin_at_one_place(name: str) -> None:
    """On terminals of either sort: no letter of ambiguous width stands before a column."""
    language.select("zh", {})
    try:
        expected_text = rendering.text(
            recorded_fleets.report(name), golden._pages(), terminal=Terminal(True, width=80), brief=True
        )
    finally:
        language.select("en", {})
    rows = expected_text.partition("\n\n")[0].splitlines() if "\n\n" in expected_text.strip() else []
    starts = {len(re.match(r"\S+ +\S+ +\S+ +", row)[0]) for row in rows}  # type: ignore[index]
    assert len(starts) == (len(rows) > 0), rows


def test_a_report_on_an_ascii_terminal_has_plain_signs() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-m", "doctor", "explain", "watch"], cwd=ROOT, env=environment, capture_output=True, timeout=60
    )
    assert done.returncode == 0
    assert not re.search(rb"\\u20(?:26|1[0-9a-d])", done.stdout)


@pytest.mark.parametrize("width", [40, 57, 80])
def test_the_map_of_a_network_test_counts_cells(width: int) -> None:
    states = ("ood", "o-?", "rd-")
    hosts = tuple(f"node{number:03d}" for number in range(3))
    with_chinese = Matrix(hosts, (TestedPort("master", 29500), TestedPort("hccl", 60000)), (states, states))
    language.select("zh", {})
    try:
        lines = heat_map(with_chinese, width)
    finally:
        language.select("en", {})
    column = display_width(lines[1][: lines[1].index("\\")])
    assert lines[0].startswith("到：") and display_width(lines[0][: lines[0].index("0")]) == column
    assert max(map(display_width, lines)) <= width


def test_a_line_in_columns_counts_the_cells_of_its_head() -> None:
    lines = list(columns_line("检查项  ", "一二三四五六七八九十" * 4, 40))
    assert len(lines) > 1 and max(map(display_width, lines)) <= 40
    assert lines[1].startswith(" " * display_width("检查项  ")) and lines[1][display_width("检查项  ")] != " "
