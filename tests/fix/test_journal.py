"""What the journal knows after a crash, and what is never in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.fix.journal import JOURNAL_FILE, UNDO_FILE, Journal, UndoStep


def undo(run: str = "set 1", host: str = "a1") -> UndoStep:
    return UndoStep(0, host, True, "Set it", run=run)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def test_a_step_that_was_begun_is_taken_back_whether_it_ended_or_not(journal: Journal, tmp_path: Path) -> None:
    first = journal.record_step("a1", "mend", "Set it", "set 2", undo("set 1"))
    journal.record_end(first, "a1", 0, "done")
    journal.record_step("a1", "mend", "Set more", "set 3", undo("set 2"))
    assert [step.run for step in Journal(tmp_path).undo_steps()] == ["set 1", "set 2"]


def test_what_was_declined_undone_or_changes_nothing_is_not(journal: Journal) -> None:
    declined = journal.record_step("a1", "mend", "", "", undo("one"))
    journal.record_end(declined, "a1", None, "read-only", ran=False)
    journal.record_step("a1", "mend", "", "look", None)
    journal.record_step("a1", "mend", "", "", undo("two"))
    journal.record_step("a1", "mend", "", "", undo("three"))
    two, three = journal.undo_steps()
    journal.record_undo_end(two, 0, "")
    journal.record_undo_end(three, 1, "it failed")
    assert journal.undo_steps() == [three]


def test_numbers_go_on_where_they_were(journal: Journal, tmp_path: Path) -> None:
    journal.record_step("a1", "mend", "", "", undo())
    assert Journal(tmp_path).record_step("a1", "mend", "", "", undo()) == 2


@pytest.mark.parametrize("name", [JOURNAL_FILE, UNDO_FILE])
def test_a_line_that_a_crash_has_cut_counts_for_nothing(name: str, journal: Journal, tmp_path: Path) -> None:
    """The host was asked only when both lines were whole on the disk."""
    journal.record_step("a1", "mend", "", "", undo("one"))
    journal.record_step("a1", "mend", "", "", undo("two"))
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-9])
    again = Journal(tmp_path)
    assert [step.run for step in again.undo_steps()] == ["one"]
    again.record_step("a1", "mend", "", "", undo("three"))
    assert [step.run for step in again.undo_steps()] == ["one", "three"]


def test_they_are_for_the_owner_and_secrets_are_only_where_an_undo_needs_them(journal: Journal, tmp_path: Path) -> None:
    number = journal.record_step("a1", "mend", "password=sesame", "login --token sesame", undo("login --token sesame"))
    journal.record_end(number, "a1", 0, "secret: sesame\n\x1b[31m" + "x" * 9000)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    text = (tmp_path / JOURNAL_FILE).read_text()
    assert "sesame" not in text
    assert "\x1b" not in text
    assert len(json.loads(text.splitlines()[-1])["output"]) < 2100
    assert journal.undo_steps()[0].run == "login --token sesame"
