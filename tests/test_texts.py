"""Texts that are filled where they are made and translated where they are shown: by template and values, exactly."""

from __future__ import annotations

import ast
import json
import re

import pytest

from doctor.engine import texts
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import agreeing, enumerated, filled, joined, origin, read_table, rewritten
from doctor.engine.translation import Catalogue
from doctor.remedy.template import fill_text
from tests import translations, value_texts

pytestmark = pytest.mark.every

CATALOGUE = Catalogue(
    {
        "no {0} on {1}": "{1} 上没有 {0}",
        "{0} and {1} differ": "{0} 与 {1} 不同",
        "a route": "路由",
        "{count} hosts": "{count} 台主机",
        ": ": "：",
        "; ": "；",
        " and ": " 和 ",
    }
)


def test_a_value_may_be_any_text_also_one_that_reads_like_the_template() -> None:
    for value in ("eth0 on w1 on w2", "{0}", "{1}{1}", "a on b", "", "no a route on x"):
        assert CATALOGUE.filled(filled("no {0} on {1}", value, "w3")) == f"w3 上没有 {value}"


def test_values_that_are_texts_are_translated_and_others_stay() -> None:
    inner = filled("no {0} on {1}", "a route", "w1")
    assert CATALOGUE.filled(filled("{0} and {1} differ", inner, "w2 is down")) == "w1 上没有 路由 与 w2 is down 不同"


def test_signs_follow_the_language_of_the_values() -> None:
    assert CATALOGUE.filled(filled("{0}: {1}", "w1", filled("no {0} on {1}", "a", "b"))) == "w1：b 上没有 a"
    assert CATALOGUE.filled(filled("{0}: {1}", "w1", "Connection refused")) == "w1: Connection refused"
    assert CATALOGUE.filled(joined("; ", [count_noun(2, "host"), "a route"])) == "2 台主机；路由"
    assert CATALOGUE.filled(enumerated(["a", "b", "c"])) == "a, b 和 c"


def test_the_english_is_that_of_an_f_string() -> None:
    level, braces = 0o640, "{x}"
    assert filled("mode {0} of {1}: {name} {2}", f"{level:04o}", braces, None, name=1.5) == "mode 0640 of {x}: 1.5 None"
    assert filled("{0} hosts {{n}}", 3) == "3 hosts {{n}}"


def test_verbs_and_pronouns_agree_with_the_ranks_that_are_their_subject() -> None:
    several = "ranks 2 (w1) and 3 (w1)"
    holds = "after step {step} {who} holds other values than the rest of its group"
    assert filled(holds, step=4, who="rank 2") == "after step 4 rank 2 holds other values than the rest of its group"
    assert (
        filled(holds, step=4, who=several) == f"after step 4 {several} hold other values than the rest of their group"
    )
    assert filled("{0}, which is stopped", "pids 7, 8") == "pids 7, 8, which are stopped"
    assert filled("{0} begins, {0} loads its own", "ranks 1-3") == "ranks 1-3 begin, ranks 1-3 load their own"
    for template in (text for text in json.loads(translations.COMPILED.read_text("utf-8")) if "{who}" in text):
        assert not re.search(
            r"(?:^|[:;,] )\{who\}(?: \{|, which \w+s\b| \w+s\b)", agreeing(template, {"who": several})
        ), template
    for template in ("the loss of {0} in it differs", "the loss of {0} differs from its own", "{0}: it is stopped"):
        assert filled(template, several) == template.format(several)
    assert filled("{0} hosts are behind {1}, and {2} keeps them", 1, "w1", several).startswith(
        "1 host is behind w1, and"
    )
    assert CATALOGUE.filled(filled("no {0} on {1}", several, several)) == f"{several} 上没有 {several}"


def test_what_is_remembered_is_bounded(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(texts, "MAX_TEXTS", 10)
    monkeypatch.setattr(texts, "_templates", {})
    for number in range(100):
        filled("text {0}", number)
    assert len(texts._templates) <= 10
    assert texts.origin("text 99") is not None
    filled("long {0}", "x" * texts.MAX_CHARS)
    assert not any(text.startswith("long") for text in texts._templates)


SENT = (
    *(
        "collect/collector",
        "diagnose/bundler",
        "diagnose/excerpter",
        "fix/executor",
        "net/prober",
        "remote",
        "smoke/programs",
    ),
    *("transport/launcher/carrier", "transport/launcher/relay", "watch/attach/inspector", "watch/hook"),
)
"""Programs that are sent to hosts, and import nothing of doctor."""


def f_string_sentences() -> dict[str, list[str]]:
    """The sentences that an f-string, ``%`` or ``format`` fills in, by package and line; not what stays English."""
    chinese = set(json.loads(translations.COMPILED.read_text("utf-8")))
    for part in translations.parts():
        chinese.update(translations.english_texts(part)[key] for key in translations.untranslated(part))
    sentences: dict[str, list[str]] = {}
    root = translations.ROOT
    for path in (*sorted((root / "doctor").rglob("*.py")), *sorted((root / "checks").glob("*.py"))):
        place = path.relative_to(root / "doctor" if root / "doctor" in path.parents else root).as_posix()
        if place.startswith(SENT):
            continue
        for node in value_texts.nodes(value_texts.module_tree(path)):
            text = translations.literal(node) if isinstance(node, ast.JoinedStr) else ""
            if text in chinese and translations.PLACEHOLDER.search(text):
                sentences.setdefault(place.partition("/")[0], []).append(f"{place}:{node.lineno}: {text}")
    return sentences


def test_a_sentence_for_people_is_no_f_string() -> None:
    assert f_string_sentences() == {}


def test_a_text_is_changed_alike_in_every_language() -> None:
    catalogue = Catalogue({"see dmesg of device N": "查看 device N 的 dmesg"})
    assert catalogue.filled(rewritten("see dmesg of device N", lambda text: text.replace("N", "3"))) == (
        "查看 device 3 的 dmesg"
    )
    assert rewritten("nothing", lambda text: text.replace("N", "3")) == "nothing"


def test_a_text_that_was_filled_as_a_whole_keeps_its_template_where_its_parts_are_joined_once_more() -> None:
    text = filled("{0} is down: {1}", "eth0", "no link")
    assert joined(": ", text.split(": ")) == text
    assert origin(text) == ("{0} is down: {1}", {"0": "eth0", "1": "no link"})


def test_a_text_behind_which_nothing_is_joined_keeps_its_template() -> None:
    """The hosts of a run, with empty notes behind them."""
    text = filled("{0} from {1}", filled("{0} host", 1), "the command line")
    assert joined("", [text, "", ""]) == text
    known = origin(text)
    assert known is not None and known[0] == "{0} from {1}"


def test_a_step_of_a_playbook_keeps_its_template() -> None:
    template = "Read the log of {host} around the message: `echo ${HOME}`"
    text = fill_text(template, {"host": "node1"})
    assert text == "Read the log of node1 around the message: `echo ${HOME}`"
    assert origin(text) == (template, {"host": "node1"})


HARD_TO_READ = re.compile(
    r"\b(?:of\s+which|whatever|nobody|for\s+want\s+of|(?:is|are|be|was|were)\s+told|heard\s+of|so many-th)\b", re.I
)
"""Subordinate clauses and negations that readers of another language stumble over."""


def test_no_message_and_no_page_of_a_check_or_playbook_has_words_that_are_hard_to_read() -> None:
    texts = {text for part in translations.parts() for text in translations.english_texts(part).values()}
    assert sorted(text for text in texts if HARD_TO_READ.search(text)) == []


def test_no_docstring_and_no_comment_has_them() -> None:
    found = []
    for path in (*(translations.ROOT / "doctor").rglob("*.py"), *(translations.ROOT / "checks").glob("*.py")):
        lines = re.sub(r"(?m)(?<=\s)#(.*)$", r'"""\1"""', path.read_text("utf-8"))
        prose = re.findall(r'"""(.*?)"""', lines, re.S)
        found += [f"{path.name}: {match[0]}" for text in prose for match in [HARD_TO_READ.search(text)] if match]
    assert found == []


MOST_WORDS = 30
"""Of a sentence, where what is within backquotes counts as one word."""


def sentences_too_long(text: str, ends: str) -> list[str]:
    """Those that have more words than `MOST_WORDS`; ``ends``: the signs that end one."""
    paragraphs = re.split(r"\n[ \t]*\n|\n[ \t]*-[ \t]", text)
    parts = [part for paragraph in paragraphs for part in re.split(rf"(?<=[{ends}])\s+", paragraph)]
    return [part for part in parts if len(re.sub(r"`[^`]*`", "code", part).split()) > MOST_WORDS]


def test_sentences_are_short() -> None:
    """Sentences on the pages of checks, and clauses everywhere; not the lists of sources, which few people read."""
    texts = {part: translations.english_texts(part) for part in translations.parts()}
    pages = [texts[part].get(key, "") for part in texts if part.startswith("checks/") for key in ("why", "do")]
    assert [sentence for page in pages for sentence in sentences_too_long(page, ".?!")] == []
    everything = {text for table in texts.values() for key, text in table.items() if key != "source"}
    assert sorted(clause for text in everything for clause in sentences_too_long(text, ".?!;:")) == []


def test_no_page_of_documentation_has_them() -> None:
    pages = [translations.ROOT / "README.md", *(translations.ROOT / "doctor/docs").glob("*.md")]
    lines = (f"{page.name}: {line}" for page in pages for line in page.read_text("utf-8").splitlines())
    assert [line for line in lines if HARD_TO_READ.search(line)] == []


def test_after_a_one_a_noun_is_in_the_singular_and_a_verb_is_not_taken_for_it() -> None:
    assert filled("{0} more groups of ranks", 1) == "1 more group of ranks"
    assert filled("{0} of {1} pairs both ways, {2} ports", 1, 1, 12) == "1 of 1 pair both ways, 12 ports"
    assert filled("{0} of {1} ranks were seen", 0, 1) == "0 of 1 rank was seen"
    assert filled("rank {0} lists {1} hosts", 1, 21) == "rank 1 lists 21 hosts"


def test_a_host_that_fills_in_the_plural_is_translated_as_well() -> None:
    read_table({"{0} odd packets of {1}": [["1", "eth0"]]})
    for text in ("1 odd packets of eth0", "1 odd packet of eth0"):
        assert origin(text) == ("{0} odd packets of {1}", {"0": "1", "1": "eth0"})
