"""A diagnosis as one HTML file."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from doctor.diagnose.diagnosis import GROUNDS
from tests.diagnose.test_command import LOGS, run
from tests.report.pictured_reports import EVIL
from tests.report.test_web_report import Outline


@pytest.mark.parametrize("name", ["hccl_ei0015", "afd_socket_p2p", "afd_notify_deadlock", "ms_hbm", "hccl_ei0013"])
def test_it_has_all_that_the_document_has(name: str) -> None:
    logs = [str(path) for path in sorted(LOGS.glob(f"{name}*.log"))]
    document = json.loads(run(*logs, "--json").stdout)
    result = run(*logs, "-f", "html")
    outline = Outline(result.stdout)
    assert outline.faults == [] and outline.open == []
    assert result.exit_code == document["exit_code"]
    text = outline.text.replace("`", "").replace(" ;", ";")  # between an element and what follows it
    for cause in document["causes"]:
        evidence = [item["text"] for item in cause["evidence"]]
        texts = [cause["summary"], cause["title"], cause["signature"], GROUNDS[cause["rule"]], *evidence, *cause["fix"]]
        for entry in (*texts, *cause["likely_causes"], *cause["confirm"], *cause["checks"]):
            assert " ".join(entry.replace("`", "").split())[:1000] in text
    for item in (document["undecidable"] or {"reported": []})["reported"]:
        for entry in (item["title"], *item["likely_causes"], *item["confirm"], *item["fix"], *item["checks"]):
            assert " ".join(entry.replace("`", "").split()) in text
    assert all(item["title"] in text for item in document["waiting"])
    assert all(file["name"] in text for file in document["files"])


def test_a_file_is_written_for_its_owner_and_the_verdict_stays_on_stdout(tmp_path: Path) -> None:
    path = tmp_path / "diagnosis.html"
    result = run(str(LOGS / "afd_notify_chain_to_local.dev*.log"), "-f", f"html={path}")
    assert result.exit_code == 10 and "rank 2" in result.stdout.splitlines()[0]
    assert path.read_text().startswith("<!doctype html>")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("word", "code"), [("html=", 2), ("xml=x", 2), ("=x", 2), ("html=/no/such/folder/x", 78)])
def test_a_file_that_cannot_be(word: str, code: int) -> None:
    result = run(str(LOGS / "ms_hbm*.log"), "-f", word)
    assert getattr(result.exception, "exit_code", result.exit_code) == code


def test_a_log_is_text_alone(tmp_path: Path) -> None:
    lines = f"ValueError: {EVIL}\n[rank2]: RuntimeError: {EVIL}\n"
    (tmp_path / "<img src=x onerror=alert(1)>.log").write_bytes(lines.encode("utf-8", "backslashreplace"))
    page = run(str(tmp_path), "-f", "html").stdout
    outline = Outline(page)
    assert outline.faults == [] and page.count("<script") == 2
    assert "<script>window.broken=1</script>" in outline.text
    assert not [letter for letter in page if not letter.isprintable() and letter != "\n"]


def test_pseudonyms_leave_the_style_and_the_script_as_they_are() -> None:
    logs = str(LOGS / "hccl_heartbeat_lost.log")
    outline, redacted = (Outline(run(logs, "-f", "html", *more).stdout) for more in ((), ("--redact",)))
    assert outline.contents == redacted.contents
    assert "10.136.181.175" not in redacted.text
