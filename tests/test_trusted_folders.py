"""Folders of --checks, --playbooks and --signatures: what a stranger may have written is not run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from doctor.config.file import require_trusted_folder
from doctor.engine.errors import InputError

ROOT = Path(__file__).parents[1]
CHECK = '''from pathlib import Path
Path(__file__).with_suffix(".ran").touch()
from doctor import ERROR, check
@check(severity=ERROR, area="kernel")
def mine():
    """It is mine."""
    return iter(())
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "site"
    path.mkdir(mode=0o755)
    (path / "mine.py").write_text(CHECK)
    (path / "mine.toml").write_text("")
    return path


def reason(folder: Path, suffix: str = ".py") -> str:
    try:
        require_trusted_folder("--checks", folder, suffix)
    except InputError as error:
        return str(error)
    return ""


def test_a_folder_of_ones_own_is_taken(folder: Path) -> None:
    assert reason(folder) == ""
    folder.chmod(0o775)
    assert reason(folder) == "", "a group of one's own may write it: the umask of many systems"


@pytest.mark.parametrize("which", ["folder", "file"])
def test_what_all_may_write_is_refused(folder: Path, which: str) -> None:
    (folder if which == "folder" else folder / "mine.py").chmod(0o777)
    part = "" if which == "folder" else "/mine.py"
    assert reason(folder) == f"--checks {folder}{part}: others can write it (mode 0777); expected chmod o-w"
    assert (reason(folder, ".toml") == "") == (which == "file"), "only what is read counts"


def test_a_folder_in_a_place_where_all_may_put_another_is_refused(folder: Path) -> None:
    folder.parent.chmod(0o1777)
    assert reason(folder) == "", "as in /tmp: only its owner can move it away"
    folder.parent.chmod(0o777)
    assert reason(folder) == f"--checks {folder}: others can replace it: {folder.parent} has mode 0777"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("give", [lambda path: path, lambda path: path / "mine.py"], ids=["folder", "file"])
def test_what_belongs_to_a_stranger_is_refused(folder: Path, give: Callable[[Path], Path]) -> None:
    os.chown(give(folder), 65534, 65534)
    assert reason(folder).endswith(": is owned by user 65534; expected you or root")


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "--checks", "{}"],
        ["list", "--checks", "{}"],
        ["explain", "mine", "--checks", "{}"],
        ["explain", "mine", "--playbooks", "{}"],
        ["fix", "--playbooks", "{}", "disk-full"],
        ["diagnose", "--signatures", "{}", "/dev/null"],
    ],
    ids=" ".join,
)
def test_every_command_refuses_it_in_one_line(folder: Path, arguments: list[str]) -> None:
    folder.chmod(0o777)
    argv = [sys.executable, "-m", "doctor", *(word.format(folder) for word in arguments)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (78, 1), done.stderr
    assert f"{folder}: others can write it (mode 0777); expected chmod o-w" in done.stderr
    assert not list(folder.glob("*.ran")), "it has run"
