"""No finding is left without a word about its mending."""

from __future__ import annotations

from doctor.engine.catalog import load_checks
from doctor.remedy.catalog import load_playbooks
from doctor.remedy.playbook import Playbook

BOOKS = load_playbooks()


def treated(books: list[Playbook]) -> set[str]:
    return {name for one in books for name in one.treats}


def test_every_check_has_a_playbook() -> None:
    assert {one.name for one in load_checks()} == treated(BOOKS)


def test_and_one_that_need_not_be_named() -> None:
    """What is only done when it is named stands beside what hands can do, or look at first."""
    assert treated([one for one in BOOKS if not one.explicit]) == treated(BOOKS)


def test_what_ends_or_removes_or_opens_must_be_named() -> None:
    for one in BOOKS:
        ends = any(
            word in step.run for step in one.steps for word in ("kill -", "rm --", "ipcrm", "disable", "delete table")
        )
        assert one.explicit or not ends, one.name


def test_what_cannot_be_taken_back_is_said_beforehand() -> None:
    for one in BOOKS:
        final = any("exit 1" in step.undo and ">&2" in step.undo for step in one.steps)
        assert one.note or not final, one.name
