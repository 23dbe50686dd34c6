"""What a printed remedy leaves to its reader is marked: no bare capital letters stand for a value in a command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from doctor.engine import language
from doctor.engine.catalog import load_checks
from doctor.engine.check import Check
from doctor.engine.result import Finding, Outcome
from doctor.report.explain.examples import read_examples
from doctor.report.layout.advice import fill_advice
from doctor.report.layout.failures import failure_entry
from doctor.report.layout.fold import fold
from doctor.report.layout.page_model import DetailLevel
from tests.report import reports
from tests.translations import ROOT
from tests.value_texts import module_tree

CHECKS = {check.name: check for check in load_checks()}
ROWS = read_examples()
ALL = DetailLevel(100, 100, lists_every_check=True, names_checks=True)
"""Of each finding, every line of its remedy."""
CONSTANT_WORDS = {
    "ASCEND_RT_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    *("CLOCK", "ECC", "PERFORMANCE", "POWER", "ROW_REMAPPER", "TEMPERATURE"),  # sections of nvidia-smi -d
    *(
        "ACCEPT",
        "AER",
        "ALL",
        "CPU",
        "DEFAULT",
        "DRAIN",
        "DROP",
        "FSTYPE",
        "RESUME",
        "ECAP_ACS",
        "GBK",
        "GPU",
        "INPUT",
        "IPC_LOCK",
        "LINK_TYPE",
        "PREROUTING",
        "REDIRECT",
        "REJECT",
        "SBATCH",
        "SOURCE",
        "OK",
        "OPTIONS",
        "TARGET",
        "THAWED",
        "UTF",
    ),  # words of other programs
    *(
        "LD_PRELOAD",
        "LOCAL_RANK",
        "NCCL_IB_GID_IDX",
        "MASTER_ADDR",
        "RANK",
        "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_DISTRIBUTED_DEBUG",
        "DETAIL",
        "PYTHON",
        "TORCH",
    ),  # variables, by name and by its beginning
}
"""Words in capitals that are typed as they stand."""
CAPITALS = re.compile(r"(?<![\w$<{%/.-])(?<!unset )[A-Z][A-Z0-9_]+(?![\w=>}.*-])|(?<==)\.\.\.")

MARKED = re.compile(r"<[^<>`]*>")


def commands(check: Check) -> Iterator[str]:
    """The commands in the remedy of a check's example finding, as a report prints them."""
    row = ROWS[check.name]
    finding = Finding(row.template, hosts=("node001",), **row.values)
    outcome = Outcome(check.name, check.severity, check.area, check.claim, (finding,), ("node001", "node002"))
    report = reports.report(outcome, hosts=("node001", "node002"))
    folded = fold(report)
    assert folded.first_failure is not None
    entry = failure_entry(folded.first_failure, check, ALL, folded.fleet)
    labels = ""
    for label, text in (*entry.parts[0].details, *entry.details):
        labels = label or labels
        if labels == "fix":
            yield from re.findall(r"`([^`]+)`", text)


@pytest.mark.parametrize("lang", language.LANGUAGES)
def test_every_placeholder_of_a_command_is_filled_or_marked(lang: str) -> None:
    language.select(lang, {})
    try:
        results = {
            name: remaining
            for name, check in CHECKS.items()
            for command in commands(check)
            if (remaining := [word for word in CAPITALS.findall(command) if word not in CONSTANT_WORDS])
        }
    finally:
        language.select("en", {})
    assert results == {}


def test_the_commands_that_checks_give_as_values_mark_what_only_the_reader_knows() -> None:
    """Such a text is no part of the page, whose words in capitals are marked when it is shown."""
    names = {
        f"{path.name}: {command}"
        for path in (ROOT / "checks").glob("*.py")
        for text in values_of(module_tree(path))
        for command in re.findall(r"`([^`]+)`", text)
        if set(CAPITALS.findall(command)) - CONSTANT_WORDS
    }
    assert names == set()


def values_of(tree: ast.Module) -> Iterator[str]:
    """The strings of a check but its page."""
    pages = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pages:
            yield node.value


def test_what_is_marked_reads_as_words() -> None:
    marked = {mark for check in CHECKS.values() for command in commands(check) for mark in MARKED.findall(command)}
    assert {mark for mark in marked if not re.fullmatch(r"<[a-z][a-z0-9 ]{0,30}>", mark)} == set()
    assert "<address>" in marked


def test_a_value_that_an_older_report_lacks_is_no_brace_in_the_remedy() -> None:
    template = "On {host}: `tool -i {npu}`. {source} Then `{command}` brings it {state}."
    advice = fill_advice(template, {"host": "n1", "npu": "3"})
    assert advice == "On n1: `tool -i 3`. Then `<command>` brings it."
