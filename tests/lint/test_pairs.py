"""Each planted mistake is told, and its healthy twin has no error; what both have alike is not the mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.engine.errors import InputError
from doctor.engine.result import Severity
from doctor.session.training_files import read_training
from tests.lint.launch_report import lint_report
from tests.lint.pairs import PAIRS, UNKNOWN, side


def told(name: str, folder: Path, *, is_good: bool) -> tuple[set[str], set[str], bool]:
    """The findings of one side, its errors, and whether something is not decided."""
    folder.mkdir()
    for path, text in PAIRS[name].items():
        (folder / path).write_text(side(text, is_good=is_good))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        outcomes = lint_report(["run.sh"]).outcomes
    pairs = [(one.severity_of(finding), str(finding)) for one in outcomes for finding in one.findings]
    errors = {text for severity, text in pairs if severity is Severity.ERROR}
    return {text for _, text in pairs}, errors, any(one.unknown or one.crashed for one in outcomes)


@pytest.mark.parametrize("name", PAIRS)
def test_a_mistake_is_told_and_its_twin_has_no_error(name: str, tmp_path: Path) -> None:
    bad, _, is_open = told(name, tmp_path / "bad", is_good=False)
    good, errors, _ = told(name, tmp_path / "good", is_good=True)
    assert errors == set()
    assert bool(bad - good) == (name not in UNKNOWN), bad
    assert is_open or name not in UNKNOWN


def test_most_are_told() -> None:
    assert PAIRS.keys() > UNKNOWN
    assert 100 * len(PAIRS.keys() - UNKNOWN) >= 85 * len(PAIRS)


def test_a_script_without_a_launch_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text for a login that starts no ranks."""
    (tmp_path / "run.sh").write_text("ssh n1 <<EOF\nuptime\nEOF\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        read_training(["run.sh"], [], {})
