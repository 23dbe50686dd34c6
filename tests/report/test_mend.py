"""The line that names the command which plans the mending."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.result import Finding, Outcome
from doctor.remedy.fixable import fixable_checks
from doctor.report.layout.terminal import Terminal
from tests.hosts.npu import HCCN_TOOL
from tests.report import rendering, reports

OFFER = "Or let doctor do it (this prints the plan; --apply runs it): "


def fix_lines(report: object, *names: str) -> list[str]:
    lines = rendering.plain(report, reports.PAGES, fixable_checks=names).splitlines()  # type: ignore[arg-type]
    return [line for line in lines if line.startswith("plan ")]


def test_only_what_failed_and_can_be_mended_is_named_with_the_hosts_it_blames() -> None:
    report = reports.folded()
    failed = [outcome for outcome in report.outcomes if outcome.findings]
    check = failed[0].check
    (line,) = fix_lines(report, check, "no-such-check")
    assert line.startswith(
        f"plan    doctor can repair other findings, not driver-differs (this prints the plan; --apply runs it): "
        f"doctor fix {check} -w "
    )
    assert fix_lines(report) == []
    assert fix_lines(report, "no-such-check") == []


def test_a_terminal_says_that_it_changes_nothing() -> None:
    report = reports.folded()
    check = next(outcome.check for outcome in report.outcomes if outcome.findings)
    output = rendering.text(report, reports.PAGES, terminal=Terminal(tty=True, width=200), fixable_checks=[check])
    sentence = "doctor can repair other findings, not driver-differs (this prints the plan; --apply runs it):"
    assert f"{sentence}\n  doctor fix {check} -w " in output


def test_which_checks_can_be_mended_is_told_by_the_playbooks() -> None:
    known_names = fixable_checks()
    assert "listen-queue-short" in known_names
    assert "optics-out-of-range" not in known_names  # hands must do it
    for name in sorted(known_names)[::9]:
        assert fixable_checks([name, "optics-out-of-range"]) == {name}
    assert fixable_checks([]) == frozenset()


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
    assert fixable_checks(folder=tmp_path) == names


def test_the_remedy_of_one_of_two_hosts_is_not_for_the_other_likewise() -> None:
    """One finding about two hosts with one address: its remedy names the one that gives way."""
    check = next(check for check in load_checks() if check.name == "device-ip-conflict")
    finding = Finding(
        "{ip} is the device IP of {owners}; expected one NPU",
        hosts=("node001", "node002"),
        ip="29.1.1.1",
        owner="node001",
        npu=0,
        address="29.1.1.2",
        netmask="255.255.0.0",
        owners="NPU 0 of node001 and NPU 0 of node002",
        source="That is the address in /etc/hccn.conf.",
        observed=2,
        expected=1,
    )
    outcome = Outcome(check.name, check.severity, check.area, check.claim, (finding,), reports.HOSTS)
    output = rendering.plain(reports.report(outcome), {check.name: check})
    assert f"On node001, while no job runs: `{HCCN_TOOL} -i 0 -ip -s address 29.1.1.2" in output
    assert "likewise" not in output


def test_a_consequence_alone_is_not_mended_where_its_cause_cannot_be() -> None:
    down = reports.outcome("link-down", Finding("the link is down", hosts=("node001",)))
    lost = reports.outcome("driver-differs", Finding("the driver is lost", hosts=("node001",)).following("link-down"))
    report = reports.report(down, lost)
    assert fix_lines(report, "driver-differs") == []
    assert fix_lines(report, "driver-differs", "link-down") == [
        f"plan    {OFFER}doctor fix link-down driver-differs -w node001"
    ]


def test_only_marks_that_stand_in_the_report_are_to_be_filled_in() -> None:
    """The remedy of the cause that was found stands for the page, whose other commands are not shown."""
    check = next(entry for entry in load_checks() if entry.name == "host-name-repeated")
    values = {"name": "a", "count": 2, "observed": 2, "expected": 1}
    for remedy, marked in (("Give b its own name, on b: `hostnamectl set-hostname b`.", False), ("", True)):
        finding = Finding("{count} hosts have the host name {name}", hosts=("a", "b"), remedy=remedy, **values)
        report = reports.report(
            Outcome(check.name, check.severity, check.area, check.claim, (finding,)), hosts=("a", "b")
        )
        output = rendering.plain(report, {check.name: check})
        assert ("<name>" in output) == ("values " in output) == marked
