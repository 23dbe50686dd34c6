"""The README is the contract: its generated parts are fresh, and what it shows works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.readme import README, written

TEXT = README.read_text("utf-8")


def test_the_catalogue_is_fresh() -> None:
    """If not: python -m tests.readme."""
    assert written(TEXT) == TEXT


def test_the_check_of_your_own_works_as_printed(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    (name,) = re.findall(r"^def (\w+)", code, re.M)
    (tmp_path / f"{name}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "doctor", "check", "--checks", str(tmp_path), "--select", name.replace("_", "-")],
        cwd=README.parent,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode in (0, 10), done.stdout + done.stderr


def test_every_option_that_it_names_exists() -> None:
    known = ""
    for command in ("check", "smoke", "preflight", "node", "merge", "report", "fix"):
        words = [sys.executable, "-m", "doctor", command, "--help"]
        known += subprocess.run(words, cwd=README.parent, capture_output=True, text=True).stdout
    of_others = {"--nproc-per-node", "--overlap", "--ntasks-per-node", "--no-python"}
    prose, fences = re.sub(r"^```.*?^```", "", TEXT, flags=re.S | re.M), re.findall(r"^```.*?^```", TEXT, re.S | re.M)
    ours = [words for fence in fences for words in re.findall(r"\bdoctor (.*(?:\\\n.*)*)", fence)]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join([prose, *ours]))) - of_others
    assert len(named) > 30
    assert {option for option in named if not re.search(rf"{option}\b", known)} == set()
