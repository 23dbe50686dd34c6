"""The file of verdicts by which two states of the code are compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import verdicts


def test_the_same_code_gives_the_same_verdicts() -> None:
    first, second = dict(verdicts.network_verdicts()), dict(verdicts.network_verdicts())
    assert first == second and len(first) > 300 and all(first.values())


def test_a_case_with_another_verdict_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("log_verdicts", "run_verdicts", "network_verdicts"):
        monkeypatch.setattr(verdicts, name, lambda name=name: iter([(name, "as before")]))
    older, newer = tmp_path / "older", tmp_path / "newer"
    older.write_text(json.dumps({"log_verdicts": "as before", "run_verdicts": "another", "gone": ""}))
    monkeypatch.setattr("sys.argv", ["verdicts", str(newer), str(older)])
    assert verdicts.main() == 1
    assert capsys.readouterr().out == "run_verdicts\n  - another\n  + as before\n3 cases, 2 only in one, 1 differ\n"
    monkeypatch.setattr("sys.argv", ["verdicts", str(older), str(newer)])
    assert verdicts.main() == 0
