"""A ticket: what hosts say stays in code, whatever they say. Read back by a CommonMark parser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from doctor.engine.result import Finding, Report
from doctor.report.formats.markdown import code_span, fenced, render
from tests.examples import examples
from tests.report import reports as example_reports
from tests.report.rendering import context
from tests.report.strategies import reports

READER = MarkdownIt("gfm-like", {"linkify": False})
TAMED = {"heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td", "bullet_list", "list_item", "fence"}
ATTACKS = st.lists(
    st.sampled_from(
        [
            *("`", "```", "````", "~~~", "|", "\\", "***", "{", "}", "\n\n# ok", "\r\n- ", "\x1b]0;t\x07", "\u202e"),
            *("<script>", "</code>", "<!--", "[x](http://e)", "![i](u)", "http://e.example", "&lt;", "@all", "#1"),
        ]
    ),
    max_size=6,
).map("".join)


def tokens(text: str) -> Iterator[Token]:
    for entry in READER.parse(text):
        yield entry
        yield from entry.children or ()


def rendered(report: Report) -> str:
    return render(report, context(report, example_reports.PAGES))


def prose(text: str) -> str:
    """What a reader sees outside of code."""
    return "\n".join(token.content for token in tokens(text) if token.type == "text")


def check_tame(text: str) -> None:
    for token in tokens(text):
        kind = token.type.removesuffix("_open").removesuffix("_close")
        assert kind in TAMED | {"inline", "text", "code_inline", "softbreak"}, (token.type, token.content)


@pytest.mark.parametrize("name", example_reports.ALL)
def test_every_report_is_headings_tables_lists_and_code(name: str) -> None:
    check_tame(rendered(example_reports.ALL[name]()))


@settings(max_examples=examples(30), deadline=None)
@given(reports())
def test_no_report_is_anything_else(report: Report) -> None:
    check_tame(rendered(report))


@settings(max_examples=examples(100), deadline=None)
@given(ATTACKS, ATTACKS)
def test_nothing_breaks_out_of_code(first: str, other: str) -> None:
    host = f"h{other}x"
    report = example_reports.report(
        example_reports.outcome(
            "link-down", Finding("{what}", hosts=(host,), what=first, observed=other), evaluated_hosts=(host,)
        ),
        hosts=(host,),
        source=first,
        notes=(other, first),
    )
    text = rendered(report)
    check_tame(text)
    for word in ("script", "http", "@all", "#1"):
        assert word not in prose(text)


@given(ATTACKS)
def test_a_span_is_one_span(text: str) -> None:
    (_, inline, _) = READER.parse(f"a {code_span(text)} b")
    assert inline.children
    assert [child.type for child in inline.children] == ["text", "code_inline", "text"]


@given(st.lists(ATTACKS, max_size=4))
def test_a_fence_is_one_fence(lines: list[str]) -> None:
    assert [entry.type for entry in READER.parse("\n".join(fenced(lines)))] == ["fence"]


def test_what_a_ticket_holds() -> None:
    text = rendered(example_reports.unknown())
    for part in (
        "# doctor: `FAILED: 1 error on node030; 5 checks unknown on node[001-003,020]`",
        "| `node030 (1/64)` | `link-down` | - |",
        "| `node[001-003] (3/64)` | - | 3 checks |",
        "## error: `link-down` on `node030 (1/64)`",
        "node030: the link of NPU 0-3,6 is down",
        "hccn_tool -i 0 -link -g",
        "## Unknown",
        "sudo -n: a password is required",
        "- `The budget of 20 s ended before 2 hosts had answered.`",
        "doctor explain link-down",
        "doctor check --select link-down node030",
    ):
        assert part in text, part


def test_the_stacks_of_a_smoke_run_are_in_it() -> None:
    assert "rank 5, innermost call first" in rendered(example_reports.smoke_hang())
