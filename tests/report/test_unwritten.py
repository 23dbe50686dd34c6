"""A report that was asked for and could not be written: it is not lost, and the exit code is not 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.cli.app import application
from tests.node_files import run_of


def rendered(*arguments: str) -> int:
    """The exit code of `doctor report`."""
    argv = ["report", *arguments]
    with pytest.raises(SystemExit) as ended:
        application(argv)(argv)
    return int(ended.value.code or 0)


@pytest.fixture
def report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Path:
    """A healthy report."""
    import msgspec

    saved, report = tmp_path / "run.json", tmp_path / "report.json"
    saved.write_bytes(msgspec.json.encode(msgspec.structs.replace(run_of("n1"), checks=("host-unreachable",))))
    assert rendered(str(saved), "-q", "-f", f"json={report}") == 0
    capfd.readouterr()
    return report


@pytest.mark.parametrize("name", ["json", "md", "junit", "prometheus", "oneline", "html"])
def test_it_goes_to_stderr(report: Path, name: str, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    written = tmp_path / "written"
    assert rendered(str(report), "-q", "-f", f"{name}=/dev/full", "-f", f"json={written}") == 78
    err = capfd.readouterr().err.splitlines()
    assert err[0] == f"doctor: -f {name}=/dev/full: No space left on device; it was not written, and follows here"
    assert len(err) > 1
    assert json.loads(written.read_text())["exit"] == 78


def test_the_report_on_stdout_has_the_same_exit_code(report: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert rendered(str(report), "--json", "-f", "md=/dev/full") == 78
    assert json.loads(capfd.readouterr().out)["exit"] == 78


def test_events_that_are_cut_short(report: Path) -> None:
    assert rendered(str(report), "-q", "-f", "jsonl=/dev/full") == 78


def test_a_difference(report: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert rendered(str(report), "--diff", str(report), "-f", "json=/dev/full") == 78
    assert json.loads(capfd.readouterr().err.partition("\n")[2])
