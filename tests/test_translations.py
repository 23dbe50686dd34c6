"""Chinese beside the English: it says the same of the same values, in one word for one thing, and is compiled."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from doctor.engine.toml_compat import loads
from doctor.engine.translation import Catalogue
from doctor.report.explain.examples import read_examples
from tests import translations

pytestmark = pytest.mark.every

PARTS = translations.parts()
CHINESE = re.compile("[\u4e00-\u9fff]")
GLOSSARY = translations.ROOT / "doctor" / "docs" / "zh" / "glossary.md"


def chinese() -> Iterator[tuple[str, str, str, str]]:
    """Part, key, English and Chinese of every translated text."""
    for part in PARTS:
        english = translations.english_texts(part)
        for key, text in translations.translated(part).items():
            yield part, key, english[key], text


def glossary_rows() -> list[list[str]]:
    """English, Chinese, the words that are not used for it, and where the Chinese is from."""
    rows = [line.strip("| ").split(" | ") for line in GLOSSARY.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in row] for row in rows if len(row) == 4 and not row[0].startswith(("English", "---"))
    ]


def test_placeholders_and_commands_are_those_of_the_english() -> None:
    wrong = [
        f"{part} {key}: {problem}"
        for part, key, english, text in chinese()
        for problem in translations.disagreements(english, text)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("english", "chinese_text", "problem"),
    [
        ("HCCL_BUFFSIZE=100 or less", "HCCL_BUFFSIZE=200 或更小", "100"),
        ("raise --gpu-memory-utilization", "增大 --gpu-memory", "--gpu-memory-utilization"),
        ("as EI0015", "同 EI0005", "EI0015"),
        ("mount /dev/shm", "挂载 shm", "/dev/shm"),
        ("unset HCCL_IF_IP", "取消 HCCL_IF", "HCCL_IF_IP"),
        ("grep -r x run/plog", "grep x run/plog", "-r"),
    ],
)
def test_a_translation_keeps_names_options_codes_paths_and_numbers(
    english: str, chinese_text: str, problem: str
) -> None:
    assert [problem in text for text in translations.disagreements(english, chinese_text)] == [True]


def test_no_translation_outlives_its_english() -> None:
    """After a change of a page: translate it anew, or ``python -m tests.translations accept checks/NAME``."""
    assert {part: texts for part in PARTS if (texts := translations.outdated(part))} == {}


def test_no_message_has_two_translations() -> None:
    translations_of: dict[str, set[str]] = {}
    for path in translations.SOURCES.glob("*.toml"):
        for english, chinese_text in loads(path.read_text("utf-8")).get("messages", {}).items():
            translations_of.setdefault(english, set()).add(chinese_text)
    assert {english: texts for english, texts in translations_of.items() if len(texts) > 1} == {}


def test_every_catalogue_file_is_of_a_part() -> None:
    files = {str(path.relative_to(translations.SOURCES))[:-5] for path in translations.SOURCES.rglob("*.toml")}
    assert files - set(PARTS) == set()


def test_it_is_compiled() -> None:
    assert translations.COMPILED.read_text("utf-8") == translations.compiled(), "python -m tests.regen"


MOST_MISSING = 0
"""Texts without Chinese, which a report in Chinese shows in English. Lower it as they are translated; to raise it says
that a new text may wait."""


def test_no_more_texts_wait_for_their_chinese() -> None:
    lacking = [translations.listing(part) for part in PARTS if translations.untranslated(part)]
    count = sum(len(translations.untranslated(part)) for part in PARTS)
    assert count <= MOST_MISSING, "python -m tests.translations fill FILE, with Chinese in:\n" + "\n".join(lacking)


def sentences_of_examples() -> Iterator[tuple[str, str]]:
    """Check and template of a real finding of each check, where it has words of its own."""
    for name, example in read_examples().items():
        if re.search(r"[a-z]{3,} [a-z]{2,}", re.sub(r"\{\w+\}", "", example.template)):
            yield name, example.template


def test_a_real_finding_of_every_check_has_its_chinese() -> None:
    """Also where its template is joined from several texts. Stale examples: ``python -m tests.example_values``."""
    catalogue = Catalogue(json.loads(translations.COMPILED.read_text("utf-8")))
    english = [name for name, template in sentences_of_examples() if not CHINESE.search(catalogue.template(template))]
    assert english == []


def test_a_joined_template_needs_every_part() -> None:
    catalogue = Catalogue({"{who} is slow": "{who} 慢", " (in {where})": "（{where}）", "is slow": "慢"})
    assert catalogue.template("{who} is slow{pressure} (in {where})") == "{who} 慢{pressure}（{where}）"
    assert catalogue.template("{who} is slow and lame (in {where})") == "{who} is slow and lame (in {where})"
    assert catalogue.template("{who}, {host}: is slow") == "{who}, {host}: 慢"


def test_a_joined_template_is_divided_in_bounded_time() -> None:
    catalogue = Catalogue({"a b": "甲", "a": "乙"})
    for text in ("a " * 250 + "unknown", ": " * 299 + "b", "{x}, " * 119 + "b"):
        assert catalogue.template(text) == text
        assert catalogue.template(text * 10) == text * 10


def test_one_word_for_one_thing() -> None:
    """The words that the glossary rules out are nowhere used."""
    forbidden = {
        word: row[1] for row in glossary_rows() for word in re.split(r"[、,] ?", row[2]) if word not in ("", "-")
    }
    assert [
        f"{part} {key}: {word}; expected {forbidden[word]}"
        for part, key, _, text in chinese()
        for word in forbidden
        if word in re.sub(r"`[^`]*`", "", text)
    ] == []


def test_a_source_in_a_chinese_page_is_chinese() -> None:
    """Names, titles and quotations stay as they are; a sentence around them does not."""
    sentence = re.compile(r"\b(?:[a-z]{2,} ){3}[a-z]{2,}")
    sources = {
        part: re.sub(r"`[^`]*`|\"[^\"]*\"|“[^”]*”", "", text) for part, key, _, text in chinese() if key == "source"
    }
    assert len(sources) > 300
    assert [part for part, text in sources.items() if not CHINESE.search(text) and sentence.search(text)] == []


FOREIGN = tuple(sorted((translations.ROOT / "tests" / "diagnose" / "logs").glob("*.log")))


def test_the_lines_of_real_logs_stay_as_they_are() -> None:
    """Half a translation of a quotation would hide what the program has said."""
    catalogue = Catalogue(json.loads(translations.COMPILED.read_text("utf-8")))
    lines = {line.strip() for path in FOREIGN for line in path.read_text("utf-8", "replace").splitlines()}
    quoted = {line[match.end() :] for line in lines for match in re.finditer(": |] ", line)} | lines
    quoted = {text for text in quoted if len(text.split()) > 2 and text not in catalogue.texts}
    changed = [text for text in quoted if catalogue.filled(text) != text]
    assert len(quoted) > 500
    assert changed == []


def test_every_link_of_the_chinese_pages_leads_somewhere() -> None:
    links = [
        (page, link.partition("#")[0])
        for page in GLOSSARY.parent.glob("*.md")
        for link in re.findall(r"\]\(([^):]+)\)", page.read_text("utf-8"))
    ]
    assert [f"{page.name}: {link}" for page, link in links if link and not (page.parent / link).exists()] == []
    assert links
