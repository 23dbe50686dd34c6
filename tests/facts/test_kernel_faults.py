"""The table of the kernel's messages: each row with its samples, and what stands around them."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from doctor.engine.catalog import bundled_folder
from doctor.engine.quantities import HOUR
from doctor.facts.kernel_faults import (
    KernelFaultRow,
    _phrases,
    compiled_pattern,
    fault_rows,
    fault_words,
    named_device,
    says,
    vendor_actions,
)
from doctor.facts.kernel_log import DIRE_TEXTS, ERROR_LEVEL, WARNING_LEVEL, KernelLog, LogLine
from doctor.facts.xid import _OF_WORDS, RESET, RESTART
from tests.facts.kernel_samples import SAMPLES as SAMPLES_OF
from tests.facts.kernel_samples import messages_of

ROWS = list(fault_rows().values())
REPORTED = [row for row in ROWS if row.check]
SAMPLES = [(row, sample) for row in ROWS for sample in messages_of(row.id)]


@pytest.mark.parametrize(("row", "sample"), SAMPLES, ids=lambda value: getattr(value, "id", ""))
def test_a_sample_is_matched_and_has_a_word_that_is_looked_for(row: KernelFaultRow, sample: str) -> None:
    assert compiled_pattern(row.pattern).search(sample)
    looked_for = fault_words([row.id]) if row.level > WARNING_LEVEL and not row.unlisted else fault_words(unlisted=True)
    assert any(word in f";{sample}" for word in looked_for) or row.level <= ERROR_LEVEL
    assert row.level <= WARNING_LEVEL or not row.unlisted or any(text in sample.lower() for text in DIRE_TEXTS)
    assert row.unlisted or any(word in sample for word in row.words)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_names_a_check_and_what_clears_it(row: KernelFaultRow) -> None:
    assert messages_of(row.id) and row.source
    assert not row.check or (bundled_folder("checks") / f"{row.check.replace('-', '_')}.py").is_file()
    if row.cleared_by:
        assert SAMPLES_OF[row.cleared_by] and not fault_rows()[row.cleared_by].check


def test_each_row_has_the_vendors_action_with_its_source_or_says_where_none_is_stated() -> None:
    assert Counter(name for action in set(vendor_actions().values()) for name in action.rows) == Counter(
        row.id for row in REPORTED
    )
    searched = {action.source.partition(":")[0] for action in vendor_actions().values() if action.does == "none stated"}
    assert searched == {"searched", "any message of a driver"} and all(a.source for a in vendor_actions().values())
    for name, _, action in _OF_WORDS:
        assert vendor_actions()[name].does == {RESET: "reset", RESTART: "restart"}.get(action, "configure")


def test_only_what_the_vendor_demands_keeps_a_job_from_starting() -> None:
    """Of the table alone; what NVIDIA's driver says is judged by what was done since, too."""
    demanded = {"amd-uncorrectable", "amd-poison", "amd-reset-failed", "amd-silent", "amd-init-failed", "amd-lost"}
    own = {row.id for row in REPORTED if row.demands and row.check != "gpu-xid-logged"}
    assert own == demanded | {"amd-bad-pages", "neuron-hardware"}
    assert {row.check for row in REPORTED if row.id in own} == {"amd-gpu-fault-logged", "kernel-error-logged"}


@pytest.mark.parametrize(
    ("row", "sample"), [pair for pair in SAMPLES if pair[0].check], ids=lambda v: getattr(v, "id", "")
)
def test_only_the_rows_of_its_check_find_a_sample(row: KernelFaultRow, sample: str) -> None:
    log = KernelLog(uptime=1e6, lines=(line_of(row, 5.0, sample),))
    finding = {other.check for other in ROWS if other.check and log.faults(other.check)}
    assert row.check in finding
    assert finding - {"network-link-flapping"} <= {row.check}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_pattern_takes_linear_time(row: KernelFaultRow) -> None:
    """A record of the log is 300 characters at most; hostile ones repeat what a pattern begins with."""
    hostile = [sample[: len(sample) // 2] * 12 for sample in SAMPLES_OF[row.id]] + [
        "a " * 150,
        "0000:00:00.0 " * 23,
        "((" * 150,
    ]
    began = time.process_time()
    for text in hostile:
        compiled_pattern(row.pattern).search(text[:300])
    assert time.process_time() - began < 0.2


@pytest.mark.parametrize("name", ["failing", "failed", "dire", "course", "harmless", "requests"])
def test_a_phrase_is_looked_for_behind_a_text_that_all_its_matches_have(name: str) -> None:
    texts = [text for row in ROWS for text in messages_of(row.id)]
    for text in (*texts, *map(str.upper, texts)):
        matches = [literal for literal, pattern in _phrases(name) if pattern.search(text)]
        assert all(literal in text.lower() for literal in matches)
        assert bool(matches) == says(name, text)


def test_words_are_short_and_few() -> None:
    """They are sent to every host."""
    patterns = (*fault_words(), *fault_words(unlisted=True))
    assert len(patterns) < 350
    assert all(3 <= len(word) < 40 for word in patterns)


BY_TABLE = [pair for pair in SAMPLES if pair[0].check and pair[0].check != "gpu-xid-logged"]
"""Xids have codes, and rules of their own for what was done since: tests/checks/test_gpu_xid_logged.py."""


def line_of(row: KernelFaultRow, age: float, text: str) -> LogLine:
    """A line at a level at which the row counts, of a function of a network card."""
    return LogLine(age, text, min(3, row.level), "0200")


def device_in(pattern: str, text: str) -> str:
    match = compiled_pattern(pattern).search(text)
    assert match
    return named_device(match)


@pytest.mark.parametrize(("row", "sample"), BY_TABLE, ids=lambda value: getattr(value, "id", ""))
def test_what_clears_a_fault(row: KernelFaultRow, sample: str) -> None:
    """Its age, a newer message about its own device, and a start of the host, after which the log is a new one."""

    def matches(*lines: tuple[float, str]) -> bool:
        log = KernelLog(uptime=1e6, lines=tuple(line_of(row, age, text) for age, text in lines))
        judged = {fault.row.id for fault in log.faults(row.check)}
        return bool(judged) if row.unlisted else row.id in judged

    oldest = row.hours * HOUR if row.hours else 1e6
    assert matches((oldest, sample)) and not matches((oldest + 1, sample)) and not matches()
    device = device_in(row.pattern, sample)
    if row.cleared_by and device:
        pattern = fault_rows()[row.cleared_by].pattern
        other = SAMPLES_OF[row.cleared_by][0]
        clearing = other.replace(device_in(pattern, other), device)
        match = compiled_pattern(pattern).search(clearing)
        assert matches((9.0, sample), (5.0, clearing)) != bool(match and named_device(match) == device)
        assert matches((9.0, clearing), (5.0, sample))
        assert matches((9.0, sample), (5.0, other)) or other == clearing
