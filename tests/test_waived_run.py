"""Waivers and skips as a person and a job script meet them: on the command line, with a fault on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import preloaded
from tests.test_cli import CLEAN, SITE

WAIVER = '[[waive]]\ncheck = "our-rule"\nreason = "it always says no"\nuntil = {until}\n'


class Run:
    """`doctor` in a folder of its own, with a check that fails there, and a saved run in which it did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        site = folder / "site"
        for path in (self.home, site):
            path.mkdir()
        (site / "our_rule.py").write_text(SITE.format(command="echo no", severity="ERROR", body="pass"))
        self.checks = ["--checks", str(site), "--select", "our-rule"]
        self.saved = folder / "saved.json"
        assert self.check("--save", str(self.saved)).returncode == 10

    def check(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        env = {**CLEAN, "HOME": str(self.home), "XDG_CONFIG_HOME": "", **environ}
        return preloaded.run(
            [sys.executable, "-m", "doctor", "check", *self.checks, *arguments],
            cwd=self.folder,
            env=env,
            timeout=100,
            capture_output=True,
            text=True,
        )

    def again(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """The same of the saved run, which is quicker."""
        return self.check("--from", str(self.saved), *arguments, **environ)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("waived"))


@pytest.fixture
def waiver(run: Run) -> Path:
    """A waiver that holds, in a file that is named."""
    path = run.folder / "named.toml"
    path.write_text(WAIVER.format(until="2999-12-31"))
    return path


def test_a_waived_fault_is_0_and_says_so_on_stdout(run: Run, waiver: Path) -> None:
    done = run.check("--config", str(waiver))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "waived  our-rule on localhost (1/1): it always says no (until 2999-12-31)" in lines
    assert f"note    settings: {waiver}: 1 waiver" in lines
    assert lines[-1].startswith("HEALTHY: 2 checks passed on 1 host; 1 check waived")


def test_the_variable_and_the_folder_serve_as_well(run: Run, waiver: Path) -> None:
    assert run.again(DOCTOR_CONFIG=str(waiver)).returncode == 0
    here = run.folder / "doctor.toml"
    here.write_text(waiver.read_text())
    here.chmod(0o644)
    assert run.again().returncode == 0
    here.chmod(0o666)
    refused = run.again()
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (78, "", 1)
    assert "others can write it" in refused.stderr
    assert run.again("--config", os.devnull).returncode == 10
    here.unlink()


def test_an_expired_waiver_is_10_and_says_when_and_why(run: Run, waiver: Path) -> None:
    waiver.write_text(WAIVER.format(until="2026-01-31"))
    done = run.again("--config", str(waiver))
    assert done.returncode == 10
    assert "note    waiver of our-rule for every host expired on 2026-01-31: it always says no" in done.stdout


def test_the_document_holds_the_finding_and_its_reason(run: Run, waiver: Path) -> None:
    document = json.loads(run.again("--config", str(waiver), "--json").stdout)
    assert (document["verdict"], document["exit"], document["counts"]["waived"]) == ("healthy", 0, 1)
    (outcome,) = [entry for entry in document["outcomes"] if entry["check"] == "our-rule"]
    assert [(kept["reason"], kept["until"]) for kept in outcome["waived"]] == [("it always says no", "2999-12-31")]


def test_a_skip_leaves_its_name(run: Run) -> None:
    done = run.check(DOCTOR_SKIP="our-rule")
    assert done.returncode == 0
    assert "note    DOCTOR_SKIP: skipped: our-rule" in done.stdout.splitlines()


def test_when_all_is_skipped_nothing_is_healthy(run: Run) -> None:
    done = run.again(DOCTOR_SKIP="all")
    assert done.returncode == 78
    assert "NOTHING: none of 3 checks applies" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "environ", "output"),
    [
        (["--config", "nowhere.toml"], {}, "nowhere.toml: No such file"),
        ([], {"DOCTOR_SKIP": "our-rlue"}, 'no check is named "our-rlue"; did you mean our-rule?'),
        ([], {"DOCTOR_CONFIG": "wrong.toml"}, 'wrong.toml: [[waive]] 1: check: no check is named "our-rlue"'),
    ],
)
def test_what_cannot_be_followed_is_refused_before_a_host_is_visited(
    run: Run, arguments: list[str], environ: dict[str, str], output: str
) -> None:
    (run.folder / "wrong.toml").write_text(WAIVER.format(until="2999-12-31").replace("rule", "rlue"))
    unsaved = run.folder / "unsaved.json"
    done = run.check(*arguments, "--save", str(unsaved), **environ)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1)
    assert output in done.stderr
    assert not unsaved.exists()


def test_a_smoke_run_follows_them_too(run: Run) -> None:
    done = preloaded.run(
        [sys.executable, "-m", "doctor", "smoke"],
        cwd=run.folder,
        env={**CLEAN, "DOCTOR_SKIP": "nonsense"},
        timeout=100,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (78, "")
    assert 'DOCTOR_SKIP: no check is named "nonsense"' in done.stderr
