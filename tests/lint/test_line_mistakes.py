"""Each planted mistake is found on its line, and the same script without it has no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.engine.result import Severity
from tests.lint.launch_report import lint_report, naming, write_files
from tests.lint.line_mistakes import MISTAKES, NOT_FOUND, SOUND, wrong_line


@pytest.mark.parametrize("name", [name for name in MISTAKES if name not in NOT_FOUND])
def test_a_mistake_is_found_on_its_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = MISTAKES[name]
    write_files(tmp_path, mistake)
    monkeypatch.chdir(tmp_path)
    report = lint_report(["run.sh"])
    checks = mistake.checks.split()
    assert any(naming(one, wrong_line(mistake)) for one in report.outcomes if one.check in checks), report.outcomes


def test_most_mistakes_are_found() -> None:
    assert len(MISTAKES) - len(NOT_FOUND) >= 45
    assert MISTAKES.keys() >= NOT_FOUND


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_script_has_no_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, SOUND[name])
    monkeypatch.chdir(tmp_path)
    errors = [
        str(finding)
        for outcome in lint_report(["run.sh"]).outcomes
        for finding in outcome.findings
        if outcome.severity_of(finding) is Severity.ERROR
    ]
    assert errors == []
