"""`hatch run new-check NAME`, in a copy of the tree: what it writes fits in, and fails until it is filled in."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.every

ROOT = Path(__file__).resolve().parents[1]
NAME, STEM = "tried-by-a-test", "tried_by_a_test"
FAULTS = "tests/faults/memory.py"
SMOKE_NAME, SMOKE_STEM = "smoke-tried-by-a-test", "smoke_tried_by_a_test"


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *argv], cwd=folder, capture_output=True, text=True, timeout=100)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with two new checks."""
    folder = tmp_path_factory.mktemp("tree") / "copy"
    folder.mkdir()
    for name in ("doctor", "checks", "playbooks", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    done = run(folder, "-m", "tests.new_check", NAME, "--area", "memory", "--severity", "error")
    assert done.returncode == 0, done.stderr
    done = run(folder, "-m", "tests.new_check", SMOKE_NAME, "--area", "smoke")
    assert done.returncode == 0, done.stderr
    return folder


def test_the_three_files_are_there_and_well_formed(tree: Path) -> None:
    written = [f"checks/{STEM}.py", f"tests/checks/test_{STEM}.py", FAULTS]
    assert all(f"TODO {NAME}" in (tree / path).read_text("utf-8") for path in written)
    smoke = [f"checks/{SMOKE_STEM}.py", f"tests/checks/test_{SMOKE_STEM}.py"]
    assert all(f"TODO {SMOKE_NAME}" in (tree / path).read_text("utf-8") for path in smoke)
    written += smoke
    for command in (["check"], ["format", "--check"]):
        done = run(tree, "-m", "ruff", *command, *written)
        assert done.returncode == 0, done.stdout


@pytest.mark.every
def test_the_check_is_loaded_and_has_its_row_and_its_test(tree: Path) -> None:
    listed = run(tree, "-m", "doctor", "list", "--select", NAME)
    assert listed.stdout.split()[:3] == ["memory", NAME, "error"], listed.stderr
    fits = ["tests/test_faults.py::test_every_check_has_a_row_and_every_row_a_check", "tests/test_catalogue.py"]
    done = run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", f"{NAME} or every_row", *fits)
    assert done.returncode == 0, done.stdout


def test_its_own_test_fails_until_it_is_filled_in(tree: Path) -> None:
    done = run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/checks/test_{STEM}.py")
    assert done.returncode == 1
    assert re.search(r"2 failed", done.stdout), done.stdout
    assert f"TODO {NAME}: it is 0; expected 1" in done.stdout
    assert f"TODO {NAME}: give a host the facts of the fault" in done.stdout
    done = run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/checks/test_{SMOKE_STEM}.py")
    assert done.returncode == 1 and re.search(r"2 failed", done.stdout), done.stdout
    assert f"TODO {SMOKE_NAME}: give a rank the facts of the fault" in done.stdout


def test_nothing_unfinished_is_left(tree: Path) -> None:
    """What `new-check` writes is found by this until it is filled in."""
    smoke = [f"checks/{SMOKE_STEM}.py", f"tests/checks/test_{SMOKE_STEM}.py"]
    assert unfinished(tree) == sorted([f"checks/{STEM}.py", f"tests/checks/test_{STEM}.py", FAULTS, *smoke])
    assert unfinished(ROOT) == []


def unfinished(folder: Path) -> list[str]:
    paths = [path for part in ("checks", "tests/checks", "tests/faults") for path in (folder / part).glob("*.py")]
    return sorted(str(path.relative_to(folder)) for path in paths if "TODO" in path.read_text("utf-8"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["Swap"], "expected lower-case words joined by hyphens"),
        (["listen-queue-short"], "checks/listen_queue_short.py exists"),
        ([NAME, "--area", "training"], "invalid choice: 'training'"),
        ([NAME, "--severity", "fatal"], "invalid choice: 'fatal'"),
    ],
)
def test_what_is_refused(arguments: list[str], reason: str) -> None:
    done = run(ROOT, "-m", "tests.new_check", *arguments)
    assert (done.returncode, reason in done.stderr) == (2, True), done.stderr
