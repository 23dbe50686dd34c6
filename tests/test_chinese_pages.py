"""The Chinese pages beside the English ones: the same commands, figures, links and sections, so that neither drifts."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from doctor.report.explain.topics import FOLDER, render
from doctor.report.layout.formatting import display_width
from tests.readme import contents, headings
from tests.test_translations import glossary_rows

OWN = {"README", "glossary"}
"""Chinese pages with no English one beside them."""
ENGLISH_ALONE = {"catalogue", "proof"}
"""The catalogue is generated from the checks, whose pages are Chinese; how doctor is tested is for its developers."""
PAGES = sorted({path.stem for path in (FOLDER / "zh").glob("*.md")} - OWN)
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


def prose(text: str) -> str:
    return _FENCE.sub("", _CONTENTS.sub("", text))


def code_words(text: str) -> Counter[str]:
    return Counter(" ".join(words.split()) for words in re.findall(r"`([^`]+)`", prose(text)))


def figures(text: str) -> Counter[str]:
    return Counter(re.findall(r"\d+(?:[.,]\d+)*", re.sub(r"`[^`]+`|\]\([^)]*\)", "", prose(text))))


def links(text: str) -> Counter[str]:
    """Targets, as seen from the repository's folder of pages, without sections."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(text))
    return Counter(re.sub(r"^(?:\.\./)+", "", target).partition("#")[0] for target in targets)


def test_every_topic_is_there_in_both_languages() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} - ENGLISH_ALONE == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_commands_and_code_are_the_same(name: str) -> None:
    assert code_blocks(chinese(name)) == code_blocks(english(name))
    assert code_words(chinese(name)) == code_words(english(name))


@pytest.mark.parametrize("name", PAGES)
def test_figures_and_links_are_the_same(name: str) -> None:
    assert figures(chinese(name)) == figures(english(name))
    assert links(chinese(name)) == links(english(name))


@pytest.mark.parametrize("name", PAGES)
def test_sections_are_the_same_and_the_contents_list_them(name: str) -> None:
    text = chinese(name)
    assert [level for level, _ in headings(text)] == [level for level, _ in headings(english(name))]
    (listed,) = _CONTENTS.findall(text) or [""]
    assert not listed or listed == f"<!-- toc -->\n{contents(text)}<!-- /toc -->"


@pytest.mark.parametrize("name", PAGES)
def test_words_are_those_of_the_glossary(name: str) -> None:
    text = re.sub(r"`[^`]*`", "", prose(chinese(name)))
    forbidden = [word for row in glossary_rows() for word in re.split(r"[、,] ?", row[2]) if word not in ("", "-")]
    assert [word for word in forbidden if word in text] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_terminal_shows_it_in_its_width(name: str) -> None:
    for line in render(chinese(name), 80).splitlines():
        assert display_width(line) <= 80 or line.startswith("    ") or "`" in line or "://" in line, line
