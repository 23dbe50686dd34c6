from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import doctor.diagnose.signature as signature_module
from doctor.diagnose.diagnosis import NEEDED_CALLS
from doctor.diagnose.excerpter.line_choice import MAX_LINE, split_block
from doctor.diagnose.read.matcher import Matcher
from doctor.diagnose.signature import (
    FOLDER,
    SignatureError,
    Trait,
    load_signatures,
    longest_literal,
    validate_signature,
)
from doctor.engine.catalog import load_checks
from doctor.engine.toml_compat import toml_files
from doctor.remedy.catalog import check_files_by_name, load_playbooks

SIGNATURES = load_signatures()
MATCHER = Matcher(SIGNATURES.values())
CHECKS = set(check_files_by_name())
PLAYBOOKS = {playbook.name for playbook in load_playbooks()}


@pytest.mark.parametrize("signature", SIGNATURES.values(), ids=lambda signature: signature.id)
def test_each_sample_is_matched_and_selected_by_its_shape(signature) -> None:
    for sample in signature.samples:
        for line in sample.text.split("\n"):
            if any(re.search(pattern, line) for pattern in signature.patterns):
                break
        else:
            raise AssertionError(sample.text)
        data = line.encode()
        results = [*MATCHER.candidates(data), *MATCHER.numbered(data).get(0, ())]
        assert signature.id in {candidate.id for candidate, _ in results}


SAMPLE_LINES = sorted(
    {line for item in SIGNATURES.values() for sample in item.samples for line in sample.text.split("\n")}
)
HEADS = (
    "",
    "[rank3]: ",
    "2026-11-20 12:00:00,123 INFO ",
    "[INFO] HCCL(12,python):2026-11-20-12:00:00.123.456 ",
    "0a[INFO] ",
)


@given(
    st.lists(
        st.tuples(st.sampled_from(HEADS), st.sampled_from(SAMPLE_LINES), st.text("0af \t", max_size=3)), max_size=12
    )
)
def test_no_line_of_a_block_that_a_pattern_matches_is_passed_over(parts: list[tuple[str, str, str]]) -> None:
    lines = ["".join(part) for part in parts]
    data = "".join(f"{line}\n" for line in lines).encode()
    split, shapes = split_block(data)
    hot, numbered = MATCHER.hot_shapes(shapes), MATCHER.numbered(data)
    assert [line.decode() for line in split] == lines
    for index, line in enumerate(lines):
        chosen = {item.id for item, _ in (*hot.get(shapes[index], ()), *numbered.get(index, ()))}
        quiet = line.lstrip("0123456789abcdef").startswith("[INFO]")
        expected = {
            item.id
            for item in SIGNATURES.values()
            if (item.quiet or not quiet) and any(pattern.regex.search(line) for pattern in item.compiled)
        }
        assert expected <= chosen and (not expected or not MATCHER.is_quiet(line.encode()))


FACTS_OF = {
    "an NPU": ("doctor.facts.npu", "doctor.facts.hccn", "doctor.facts.versions"),
    "a GPU": ("doctor.facts.gpu", "doctor.facts.nvlink", "doctor.facts.nvlink", "doctor.facts.amd_smi"),
}
"""By kind of device: the modules of the facts that only its hosts have."""
COMPONENTS_OF = {
    "an NPU": {"hccl", "hccp", "cann", "torch_npu", "aicpu", "ascendcl", "ge", "mindie", "mindspore", "runtime"},
    "a GPU": {"cuda", "hip", "rocm", "nccl", "nvshmem", "tensorrt-llm"},
    "none": {"gloo", "rdma", "ucx", "libfabric"},
}
"""By kind of device: the components of signatures that run on it alone."""


@pytest.mark.parametrize("device", FACTS_OF)
def test_a_failure_of_one_kind_of_device_is_looked_for_with_no_check_of_another_kind(device: str) -> None:
    """A check brings its playbooks: the log of an NVIDIA job once recommended `doctor fix install-npu-driver`."""
    of_the_device = {
        check.name
        for check in load_checks()
        for need in check.needs
        if need.is_fact and not need.optional and need.type.__module__.startswith(FACTS_OF[device])
    }
    foreign = set[str]().union(*(words for kind, words in COMPONENTS_OF.items() if kind != device))
    named = {
        signature.id: sorted(of_the_device & set(signature.checks))
        for signature in SIGNATURES.values()
        if foreign & set(signature.components) and not COMPONENTS_OF[device] & set(signature.components)
    }
    assert not {name: checks for name, checks in named.items() if checks}


@pytest.mark.parametrize("signature", SIGNATURES.values(), ids=lambda signature: signature.id)
def test_each_signature_names_checks_and_playbooks_that_exist(signature) -> None:
    assert set(signature.checks) <= CHECKS
    assert set(signature.playbooks) <= PLAYBOOKS


def test_a_trait_is_no_switch_for_a_single_signature() -> None:
    """What only one line has is named by its id in the rule that knows it. Other programs print other steps."""
    counts = Counter(trait for signature in SIGNATURES.values() for trait in signature.traits)
    assert set(counts) == set(get_args(Trait))
    assert [trait for trait, count in counts.items() if count < 2] == ["progress"]


def test_each_bundled_signature_keeps_the_rules_for_a_sites_own() -> None:
    """At run time only a site's are validated."""
    for signature in SIGNATURES.values():
        validate_signature(FOLDER, signature)


def test_a_signature_that_is_a_fault_says_what_to_do_and_where_it_is_from() -> None:
    for signature in SIGNATURES.values():
        assert signature.sources, signature.id
        if signature.role in ("root", "ambiguous", "link"):
            assert signature.fix, signature.id


def test_the_longest_literal_of_each_pattern_is_in_each_line_that_it_matches() -> None:
    for signature in SIGNATURES.values():
        for sample in signature.samples:
            for pattern in signature.compiled:
                alike = [item.literals for item in signature.compiled if item.text == pattern.text]
                for line in sample.text.split("\n"):
                    if pattern.regex.search(line):
                        assert any(all(literal in line for literal in literals) for literals in alike)


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        (r"a+bcd", "bcd"),
        (r"\[rank\] \d+ gone", "[rank] "),
        (r"abc|defg", ""),
        (r"(?:abcdef)xy", "xy"),
        (r"[abc]{3}hello?", "hell"),
        (r"x\.y\\z", "x.y\\z"),
        (r"one(?P<a>[)(]+)three", "three"),
    ],
)
def test_the_longest_literal(pattern: str, literal: str) -> None:
    assert longest_literal(pattern) == literal


def test_no_line_costs_a_pattern_more_than_a_fraction_of_a_second() -> None:
    for signature in SIGNATURES.values():
        for pattern in signature.compiled:
            head = pattern.literal
            worst = [
                (head + " " * MAX_LINE)[:MAX_LINE],
                (head * MAX_LINE)[:MAX_LINE],
                (head + "[1" * MAX_LINE)[:MAX_LINE],
                (head + "1" * MAX_LINE)[:MAX_LINE],
                ("a: " * MAX_LINE)[: MAX_LINE - len(head)] + head,
            ]
            start = time.process_time()
            for line in worst:
                pattern.regex.search(line)
            assert time.process_time() - start < 1.0, (signature.id, pattern.regex.pattern)


VALID = """
[[signature]]
id = "site-switch-down"
title = "The site's switch is down"
role = "root"
phase = "exec"
patterns = ['SWITCH DOWN on (?P<culprit_host>\\w+)']
sources = ["site"]
"""


def test_a_sites_signatures_are_loaded_beside_the_bundled_ones(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(VALID)
    assert "site-switch-down" in load_signatures([tmp_path])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (VALID.replace("site-switch-down", "gloo-timeout"), "exists twice"),
        (VALID.replace("site-switch-down", "Site Switch"), "lower-case"),
        (VALID.replace("SWITCH DOWN on (?P", "SWITCH DOWN on ((?P"), "regular expression"),
        (VALID.replace("SWITCH DOWN on (?P<culprit_host>\\w+)", ".*"), "literal"),
        (VALID.replace('role = "root"', 'role = "guilty"'), "Invalid enum value"),
        (VALID + "colour = 'red'\n", "unknown field"),
        (VALID + 'explains = ["no-such-signature"]\n', "no-such-signature"),
        (VALID + 'kernel_faults = ["no-such-row"]\n', "kernel_faults 'no-such-row'"),
        ("not toml", "expected signatures"),
    ],
)
def test_a_bad_signature_is_refused_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(SignatureError, match=message):
        load_signatures([tmp_path])


@pytest.mark.parametrize("content", [None, "{}", "not json", '{"digest":"0","signatures":[]}'])
def test_the_compiled_file_is_read_only_for_the_files_that_it_was_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    """A copy with one file more, and one whose compiled file is broken: both hold what their TOML files say."""
    folder = shutil.copytree(FOLDER, tmp_path / "signatures")
    monkeypatch.setattr(signature_module, "FOLDER", folder)
    monkeypatch.setattr(signature_module, "COMPILED", folder / "compiled.json")
    (folder / "zz.toml").write_text(VALID)
    if content is not None:
        (folder / "compiled.json").write_text(content)
    signature_module._bundled.cache_clear()
    try:
        assert [*load_signatures()] == [*SIGNATURES, "site-switch-down"]
    finally:
        signature_module._bundled.cache_clear()


def test_the_compiled_file_holds_what_the_files_hold() -> None:
    texts = [path.read_bytes() for path in toml_files(FOLDER)]
    assert f'"digest":"{signature_module.digest_of(texts)}"' in signature_module.COMPILED.read_text("utf-8")[:100]
    read = [row for path in toml_files(FOLDER) for row in signature_module._read(path)]
    assert read == [*load_signatures().values()]


TEXTS = [
    (signature.id, field, text)
    for signature in SIGNATURES.values()
    for field in ("causes", "confirm", "fix")
    for text in getattr(signature, field)
] + [(signature.id, "note", signature.note) for signature in SIGNATURES.values() if signature.note]
FLAWS = {
    "left open": re.compile(r"\.\.\.(?!\])|…|\?\s*$|^\W*$"),
    "fewer than three words": re.compile(r"^(?!(?:un)?set [A-Z])\S+(?: \S+)?$"),
    "a separator at an end": re.compile(r"^[;,:&+=]|^- |[;,:/&+=-]$|^\s|\s$|  "),
    "nothing between separators": re.compile(r"[;,] *[;,]"),
    "a role of the rules": re.compile(
        r"\b(?:victims?|wrappers?|evidence|benign|ROOT)\b|\broot (?:card|device|rank(?! of))\b|\(root\)"
    ),
    "an issue, which belongs in sources": re.compile(r"\b[\w-]+ ?#\d+|\b(?:PR|issue) \d+"),
    "a reference without its object": re.compile(
        r"^(?:by|as|see|fix|its|same|right|other|compare over) (?:\S+ )?\S+$"
        r"|^(?:as|by) (?:the |that |its )?\w+(?: / \w+)*$"
    ),
    "capitals for emphasis": re.compile(r"\b(?:TRAP|NOTE|EVERY|ALL|ONLY|NOT|NEVER|END|VALUES|FIRST)\b"),
    "how the rules are written": re.compile(
        r"\b(?:regex|the pattern|must (?:never )?(?:win|be suppressed)|rules? below)\b"
    ),
    "an arrow for a word": re.compile(r"(?<!')->(?! \d+')|=>"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_what_a_person_reads_of_a_signature_is_a_whole_sentence(flaw: str) -> None:
    """Who reads it at night knows neither the rules of this program nor the threads that a text is taken from."""
    assert [f"{name}: {field}: {text}" for name, field, text in TEXTS if FLAWS[flaw].search(text)] == []


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("-", "left open"),
        ("prepare data before init; TORCH_NCCL_... ; fix rank 0", "left open"),
        ("same container?", "left open"),
        ("same env", "fewer than three words"),
        ("typo", "fewer than three words"),
        ("nvidia-smi", "fewer than three words"),
        ("wrapper: the first ERROR line names the reason", "a role of the rules"),
        ("another card hung first (then victim)", "a role of the rules"),
        ("type:SDMA = data path failed here (root)", "a role of the rules"),
        ("lengthen the timeout, fix the root rank", "a role of the rules"),
        ("a GPU hangs behind a barrier (returnn#1484: the peer sat in a launch)", "an issue, which belongs in sources"),
        ("driver older than CANN, vllm-ascend #13393", "an issue, which belongs in sources"),
        ("by that error", "a reference without its object"),
        ("as EI0012 / EI0002", "a reference without its object"),
        ("follow dest_ip -> the log of that rank", "an arrow for a word"),
        ("TRAP in the newest wording: these are values", "capitals for emphasis"),
        ("A verdict; the pattern is the verdict's own sentence.", "how the rules are written"),
        ("Printed first in the file: must never win.", "how the rules are written"),
        ("set the environment of the job;", "a separator at an end"),
        ("set the variables of the job; ; start it again", "nothing between separators"),
    ],
)
def test_a_riddle_is_found(text: str, flaw: str) -> None:
    assert flaw in {name for name, pattern in FLAWS.items() if pattern.search(text)}


def test_nothing_is_advised_twice_for_one_signature() -> None:
    for signature in SIGNATURES.values():
        for texts in (signature.causes, signature.confirm, signature.fix):
            assert len(set(texts)) == len(texts), signature.id


def test_pages_ask_for_the_detail_of_torch_with_its_limit() -> None:
    """It ends DistributedDataParallel over gloo with SIGSEGV in torch 2.13."""
    asked = {text for signature in SIGNATURES.values() for text in signature.confirm if "DEBUG=DETAIL" in text}
    assert asked == {NEEDED_CALLS[1]}


def test_no_pattern_selects_the_lines_of_every_log() -> None:
    """A literal of which digits and the letters a to f leave next to nothing, such as ".c:", selects every fifth."""
    from tests.diagnose.speed import lines

    split, shapes = split_block(b"".join(lines(1)))
    selected = Counter(
        candidate.id
        for shape in shapes
        for candidate in {signature.id: signature for signature, _ in MATCHER.candidates(shape)}.values()
        if candidate.id not in MATCHER.progress | MATCHER.benign
    )
    assert [name for name, count in selected.items() if count > len(split) / 50] == []
    assert {number.pattern.pattern[:2] for number in MATCHER.numbered.__self__.numbers} <= {b"07"}
