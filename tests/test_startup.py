"""What is not needed is not imported: `--help`, `list` and `explain` start quickly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from doctor.cli import saved_pages

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("paramiko", "torch", "torch_npu", "rich", "ClusterShell", "cryptography")

MOST_MODULES_OF_A_REPLAY = 115


def imported(*arguments: str) -> set[str]:
    """The top-level packages that a command imports."""
    return {module.partition(".")[0] for module in imported_modules(*arguments)}


def imported_modules(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "doctor", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("check", "--help"),
        ("--version",),
        ("list",),
        ("explain", "host-unreachable"),
        ("explain", "formats"),
    ],
)
def test_quick_commands_import_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert imported(*arguments) & set(HEAVY) == set()


SAVED = """
import sys
from doctor.cli.main import main
sys.argv[0] = "doctor"
main()
print(*sorted(sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "not_loaded"),
    [
        (("--help",), {"re", "typing", "enum", "functools", "signal"}),
        (("list",), {"re", "typing", "enum", "signal", "doctor.engine.catalog"}),
        (("explain", "firewall-blocks-job"), {"typing", "msgspec", "pathlib", "signal", "doctor.engine.catalog"}),
    ],
)
def test_an_answer_that_is_saved_loads_little_to_be_shown(arguments: tuple[str, ...], not_loaded: set[str]) -> None:
    environ = {"PATH": "/usr/bin", "LANG": "C.UTF-8"}
    argv = [sys.executable, "-c", SAVED, *arguments]
    completed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, env=environ)
    assert completed.returncode == 0, completed.stderr
    bare = subprocess.run([*argv[:2], "import sys; print(*sys.modules)"], capture_output=True, text=True, env=environ)
    assert not set(completed.stderr.split()) & not_loaded - set(bare.stdout.split())
    made = subprocess.run([*argv, "--lang=en"], cwd=ROOT, capture_output=True, text=True, env=environ)
    assert completed.stdout == made.stdout  # not saved: the option has to be read


def test_the_page_of_a_check_that_was_changed_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = saved_pages.saved_rows()
    monkeypatch.setattr(saved_pages, "saved_rows", lambda: rows | {"disk-full": [*rows["disk-full"][:-1], "1"]})
    assert saved_pages.saved_answer(["explain", "disk-full"], {}) is None
    assert saved_pages.saved_answer(["list"], {}) is None
    assert saved_pages.saved_answer(["explain", "swap-on"], {"LANG": "zh_CN.UTF-8"}) is None
    monkeypatch.setattr(saved_pages, "saved_rows", dict)
    assert saved_pages.saved_answer(["list"], {}) is None


def test_a_local_check_needs_neither_ssh_nor_torch() -> None:
    assert imported("check", "--select", "host-unreachable") & {"paramiko", "torch", "torch_npu", "rich"} == set()


def test_a_replay_loads_neither_what_visits_hosts_nor_what_reads_the_environment(tmp_path: Path) -> None:
    run, check = tmp_path / "run.json", ("--select", "listen-queue-short")
    imported("check", *check, "--save", str(run))
    modules = {name for name in imported_modules("check", "--from", str(run), *check) if name.startswith("doctor.")}
    packages = {name.split(".")[1] for name in modules}
    assert packages & {"collect", "environment", "net", "smoke", "transport", "watch"} == set()
    assert len(modules) <= MOST_MODULES_OF_A_REPLAY


def test_watching_a_command_needs_neither_ssh_nor_torch() -> None:
    """Only the training program loads torch."""
    assert imported("watch", "--", "true") & {"paramiko", "torch", "torch_npu", "rich"} == set()


def test_the_list_would_notice() -> None:
    """The measure itself works: a package that is imported is seen."""
    assert "typer" in imported("check", "--help")
