"""Chinese beside the English: it says the same of the same values, in one word for one thing, and is compiled."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from doctor.engine import texts
from doctor.engine.translation import Catalogue
from doctor.report.explain.examples import read_examples
from tests import translations

PARTS = translations.parts()
CHINESE = re.compile("[\u4e00-\u9fff]")
GLOSSARY = translations.ROOT / "doctor" / "docs" / "zh" / "glossary.md"


@pytest.fixture(autouse=True)
def nothing_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has filled no text yet: what other tests filled is remembered by its text."""
    monkeypatch.setattr(texts, "_templates", {})


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


def test_a_filled_template_is_recognized() -> None:
    catalogue = Catalogue(
        {"no {0} on {1} hosts": "{1} 台主机上没有 {0}", "a link": "链路", "{0}: not there": "{0}：不存在"}
    )
    assert catalogue.filled("no a link on 3 hosts") == "3 台主机上没有 链路"
    assert catalogue.filled("/etc/x: not there") == "/etc/x：不存在"
    assert catalogue.filled("no such sentence") == "no such sentence"


def test_a_known_sentence_behind_a_colon_is_no_value_of_a_pattern() -> None:
    catalogue = Catalogue({"the process of {0}": "{0} 的进程", "no such file": "没有该文件", ": ": "："})
    assert catalogue.filled("the process of run.log: no such file") == "run.log 的进程：没有该文件"


def test_placeholders_with_nothing_between_are_recognized() -> None:
    catalogue = Catalogue(
        {"no check is named {0}{1}": "没有名为 {0} 的检查项{1}", "; did you mean {0}?": "；是否为 {0}？"}
    )
    assert catalogue.filled("no check is named 'a'; did you mean b?") == "没有名为 'a' 的检查项；是否为 b？"
    assert catalogue.filled("no check is named 'a'") == "没有名为 'a' 的检查项"


def test_each_text_of_a_list_is_recognized() -> None:
    catalogue = Catalogue({"to and from {0}": "进出 {0}", "{0} is on": "{0} 开启", "; ": "；"})
    assert catalogue.filled("to and from w1; to and from w2") == "进出 w1；进出 w2"
    assert catalogue.filled("to and from w1; something else") == "to and from w1; something else"


def test_each_item_of_an_enumeration_is_recognized_and_names_stay() -> None:
    catalogue = Catalogue({"NPU {0} of {1}": "{1} 的 NPU {0}", "{0} is on": "{0} 开启", " and ": " 和 "})
    assert catalogue.filled("NPU 1 of w1, rank 2 and w3") == "w1 的 NPU 1, rank 2 和 w3"
    assert catalogue.filled("w1 is on and something is else") == "w1 is on and something is else"


def test_a_sentence_about_two_is_no_enumeration() -> None:
    catalogue = Catalogue(
        {
            "between {0} and {1}": "{0} 与 {1} 之间",
            "between {0}": "{0} 之间",
            "to and from {0}": "进出 {0}",
            " and ": " 和 ",
        }
    )
    assert catalogue.filled("between w1 and w2") == "w1 与 w2 之间"
    assert catalogue.filled("to and from w2") == "进出 w2"


def test_a_known_continuation_is_recognized() -> None:
    catalogue = Catalogue({"no message from {0}": "没有 {0} 的消息", ", while it works": "，而它在工作"})
    assert catalogue.filled("no message from w1, while it works") == "没有 w1 的消息，而它在工作"
    assert catalogue.filled("something else, while it works") == "something else, while it works"


def test_the_pattern_with_most_letters_in_common_is_taken_wherever_its_first_value_stands() -> None:
    texts = {"one of ranks {0}": "rank {0} 之一", "{0} holds up the step of {1}": "{0} 阻塞了 {1} 的 step"}
    catalogue = Catalogue(texts)
    assert catalogue.filled("one of ranks 0-1") == "rank 0-1 之一"
    assert catalogue.filled("one of ranks 0, 2") == "rank 0, 2 之一"
    assert catalogue.filled("one of ranks 0-1 holds up the step of rank 2") == "rank 0-1 之一 阻塞了 rank 2 的 step"


@pytest.mark.parametrize(
    ("english", "chinese_text"),
    [
        ("2 errors", "2 个错误"),
        ("more than 2 errors", "more than 2 errors"),
        ("0, 1 and 3 errors", "0, 1 and 3 个错误"),
        ("Bus errors", "Bus errors"),
        ("some other errors", "some other errors"),
        ("NPU 3 of w1", "w1 的 NPU 3"),
        ("NPU out of memory", "NPU out of memory"),
        ("2 NPUs listed", "已列出 2 个 NPU"),
        ("out of memory listed", "out of memory listed"),
    ],
)
def test_a_number_is_expected_where_the_chinese_counts(english: str, chinese_text: str) -> None:
    """What another program prints may read like a pattern: ``Bus error`` is no number of errors."""
    catalogue = Catalogue(
        {"{0} errors": "{0} 个错误", "NPU {0} of {1}": "{1} 的 NPU {0}", "{0} listed": "已列出 {0}"}
        | {"{count} NPU": "{count} 个 NPU"}
    )
    assert catalogue.filled(english) == chinese_text


def test_a_sentence_of_another_program_is_no_value_but_behind_a_colon() -> None:
    catalogue = Catalogue(
        {"{0} does not exist on {1}": "{1} 上不存在 {0}", "the file {0}": "文件 {0}", "no import: {0}": "导入失败：{0}"}
    )
    assert catalogue.filled("eth7 does not exist on w1") == "w1 上不存在 eth7"
    for sentence in (
        "IFNAME=abc does not exist on the host; the log lists the existing NICs.",
        "the file of init_method was left over",
    ):
        assert catalogue.filled(sentence) == sentence
    quoted = "no module of this name is known here"
    assert catalogue.filled(f"no import: {quoted}") == f"导入失败：{quoted}"


FOREIGN = tuple(sorted((translations.ROOT / "tests" / "diagnose" / "logs").glob("*.log")))
AS_OURS = re.compile(
    r"(?:\S+: )*(?:DataLoader worker \(pid .*|loss is NaN|(?:ranks?|device) ?-?[\d,: ]+(?:\(.*\))?"
    rf"|{'|'.join(translations.SYSTEM_ERRORS)})\Z"
)
"""Lines of logs that have Chinese: what doctor itself says of them, and errors of the system."""


def test_the_lines_of_real_logs_stay_as_they_are() -> None:
    """Half a translation of a quotation would hide what the program has said."""
    catalogue = Catalogue(json.loads(translations.COMPILED.read_text("utf-8")))
    lines = {line.strip() for path in FOREIGN for line in path.read_text("utf-8", "replace").splitlines()}
    quoted = {line[match.end() :] for line in lines for match in re.finditer(": |] ", line)} | lines
    quoted = {text for text in quoted if len(text.split()) > 2 and not AS_OURS.match(text)}
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


def test_recognition_takes_linear_time() -> None:
    catalogue = Catalogue({"a {0} a {1} a {2} a {3} a {4} b": "{0}{1}{2}{3}{4}"})
    for text in ("a " * 1900, "a and " * 600, "a, " * 1300, "a; b (" * 600, "a and (b, " * 390):
        started = time.process_time()
        assert catalogue.filled(text) == text
        assert time.process_time() - started < 1


def test_a_thousand_notes_are_recognized_in_a_second() -> None:
    """Patterns that begin with a value are most of them: each is tried only where the text has a word of it."""
    catalogue = Catalogue(json.loads(translations.COMPILED.read_text("utf-8")))
    notes = [f"/var/log/{number}.log last written more than {number} h ago: not read" for number in range(500)]
    notes += [f"/var/log/{number}.log and something that is not in the catalogue" for number in range(500)]
    started = time.process_time()
    assert [bool(CHINESE.search(catalogue.filled(note))) for note in notes] == [True] * 500 + [False] * 500
    assert time.process_time() - started < 1
