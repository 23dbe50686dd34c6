"""Messages of real kernels, from the log's own form to the findings of every check that reads it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.evaluate import evaluate_check
from doctor.engine.fact import Output
from doctor.engine.result import WARNING
from doctor.facts import kernel_log
from doctor.facts.accelerators import OtherAccelerators
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.kernel_log import ERROR_LEVEL, KernelLog, read_kernel_log
from tests.checks.run_check import Facts
from tests.facts.kernel_answers import collected_logs
from tests.facts.kernel_reports import EMULATED, HEALTHY, LEVELS, SICK, SILENT, Report
from tests.facts.kernel_transcripts import LINK, LOGS, MESSAGES, Message

READERS = {
    check.name: check
    for check in load_checks()
    if KernelLog in check.facts and check.facts <= {KernelLog, GpuCards, GpuInventory, OtherAccelerators}
}


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KernelLog]:
    """By source: what the collector makes of a log with this message alone, printed three times in an hour."""
    return collected_logs(tmp_path_factory.mktemp("log"), {message.source: [message.text] for message in MESSAGES})


@pytest.fixture(scope="module")
def of_reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KernelLog]:
    """The same by text, of the reports."""
    texts = [*(report.text for report in SICK), *(text for _, text in HEALTHY), *(text for _, text, _ in SILENT)]
    return collected_logs(tmp_path_factory.mktemp("log"), {text: [text] for text in texts})


def reporting(log: KernelLog) -> set[str]:
    """The checks that find something in a log, on a host whose GPUs report nothing."""
    facts = Facts({"w1": [log]})
    findings = {name: evaluate_check(check, ("w1",), facts, {}) for name, check in READERS.items()}
    assert not any(outcome.crashed for outcome in findings.values())
    return {name for name, outcome in findings.items() if outcome.findings}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.source[-24:])
def test_a_message(collected: dict[str, KernelLog], message: Message) -> None:
    assert reporting(collected[message.source]) == message.checks


def test_the_figure(collected: dict[str, KernelLog], record_property: Any) -> None:
    """At least 60 distinct messages; nothing is accused that is no fault, and no fault passes."""
    assert len({message.text for message in MESSAGES}) == len(MESSAGES) >= 60
    wrong = [message for message in MESSAGES if reporting(collected[message.source]) - message.checks]
    missed = [message for message in MESSAGES if message.checks - reporting(collected[message.source])]
    figure = f"{len(MESSAGES)} messages, {len(wrong)} false findings, {len(missed)} missed"
    print(figure)
    record_property("figure", figure)
    assert not wrong and not missed, figure


def test_one_link_down_is_usual() -> None:
    for message in MESSAGES:
        if message.checks == LINK:
            log = KernelLog.read(_answer([[5.0, message.text]]))
            assert reporting(log) == set()


@pytest.mark.parametrize(
    ("source", "text", "named"), LOGS, ids=lambda value: value[-24:] if isinstance(value, str) else ""
)
def test_a_passage_is_told_once_and_ends_with_its_last_word(source: str, text: str, named: tuple[str, ...]) -> None:
    log = KernelLog.read(_answer([[9 - 0.1 * number, line] for number, line in enumerate(text.splitlines())]))
    facts = Facts({"w1": [log]})
    outcomes = [(check, evaluate_check(check, ("w1",), facts, {})) for check in READERS.values()]
    told = [
        ("" if finding.is_warning or check.severity is WARNING else "!") + (finding.values["device"] or "")
        for check, outcome in outcomes
        for finding in outcome.findings
    ]
    assert sorted(told) == sorted(named), source


def _answer(lines: list[list[Any]]) -> Any:
    from doctor.engine.fact import ProbeAnswer

    return ProbeAnswer({"": Output(out=json.dumps({"uptime": 9.0, "lines": lines}))})


@pytest.mark.parametrize("report", SICK, ids=lambda report: f"{report.check}-{report.source}")
def test_a_reported_fault_is_found_on_its_device(report: Report, of_reports: dict[str, KernelLog]) -> None:
    log = of_reports[report.text]
    assert reporting(log) == {report.check}
    outcome = evaluate_check(READERS[report.check], ("w1",), Facts({"w1": [log]}), {})
    (finding,) = outcome.findings
    assert report.device in str(finding) or report.device in str(finding.values)


@pytest.mark.parametrize(("source", "text"), HEALTHY)
def test_a_message_of_a_sound_host_is_no_fault(source: str, text: str, of_reports: dict[str, KernelLog]) -> None:
    assert reporting(of_reports[text]) == set(), source


@pytest.mark.parametrize(("source", "text", "reason"), SILENT)
def test_a_line_that_stays_silent_has_a_reason(
    source: str, text: str, reason: str, of_reports: dict[str, KernelLog]
) -> None:
    assert reporting(of_reports[text]) == set() and source and reason


def test_what_no_host_printed_says_so() -> None:
    """A source is a page or the id of a file; a driver's own file has printed nothing."""
    for source in (*(report.source for report in SICK), *(source for source, _ in HEALTHY)):
        assert source.startswith(EMULATED) == (".c" in source or source.startswith(("emulated", "broadcom/")))


def test_a_level_is_of_a_message_here_and_below_errors() -> None:
    told = {report.text for report in SICK} | {text for _, text in HEALTHY} | {text for _, text, _ in SILENT}
    assert LEVELS.keys() <= told | {message.text for message in MESSAGES}
    assert all(ERROR_LEVEL < level <= 7 for level in LEVELS.values())


def test_the_host_itself_says_the_class_of_a_function_and_which_modules_were_loaded_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that is gone has no class; a module that was loaded at a second try is no fault."""
    real = kernel_log.read_text
    state = {
        "/sys/bus/pci/devices/0000:0f:00.0/class": "0x120000\n",
        "/sys/bus/pci/devices/0000:10:00.0/class": "",
        "/sys/module/nvidia_peermem/initstate": "live\n",
        "/sys/module/drv_vascend/initstate": "",
    }
    monkeypatch.setattr(kernel_log, "read_text", lambda path: state[path] if path in state else real(path))
    opened, file = os.open, tmp_path / "kmsg"
    loaded = "nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -22)"
    texts = [
        "metax 0000:0f:00.0: stays in 3",
        "metax [0000:10:00.0]: stays in 3",
        "a sentence: without a function",
        "drv_vascend: Unknown symbol mdev_register_parent (err -2)",
    ]
    file.write_text("".join(f"3,{n},{n},-;{text}\n" for n, text in enumerate([*texts, loaded])))
    monkeypatch.setattr(os, "open", lambda path, *mode: opened(file if path == "/dev/kmsg" else path, *mode))
    lines = read_kernel_log({})["lines"]
    assert isinstance(lines, list)
    assert [(text, kind) for _, text, _, kind in lines] == list(zip(texts, ("1200", "", "", ""), strict=True))
