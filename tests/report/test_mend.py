"""The line that names the command which plans the mending."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.remedy.fixable import fixable_checks
from doctor.report.formats import plain, text
from doctor.report.layout.terminal import Terminal
from tests.report import reports as made


def said(report: object, *names: str) -> list[str]:
    lines = plain.render(report, made.PAGES, fixable=names).splitlines()  # type: ignore[arg-type]
    return [line for line in lines if line.startswith("fix ")]


def test_only_what_failed_and_can_be_mended_is_named_with_the_hosts_it_blames() -> None:
    report = made.folded()
    failed = [one for one in report.outcomes if one.findings]
    check = failed[0].check
    (line,) = said(report, check, "no-such-check")
    assert line.startswith(f"fix     doctor fix {check} -w ")
    assert said(report) == []
    assert said(report, "no-such-check") == []


def test_a_terminal_says_that_it_changes_nothing() -> None:
    report = made.folded()
    check = next(one.check for one in report.outcomes if one.findings)
    shown = text.render(report, made.PAGES, terminal=Terminal(tty=True, width=200), fixable=[check])
    assert f"To fix it (a plan; changes nothing): doctor fix {check} -w " in shown
    assert "changes nothing" in shown


def test_which_checks_can_be_mended_is_told_by_the_playbooks() -> None:
    known = fixable_checks()
    assert "listen-queue-short" in known
    assert "optics-out-of-range" not in known  # hands must do it


@pytest.mark.parametrize(
    ("book", "names"),
    [
        ('treats = ["a"]\n[[step]]\nrun = "x"', {"a"}),
        ('treats = ["a"]\n[[step]]\nfile = "/x"', {"a"}),
        ('treats = ["a"]\n[[step]]\nsay = "by hand"', set()),
        ('treats = ["a"]\nexplicit = true\n[[step]]\nrun = "x"', set()),
        ("not TOML", set()),
        ("step = 3", set()),
    ],
)
def test_a_playbook_at_a_glance(tmp_path: Path, book: str, names: set[str]) -> None:
    (tmp_path / "one.toml").write_text(book)
    assert fixable_checks(tmp_path) == names
