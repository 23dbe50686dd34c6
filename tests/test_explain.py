"""`doctor explain` and `doctor list --playbooks`, with a site's own checks and playbooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import doctor.remedy.catalog
from doctor.cli.app import application
from doctor.cli.fast_explain import explanation
from doctor.engine.catalog import load_checks
from doctor.engine.errors import CommandError
from doctor.remedy.playbook import built_in_playbook
from doctor.report.explain.checks import check_page
from doctor.report.explain.examples import read_examples

RULE = '''
from doctor import ERROR, Finding, check
from doctor.facts.visit import Reachability

@check(severity=ERROR, area="site")
def our_rule(reach: Reachability):
    """Fine."""
    yield Finding("{lamp} is off", lamp=1)
'''
LAMP = """
title = "Lamps on"
treats = ["our-rule", "listen-queue-short"]
who = "host admin"
risk = "none"
root = false

[[step]]
say = "Switch the lamp of {host} on"
before = "lamp --state"
run = 'lamp --on "$host"'
undo = 'lamp --off "$host"'
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site with one check and one playbook, where this program has none."""
    for name in ("checks", "playbooks", "none"):
        (tmp_path / name).mkdir()
    (tmp_path / "checks" / "our_rule.py").write_text(RULE)
    (tmp_path / "playbooks" / "switch-lamps-on.toml").write_text(LAMP)
    monkeypatch.setattr(doctor.remedy.catalog, "bundled_folder", lambda folder: tmp_path / "none")
    return tmp_path


@pytest.fixture
def explain(site: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    def run_command(command: str, *arguments: str) -> str:
        checks = ("--checks", str(site / "checks"))
        application([command])([command, *arguments, *checks], standalone_mode=False)
        return capfd.readouterr().out

    return run_command


def test_a_check_is_shown_with_what_mends_it(site: Path, explain: Any) -> None:
    for check in ("our-rule", "listen-queue-short"):
        page = explain("explain", check, "--playbooks", str(site / "playbooks"))
        assert page.startswith(check + "\n")
        assert "\n  switch-lamps-on: Lamps on\n" in page
        assert "\n    its steps: doctor explain switch-lamps-on\n" in page
    assert "\nFixes\n" not in explain("explain", "syn-queue-short", "--playbooks", str(site / "playbooks"))


def test_a_signature_is_explained_with_folders_of_the_site_too(site: Path, explain: Any) -> None:
    page = explain("explain", "nccl-shm-full", "--playbooks", str(site / "playbooks"))
    assert page.startswith("nccl-shm-full: ")


def test_a_playbook_is_explained(site: Path, explain: Any) -> None:
    page = explain("explain", "switch-lamps-on", "--playbooks", str(site / "playbooks"))
    assert page.startswith("switch-lamps-on: Lamps")
    assert 'lamp --on "$host"' in page


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("switch-lamp-on", "no check, playbook or topic is named 'switch-lamp-on'; did you mean switch-lamps-on?"),
        ("our-rul", "did you mean our-rule?"),
        ("qqqqqq", "`doctor list` names the checks, `doctor list --playbooks` the playbooks"),
        ("a\x1b[31m", "named 'a\\x1b[31m'"),
        ("kernel", "kernel is an area; `doctor list --select kernel` names its checks"),
    ],
)
def test_what_is_not_known_is_usage(site: Path, explain: Any, name: str, why: str) -> None:
    with pytest.raises(CommandError) as caught:
        explain("explain", name, "--playbooks", str(site / "playbooks"))
    assert why in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_bad_playbook_is_one_line_and_78(site: Path, explain: Any) -> None:
    path = site / "playbooks" / "switch-lamps-on.toml"
    path.write_text(LAMP.replace("undo", "unod"))
    for arguments in (
        ("explain", "our-rule", "--playbooks", str(path.parent)),
        ("list", "--playbooks", str(path.parent)),
    ):
        with pytest.raises(CommandError, match=rf"{path}:12: step 1: unod: no such key; did you mean undo\?") as caught:
            explain(*arguments)
        assert caught.value.exit_code == 78
    with pytest.raises(CommandError, match="not a folder"):
        explain("explain", "our-rule", "--playbooks", str(path))


def test_playbooks_are_listed(site: Path, explain: Any) -> None:
    folder = str(site / "playbooks")
    assert explain("list", "--playbooks", folder) == "switch-lamps-on  risk none  Lamps on\n"
    assert explain("list", "--playbooks", folder, "--select", "kernel").startswith("switch-lamps-on ")
    assert explain("list", "--playbooks", folder, "--select", "ranks") == "no playbook treats these checks\n"
    rows = json.loads(explain("list", "--playbooks", folder, "--json"))["playbooks"]
    assert [row["name"] for row in rows] == ["switch-lamps-on"]


def test_a_folder_needs_to_be_asked_for(explain: Any) -> None:
    with pytest.raises(CommandError, match="expected --playbooks before a folder"):
        explain("list", "/tmp")


@pytest.mark.parametrize("name", ["host-unreachable", "firewall-blocks-job", "smoke-rank-slow", "formats", "catalogue"])
def test_the_quick_way_shows_the_same(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    application(["explain"])(["explain", name], standalone_mode=False)
    assert explanation(name) == capfd.readouterr().out


def test_the_quick_way_reads_our_playbooks_as_the_loader_does() -> None:
    """A file that treats a check mentions its name."""
    for playbook in doctor.remedy.catalog.load_playbooks():
        path = Path(playbook.path)
        assert built_in_playbook(path) == playbook
        assert all(name in path.read_text("utf-8") for name in playbook.treats), playbook.name


@pytest.mark.parametrize("name", ["no-such-check", "../engine/check", "--help", "", "kernel"])
def test_any_other_name_goes_the_long_way(name: str) -> None:
    assert explanation(name) is None


@pytest.mark.parametrize("name", ["launch-option-refused", "launch-program-missing", "process-limit-low"])
def test_of_a_page_with_cases_the_example_fills_its_own_case_alone(name: str) -> None:
    check = next(check for check in load_checks() if check.name == name)
    example = read_examples()[name]
    page = check_page(check, (), example)
    others = [line for line in page.split("What to do")[1].splitlines() if line.lstrip().startswith("- ")]
    own = [line for line in others if line.strip().startswith(f"- {example.values['case']}:")]
    assert len(own) == 1 and len(others) > 1
    assert not [line for line in others if line not in own and str(example.values["observed"]) in line]
