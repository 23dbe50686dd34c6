"""A report in Chinese says the same of a run that was just made, of the run saved, and of its JSON document saved."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doctor.diagnose.render.diagnosis_report import diagnosis_report, read_diagnosis
from doctor.engine import language, texts
from doctor.engine.catalog import load_checks
from doctor.engine.fact import Output, Visit
from doctor.engine.record import HostRecord, Run, load_run
from doctor.engine.result import Report
from doctor.engine.run_writing import redact_run
from doctor.engine.texts import filled, joined, read_table, table_of
from doctor.report.diff.load import decode
from doctor.report.formats.json import encode
from doctor.report.formats.registry import RenderContext, render
from doctor.session.replay import replay
from doctor.smoke.model import Failure
from tests import preloaded
from tests.checks.smoke import ran
from tests.diagnose.test_command import LOGS
from tests.diagnose.test_command import run as diagnose
from tests.test_chinese_output import CHECKS, REPORTS, english_words, one_finding_of_each
from tests.test_saved_run import valid_run

CHINESE = re.compile("[\u4e00-\u9fff]")
FAULTS = {
    "dead": {"culprit_ranks": (2,), "text": lambda: filled("signal {0}", 9)},
    "blocked": {
        "culprit_ranks": (1,),
        "states": lambda: {1: filled("{0}, sleeping in {1}", filled("in {0} for {1} s", "compute", 2), "nfs_wait")},
    },
    "never-joined": {"culprit_ranks": (3,), "text": lambda: filled("{0} port {1} does not answer", "w1", 29500)},
    "left": {"culprit_ranks": (0,), "text": lambda: filled("exit status {0}", 3)},
    "silent": {"culprit_ranks": (2, 3), "text": lambda: filled("no data from {0} for {1} s", "w2", 8)},
}
"""Failures of a smoke run, with the texts that its ranks and hosts send."""


@pytest.fixture(autouse=True)
def chinese(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(texts, "_templates", {})
    language.select("zh", {})
    yield
    language.select("en", {})


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another process, which has filled no text yet."""
    monkeypatch.setattr(texts, "_templates", {})


def text_of(report: Report, form: str = "plain") -> str:
    return render(form, report, RenderContext(10, CHECKS))


def from_document(report: Report, monkeypatch: pytest.MonkeyPatch) -> Report:
    """The report as its JSON document brings it to another process."""
    with language.english():
        data = encode(report, 10, CHECKS)
    forget(monkeypatch)
    return decode(data, "report.json")


@pytest.mark.parametrize("form", ["plain", "md", "human"])
@pytest.mark.parametrize("name", [*REPORTS, "examples"])
def test_a_saved_document_reads_as_the_report_itself(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fleets with many faults, and of one finding of each check."""
    report = REPORTS.get(name, one_finding_of_each)()
    now = text_of(report, form)
    assert text_of(from_document(report, monkeypatch), form) == now
    assert CHINESE.search(now)


def faulty_run(kind: str) -> Run:
    """A run with a smoke failure, with hosts that could not be reached, and with facts that could not be read."""
    given: dict[str, Any] = FAULTS[kind]
    fields = {name: value() if callable(value) else value for name, value in given.items()}
    run = load_run(json.dumps(valid_run()).encode(), "x")
    failure = Failure(kind, **fields)  # type: ignore[arg-type]
    smoke = msgspec.to_builtins(ran(4, 2, failure, ended="trouble"), str_keys=True)
    lost = filled("no answer from {0} within {1}", filled("{0} port {1}", "10.0.0.3", 22), "10 s")
    absent = Output("absent", err=filled("{0} is not installed", "npu-smi"))
    refused = Output("error", err=filled("{0}: {1}", "sudo -n", filled("ended with status {0}", 1)))
    hosts = {
        "w1": HostRecord(run.hosts["w1"].visit, {"NpuInventory": {"": absent}, "KernelLog": {"": refused}}),
        "w2": HostRecord(Visit("dropped", lost)),
    }
    notes = (filled("{0} more such lines", 3), joined("; ", (filled("no {0}", "link"), lost)))
    return msgspec.structs.replace(run, hosts=hosts, smoke=smoke, notes=notes, watch={}, training={}, checks=())


@pytest.mark.parametrize("kind", FAULTS)
def test_a_saved_run_and_its_document_read_as_the_run_itself(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checks, run = load_checks(), faulty_run(kind)
    report = replay(run, checks)
    now = text_of(report)
    data = msgspec.json.encode(redact_run(run))
    document = from_document(report, monkeypatch)
    assert text_of(document) == now
    forget(monkeypatch)
    assert text_of(replay(load_run(data, "run.json"), checks)) == now
    assert english_words(now) == []


def test_secrets_and_pseudonyms_change_values_and_leave_the_sentence_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    run = faulty_run("dead")
    text = filled("no answer from {0} within {1}", "https://me:pw12345@w9.example.com/", "10 s")
    run = msgspec.structs.replace(run, notes=(text,))
    data = msgspec.json.encode(redact_run(run))
    assert b"pw12345" not in data
    forget(monkeypatch)
    (note,) = load_run(data, "run.json").notes
    assert "[hidden]" in note and CHINESE.search(language.localized_filled(note))


def test_a_document_without_a_table_says_that_its_sentences_stay_english(monkeypatch: pytest.MonkeyPatch) -> None:
    run = faulty_run("dead")
    saved = json.loads(msgspec.json.encode(redact_run(run)))
    saved.update(schema="doctor.run/3")
    del saved["texts"]
    forget(monkeypatch)
    loaded = load_run(json.dumps(saved).encode(), "run.json")
    assert "doctor.run/3" in language.localized_filled(loaded.notes[-1])
    assert language.localized_filled(run.notes[0]) == run.notes[0]


HOSTILE: list[Any] = [
    {"{0}" * 3000: [["x" * 8000] * 3000]},
    {"no {0} on {1}": [["one value"], ["a", "b", "c"], []]},
    {"{0}": [["{0}{0}{0}"]], "{1}{0}": [["", " "]]},
    {"{0.__class__} {0!r:>999999999}": [["x"]]},
    {"x" * 9000 + "{0}": [["y"]]},
    {"": [[]], "no placeholder": [[]]},
]


@pytest.mark.parametrize("table", HOSTILE)
def test_a_table_of_a_stranger_takes_no_room_and_gives_no_text_another_meaning(table: dict[str, Any]) -> None:
    mine = filled("{0} is not installed", "nft")
    read_table(table)
    read_table({"nft is {0}": [["not installed"]]})
    assert language.localized_filled(mine) == "未安装 nft"
    assert all(len(text) <= texts.MAX_CHARS for text in texts._templates)
    for text in list(texts._templates):
        assert len(language.localized_filled(text)) < 10 * texts.MAX_CHARS


def test_a_table_has_what_a_document_needs_and_no_more() -> None:
    inner = filled("no {0}", "link")
    filled("never {0}", "shown")
    outer = filled("{0}: {1}", "w1", inner)
    assert table_of([outer, outer, "plain"]) == {"no {0}": [["link"]], "{0}: {1}": [["w1", "no link"]]}


def test_a_table_that_is_none_is_a_document_that_is_none() -> None:
    saved = valid_run()
    for wrong in ([], {"no {0}": "x"}, {"no {0}": [[1]]}, {"no {0}": {"a": 1}}):
        with pytest.raises(Exception, match="texts"):
            load_run(json.dumps({**saved, "texts": wrong}).encode(), "run.json")


def test_a_real_run_reads_alike_in_chinese_whether_live_or_saved(tmp_path: Path) -> None:
    """The whole way: collector, its table, run, document."""

    def doctor(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "doctor", *words, "-f", "plain"]
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "DOCTOR_LANG": "zh", "PYTHONIOENCODING": "utf-8"}
        return preloaded.run(argv, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    select = ("--select", "hccl-port-taken", "--select", "npu-missing", "--select", "listen-queue-short")
    live = doctor("check", *select, "-v", "--save", "run.json", "-f", "json=report.json")
    assert live.returncode in (0, 10, 11, 12), live.stderr
    assert json.loads((tmp_path / "run.json").read_text())["texts"]
    for saved in ("run.json", "report.json"):
        again = [line for line in doctor("report", saved, "-v").stdout.splitlines() if "未评估" not in line]
        assert again == live.stdout.splitlines(), saved


@pytest.mark.parametrize("name", ["hccl_ei0015", "hccl_ei0013", "hccl_heartbeat_lost"])
def test_a_saved_diagnosis_reads_alike_where_its_texts_are_known_or_come_from_its_table(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [str(path) for path in sorted(LOGS.glob(f"{name}*.log"))]
    with language.english():
        data = json.loads(diagnose(*logs, "-f", "json").stdout)
        unfilled = text_of(diagnosis_report(read_diagnosis({**data, "texts": {}}, name)))
    now = text_of(diagnosis_report(read_diagnosis({**data, "texts": {}}, name)))
    forget(monkeypatch)
    assert text_of(diagnosis_report(read_diagnosis(data, name))) == now != unfilled
    forget(monkeypatch)
    assert text_of(diagnosis_report(read_diagnosis({**data, "texts": {}}, name))) != now
