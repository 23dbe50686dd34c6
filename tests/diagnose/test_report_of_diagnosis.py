"""A diagnosis as an ordinary report: every format, waivers, history, comparison."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from junitparser import Failure, JUnitXml
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from doctor.cli.app import application
from doctor.diagnose.diagnosis import GROUNDS, Diagnosis, EarlierAttempt
from doctor.diagnose.render import views
from doctor.diagnose.render.diagnosis_report import read_diagnosis
from doctor.diagnose.render.document import SignatureCatalog
from doctor.diagnose.run import diagnose_found
from doctor.diagnose.signature import load_signatures
from doctor.engine.errors import InputError
from doctor.report.formats.registry import FORMATS, RenderContext
from tests.diagnose.test_command import LOGS, run

CHAIN = [str(path) for path in sorted(LOGS.glob("afd_notify_chain_to_local.dev*.log"))]
NAME = "hccl-own-task-stuck"
HOST = "10.136.181.175"


def report(*arguments: str, text: str | None = None):
    return CliRunner().invoke(application(["report"]), ["report", *arguments], input=text)


def waivers(folder: Path, check: str = NAME) -> str:
    path = folder / "doctor.toml"
    path.write_text(f'[[waive]]\ncheck = "{check}"\nreason = "being repaired"\nuntil = 2999-01-01\n')
    return str(path)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_shows_it_with_the_same_exit_code(name: str) -> None:
    result = run(*CHAIN, "-f", name)
    assert result.exit_code == 10 and result.stdout.endswith("\n")
    assert NAME in result.stdout


def test_junit_has_the_cause_with_confidence_evidence_why_and_remedy() -> None:
    document = json.loads(run(*CHAIN, "--json").stdout)
    (cause,) = document["causes"]
    ((case,),) = JUnitXml.fromstring(run(*CHAIN, "-f", "junit").stdout.encode())
    (failure,) = case.result
    assert isinstance(failure, Failure) and case.name == NAME and failure.type == "error"
    assert failure.text.startswith(f"error: {HOST}: {cause['summary']}")
    assert f"  confidence: {cause['confidence']}: {GROUNDS[cause['rule']]}" in failure.text
    for item in cause["evidence"]:
        assert f"{item['file']}:{item['line']} {item['time']}: {item['text']}" in failure.text
    for text in (*cause["likely_causes"], *cause["fix"], *cause["confirm"], *cause["playbooks"], *cause["checks"]):
        assert text in failure.text


def test_prometheus_has_the_cause_and_its_host() -> None:
    families = text_string_to_metric_families(run(*CHAIN, "-f", "prometheus").stdout)
    samples = {sample.name: sample for family in families for sample in family.samples}
    assert samples["doctor_host_check_findings"].labels == {"check": NAME, "host": HOST, "severity": "error"}
    assert samples["doctor_run_exit_code"].value == 10
    assert samples["doctor_check_advice"].labels["why"].startswith("a copy or a reduction on this NPU")


def test_several_formats_at_once(tmp_path: Path) -> None:
    junit, page = tmp_path / "junit.xml", tmp_path / "page.html"
    result = run(*CHAIN, "-f", f"junit={junit}", "-f", f"html={page}", "-f", "oneline")
    assert result.stdout.startswith(f"doctor diagnose: FAIL nodes=0/1 bad={HOST} why={NAME}:{HOST} exit=10 ")
    assert NAME in junit.read_text() and page.read_text().startswith("<!doctype html>")
    quiet = run(*CHAIN, "-q", "-f", f"junit={junit}")
    assert (quiet.exit_code, quiet.stdout) == (10, "")


@pytest.mark.parametrize(
    ("text", "code", "state"),
    [
        ("step 1\ntraining finished\n", 0, "passed"),
        ("step 1\nstep 2\n", 12, "unknown"),
        ("", 78, "skipped"),
    ],
)
def test_a_run_without_a_cause(text: str, code: int, state: str, tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_text(text)
    result = run(str(tmp_path), "-f", "prometheus")
    assert result.exit_code == code
    assert f'check="run-ended-well",severity="error",status="{state}"' in result.stdout


def test_a_waived_cause_is_no_failure_and_is_still_told(tmp_path: Path) -> None:
    result = run(*CHAIN, "--config", waivers(tmp_path))
    assert result.exit_code == 0
    assert "rank 2" in result.stdout.splitlines()[0]
    assert f"{NAME}: waived until 2999-01-01: being repaired" in " ".join(result.stdout.split())
    (cause,) = json.loads(run(*CHAIN, "--config", waivers(tmp_path), "--json").stdout)["causes"]
    assert cause["signature"] == NAME
    assert "waived until 2999-01-01" in run(*CHAIN, "--config", waivers(tmp_path), "-f", "junit").stdout


def test_a_waiver_of_no_signature_is_refused(tmp_path: Path) -> None:
    refused = run(*CHAIN, "--config", waivers(tmp_path, "hccl-own-task-stuc"))
    assert refused.exception.exit_code == 78 and NAME in str(refused.exception)


def test_skipped_checks_skip_no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCTOR_SKIP", "all")
    assert run(*CHAIN).exit_code == 10


@pytest.mark.parametrize("name", FORMATS)
def test_a_saved_diagnosis_is_shown_again_in_every_format(name: str, tmp_path: Path) -> None:
    saved = tmp_path / "diagnosis.json"
    saved.write_text(run(*CHAIN, "--json").stdout)
    result = report(str(saved), "-f", name)
    assert result.exit_code == 10 and NAME in result.stdout
    if name in ("plain", "md", "html"):
        assert "the wait chain of 2 ranks ends at rank 2" in result.stdout
        assert "a copy or a reduction on this NPU" in result.stdout


def test_two_diagnoses_are_compared(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(run(*CHAIN, "--json").stdout)
    new.write_text(run(str(LOGS / "ms_hbm_occupied.log"), "--json").stdout)
    text = report(str(new), "--diff", str(old), "-f", "plain").stdout
    assert NAME in text and json.loads(new.read_text())["causes"][0]["signature"] in text
    again = json.loads(report(str(old), "--diff", str(old), "--json").stdout)
    assert [change["kind"] for change in again["changes"]] == ["stayed"]


@pytest.mark.parametrize(
    "change", [{"causes": 3}, {"exit_code": "x"}, {"waiting": [{}]}, {"schema": "doctor.diagnosis/1", "files": None}]
)
def test_a_document_that_is_none_is_refused_in_one_line(change: dict[str, object]) -> None:
    document = {**json.loads(run(*CHAIN, "--json").stdout), **change}
    with pytest.raises(InputError, match=r"x\.json: not a diagnosis: "):
        read_diagnosis(document, "x.json")


def test_a_signature_that_is_no_name_is_refused() -> None:
    document = json.loads(run(*CHAIN, "--json").stdout)
    document["causes"][0]["signature"] = "\x1b[31m"
    with pytest.raises(InputError, match="not a diagnosis"):
        read_diagnosis(document, "x.json")


def test_a_waived_cause_is_waived_in_its_document_too(tmp_path: Path) -> None:
    waived = run(*CHAIN, "--json", "--config", waivers(tmp_path))
    document = json.loads(waived.stdout)
    assert waived.exit_code == document["exit_code"] == 0
    assert [(item["signature"], item["until"]) for item in document["waived"]] == [(NAME, "2999-01-01")]
    shown = report("-", "-f", "plain", text=waived.stdout)
    assert shown.exit_code == 0 and "being repaired" in shown.stdout


def test_settings_of_today_change_no_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = run(*CHAIN, "--json").stdout
    assert report("-", "--config", waivers(tmp_path), text=failed).exit_code == 10
    monkeypatch.setenv("DOCTOR_SKIP", "disk-full")
    assert report("-", text=failed).exit_code == 10


def test_hosts_with_logs_are_counted_and_only_the_named_one_is_not_healthy() -> None:
    families = text_string_to_metric_families(run(*CHAIN, "-f", "prometheus").stdout)
    healthy = {
        sample.labels["host"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "doctor_host_healthy"
    }
    assert healthy.pop(HOST) == 0 and set(healthy.values()) <= {1.0}


def test_markdown_has_no_section_without_a_command() -> None:
    """Logs that show neither a failure nor a good end: there is no page and no check."""
    text = run("-", "-f", "md", text=b"step 1 loss 0.5\n").stdout
    assert text.strip() and "To check again" not in text


def test_markdown_offers_no_check_that_would_not_read_the_logs() -> None:
    text = run(*CHAIN, "-f", "md").stdout
    assert f"doctor explain {NAME}" in text and "\ndoctor check" not in text.partition("To check again")[2]


@pytest.mark.parametrize("name", ["json", "jsonl", "human", "plain"])
def test_a_report_that_takes_longer_than_the_budget_has_the_first_cause(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here an earlier attempt takes a minute."""

    def slow(shown: Callable[..., Any]) -> Callable[..., Any]:
        def show(diagnosis: Diagnosis, *arguments: Any, **options: Any) -> Any:
            end = time.monotonic() + 60 * len(diagnosis.attempts)
            while time.monotonic() < end:
                time.sleep(0.01)
            return shown(diagnosis, *arguments, **options)

        return show

    diagnosis = diagnose_found(CHAIN, load_signatures(()))
    diagnosis = msgspec.structs.replace(diagnosis, attempts=(EarlierAttempt(diagnosis, is_job=False, same=True),))
    for function in ("document", "render_text"):
        monkeypatch.setattr(views, function, slow(getattr(views, function)))
    monkeypatch.setattr(views, "LEAST_SECONDS", 0.2)
    shown = views.DiagnosisViews(diagnosis, SignatureCatalog(load_signatures(()), {}), until=time.monotonic())
    text = shown.by_format()[name](RenderContext(10, {}))
    assert diagnosis.causes[0].signature in text
    why = "as the time limit of --budget had passed: further causes (0), earlier attempts (1)"
    assert why in " ".join(text.split())


def test_a_page_marks_commands_in_what_confirms_a_cause_and_not_its_sentences() -> None:
    """What a page takes for code has a button that copies it."""
    page = run(str(LOGS / "mpirun_three_times.log"), "-f", "html").stdout
    assert "<code>dmesg -T</code> on the host names the process that was killed or crashed" in page
    blocks = [block.partition("</pre>")[0] for block in page.split("<pre")[1:]]
    assert blocks and not [block for block in blocks if "`" in block]
