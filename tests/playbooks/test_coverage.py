"""No finding is left without a word about its mending."""

from __future__ import annotations

from doctor.engine.catalog import load_checks
from doctor.facts.boot import FORMS
from doctor.remedy.catalog import load_playbooks
from doctor.remedy.playbook import Playbook

BOOKS = load_playbooks()


def treated(books: list[Playbook]) -> set[str]:
    return {name for playbook in books for name in playbook.treats}


def test_every_check_has_a_playbook() -> None:
    checks = {check.name for check in load_checks()}
    assert checks - treated(BOOKS) == set(), "name it in `treats` of a playbook in playbooks/, or write one"
    assert treated(BOOKS) - checks == set(), "a playbook's `treats` names a check that is not in checks/"


def test_what_a_playbook_writes_for_the_next_start_is_read_back_for_it() -> None:
    """Whether a fix survives a reboot: of hccn.conf, which holds many settings, the checks of its settings tell."""
    for playbook in BOOKS:
        if any(step.file and step.file != "/etc/hccn.conf" for step in playbook.steps):
            absent = set(playbook.treats) - set(FORMS)
            assert absent == set(), f"{playbook.name} writes a file: FORMS of doctor/facts/boot/__init__.py needs a row"


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
