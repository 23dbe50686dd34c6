"""The Chinese pages beside the English ones: the same commands, figures, links and sections, so that neither drifts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from difflib import unified_diff

import pytest

from doctor.engine.output_encoding import display_width
from doctor.report.explain.topics import FOLDER, render
from tests.readme import contents, headings
from tests.test_translations import glossary_rows

WITHOUT_CHECK = {"README", "glossary"}
"""Chinese pages with no English one beside them."""
PAGES = sorted({path.stem for path in (FOLDER / "zh").glob("*.md")} - WITHOUT_CHECK)
_FENCE = re.compile(r"^```.*?^```\n|(?:^    [^\n]*\n)+", re.MULTILINE | re.DOTALL)
_CONTENTS = re.compile(r"<!-- toc -->.*?<!-- /toc -->", re.DOTALL)


def english(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text("utf-8")


def chinese(name: str) -> str:
    return (FOLDER / "zh" / f"{name}.md").read_text("utf-8")


def code_blocks(text: str) -> list[str]:
    """The blocks without their comments, which may be Chinese."""
    return [
        "\n".join(re.sub(r"\s+# .*", "", line).rstrip() for line in block.splitlines())
        for block in _FENCE.findall(text)
    ]


def without(pattern: re.Pattern[str] | str, text: str) -> str:
    """The text without what the pattern finds, each line with its old number."""
    return re.sub(pattern, lambda result: "\n" * result[0].count("\n"), text)


def prose(text: str) -> str:
    return without(_FENCE, without(_CONTENTS, text))


def lines_of(pattern: str, text: str) -> dict[str, list[int]]:
    """Each word that the pattern's group finds, with the line of each of its uses."""
    lines: dict[str, list[int]] = defaultdict(list)
    for result in re.finditer(pattern, text):
        lines[" ".join(result[1].split())].append(text.count("\n", 0, result.start()) + 1)
    return lines


def code_words(text: str) -> dict[str, list[int]]:
    return lines_of(r"`([^`]+)`", prose(text))


def figures(text: str) -> dict[str, list[int]]:
    return lines_of(r"(\d+(?:[.,]\d+)*)", without(r"`[^`]+`|\]\([^)]*\)", prose(text)))


def links(text: str) -> dict[str, list[int]]:
    """Targets, as seen from the repository's folder of pages, without sections."""
    return lines_of(r"\]\((?:\.\./)*([^)\s#]*)(?:#[^)\s]*)?\)", prose(text))


def differences(name: str, noun: str, arguments: Callable[[str], dict[str, list[int]]]) -> list[str]:
    """One line for each word that the two pages do not use equally often: where each of them has it."""
    ours, theirs = arguments(english(name)), arguments(chinese(name))
    return [
        f"{noun} {word}: doctor/docs/{name}.md {where(ours[word])}; doctor/docs/zh/{name}.md {where(theirs[word])}"
        for word in sorted({*ours, *theirs})
        if len(ours[word]) != len(theirs[word])
    ]


def where(lines: list[int]) -> str:
    return f"has it in line {', '.join(map(str, lines))}" if lines else "lacks it"


def outline(text: str) -> list[str]:
    return [f"{'#' * level} {message}" for level, message in headings(text)]


def test_every_topic_is_there_in_both_languages() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_commands_and_code_are_the_same(name: str) -> None:
    ours, theirs = ("\n\n".join(code_blocks(text)).split("\n") for text in (english(name), chinese(name)))
    files = f"code blocks of doctor/docs/zh/{name}.md", f"code blocks of doctor/docs/{name}.md"
    changes = [*unified_diff(theirs, ours, *files, lineterm=""), *differences(name, "inline code", code_words)]
    assert not changes, "\n" + "\n".join(changes)


@pytest.mark.parametrize("name", PAGES)
def test_figures_and_links_are_the_same(name: str) -> None:
    changes = differences(name, "figure", figures) + differences(name, "link", links)
    assert not changes, "\n" + "\n".join(changes)


@pytest.mark.parametrize("name", PAGES)
def test_sections_are_the_same_and_the_contents_list_them(name: str) -> None:
    text = chinese(name)
    ours, theirs = outline(english(name)), outline(text)
    sections = "\n".join([f"doctor/docs/{name}.md:", *ours, f"doctor/docs/zh/{name}.md:", *theirs])
    assert [level for level, _ in headings(text)] == [level for level, _ in headings(english(name))], "\n" + sections
    (listed,) = _CONTENTS.findall(text) or [""]
    expected = f"<!-- toc -->\n{contents(text)}<!-- /toc -->"
    assert not listed or listed == expected, f"the contents of doctor/docs/zh/{name}.md, expected:\n{expected}"


@pytest.mark.parametrize("name", PAGES)
def test_words_are_those_of_the_glossary(name: str) -> None:
    text = re.sub(r"`[^`]*`", "", prose(chinese(name)))
    forbidden = [word for row in glossary_rows() for word in re.split(r"[、,] ?", row[2]) if word not in ("", "-")]
    assert [word for word in forbidden if word in text] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_terminal_shows_it_in_its_width(name: str) -> None:
    for line in render(chinese(name), 80).splitlines():
        assert display_width(line) <= 80 or line.startswith("    ") or "`" in line or "://" in line, line


def test_a_figure_that_changed_is_named_with_the_lines_of_both_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_chinese_pages.english", lambda name: "# Speed\n\n    9 s\n\nIt takes 2 s.\n")
    monkeypatch.setattr("tests.test_chinese_pages.chinese", lambda name: "# 速度\n\n需要 3 s。\n")
    assert differences("speed", "figure", figures) == [
        "figure 2: doctor/docs/speed.md has it in line 5; doctor/docs/zh/speed.md lacks it",
        "figure 3: doctor/docs/speed.md lacks it; doctor/docs/zh/speed.md has it in line 3",
    ]
