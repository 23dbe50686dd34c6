"""No finding is left without a word about its mending."""

from __future__ import annotations

from doctor.engine.catalog import load_checks
from doctor.remedy.catalog import load_playbooks
from doctor.remedy.playbook import Playbook

BOOKS = load_playbooks()


def treated(books: list[Playbook]) -> set[str]:
    return {name for playbook in books for name in playbook.treats}


def test_every_check_has_a_playbook() -> None:
    assert {check.name for check in load_checks()} == treated(BOOKS)


def test_and_one_that_need_not_be_named() -> None:
    """What is only done when it is named stands beside what hands can do, or look at first."""
    assert treated([playbook for playbook in BOOKS if not playbook.explicit]) == treated(BOOKS)


def test_what_ends_or_removes_or_opens_must_be_named() -> None:
    for playbook in BOOKS:
        ends = any(
            word in step.run
            for step in playbook.steps
            for word in ("kill -", "rm --", "ipcrm", "disable", "delete table")
        )
        assert playbook.explicit or not ends, playbook.name


def test_what_cannot_be_taken_back_is_said_beforehand() -> None:
    for playbook in BOOKS:
        final = any("exit 1" in step.undo and ">&2" in step.undo for step in playbook.steps)
        assert playbook.note or not final, playbook.name
