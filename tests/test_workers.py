"""``-n N``: every test runs once, those of a file in one process, and whatever becomes of a worker is reported."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workers import groups_of

pytestmark = pytest.mark.every

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = """
from tests import workers

def pytest_addoption(parser):
    workers.add_option(parser)

def pytest_configure(config):
    config.pluginmanager.register(workers.Workers(config.getoption("workers")), "workers")
"""
SOUND = """
import os, pytest

@pytest.fixture(scope="module")
def once(request):
    with open("made", "a") as made:
        print(request.node.name, os.getpid(), file=made)

@pytest.mark.parametrize("number", range(8))
def test_sound(once, number, tmp_path):
    with open("ran", "a") as ran:
        print(__name__, number, os.getpid(), tmp_path, file=ran)
"""
WRONG = """
import os, warnings

def test_fails():
    print("captured", "text")
    os.system("echo captured by its number")
    assert 1 + 1 == 3

def test_warns():
    warnings.warn("old news")

def test_dies():
    os._exit(0)

def test_runs_after_all():
    pass
"""


def project(folder: Path, **files: str) -> list[str]:
    """Writes a project whose tests are these files; the command that runs them."""
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    return [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:hypothesispytest", "--basetemp", "base"]


def environ(**more: str) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTEST_ADDOPTS": "",
        "PYTHONUNBUFFERED": "1",
        "DOCTOR_TEST_REPEAT": "0",
        **more,
    }


def run(argv: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=folder, env=environ(**more), capture_output=True, text=True, timeout=60)


def test_groups_keep_the_order_of_their_first_tests() -> None:
    names = ["tests/b.py::one", "tests/a.py::one", "tests/b.py::two"]
    assert list(groups_of(names)) == [[0, 2], [1]]


def test_each_test_runs_once_and_those_of_a_file_in_one_worker(tmp_path: Path) -> None:
    done = run([*project(tmp_path, a=SOUND, b=SOUND, c=SOUND), "-n", "2"], tmp_path)
    assert done.returncode == 0 and "24 passed" in done.stdout
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert sorted((name, int(number)) for name, number, _, _ in ran) == [
        (f"test_{file}", number) for file in "abc" for number in range(8)
    ]
    workers = {name: {pid for other, _, pid, _ in ran if other == name} for name, _, _, _ in ran}
    assert {len(pids) for pids in workers.values()} == {1}
    assert len(set.union(*workers.values())) == 2
    assert len({folder for _, _, _, folder in ran}) == 24
    assert len((tmp_path / "made").read_text().splitlines()) == 3


def test_failures_warnings_and_deaths_are_reported_with_what_was_printed(tmp_path: Path) -> None:
    done = run([*project(tmp_path, a=WRONG, b=SOUND), "-n", "2"], tmp_path)
    assert done.returncode == 1
    assert "2 failed, 10 passed, 1 warning" in done.stdout
    assert "assert (1 + 1) == 3" in done.stdout
    assert "UserWarning: old news" in done.stdout
    assert re.search(r"-+ Captured stdout call -+\ncaptured text\ncaptured by its number\n", done.stdout)
    assert "FAILED test_a.py::test_dies - the worker died in this test: exit status 0" in done.stdout


UNSTABLE = """
import os, pytest

@pytest.mark.parametrize("number", range(4))
def test_passes_the_second_time(number):
    first = not os.path.exists(f"seen-{number}")
    open(f"seen-{number}", "w").close()
    assert not first or number >= int(os.environ["FAILING"])

def test_fails_always():
    assert os.environ.get("SOUND")
"""


def test_a_few_failed_tests_run_again_and_those_that_pass_alone_are_named(tmp_path: Path) -> None:
    argv = [*project(tmp_path, a=UNSTABLE, b=SOUND), "-n", "2"]
    done = run(argv, tmp_path, DOCTOR_TEST_REPEAT="3", FAILING="2", SOUND="1")
    assert done.returncode == 0 and "13 passed" in done.stdout, done.stdout
    for number in range(2):
        assert (
            f"failed beside others, and passed alone: test_a.py::test_passes_the_second_time[{number}]" in done.stdout
        )
    assert "assert (not True" in done.stdout


def test_what_fails_again_has_failed(tmp_path: Path) -> None:
    argv = [*project(tmp_path, a=UNSTABLE, b=SOUND), "-n", "2"]
    done = run(argv, tmp_path, DOCTOR_TEST_REPEAT="3", FAILING="2")
    assert done.returncode == 1 and "1 failed, 12 passed" in done.stdout, done.stdout


def test_of_many_failures_none_is_repeated(tmp_path: Path) -> None:
    argv = [*project(tmp_path, a=UNSTABLE, b=SOUND), "-n", "2"]
    done = run(argv, tmp_path, DOCTOR_TEST_REPEAT="3", FAILING="4")
    assert done.returncode == 1 and "5 failed, 8 passed" in done.stdout, done.stdout
    assert "passed alone" not in done.stdout


def test_no_group_is_given_out_after_enough_failures(tmp_path: Path) -> None:
    files = {"a": "def test_fails():\n    assert 0\n", **dict.fromkeys("bcde", SOUND)}
    done = run([*project(tmp_path, **files), "-n", "1", "-x"], tmp_path)
    assert done.returncode == 1 and "stopping after 1 failures" in done.stdout
    assert not (tmp_path / "ran").exists()


def test_no_test_runs_when_a_file_cannot_be_collected(tmp_path: Path) -> None:
    done = run([*project(tmp_path, a="import nowhere", b=SOUND), "-n", "2"], tmp_path)
    assert done.returncode == pytest.ExitCode.INTERRUPTED and "1 error during collection" in done.stdout
    assert not (tmp_path / "ran").exists()


WAITS = """
import pytest, time

@pytest.fixture(scope="session")
def host():
    yield
    open("ended", "w").close()

def test_waits(host):
    open("waits", "w").close()
    time.sleep(60)
"""


def test_an_interrupted_run_ends_its_workers_and_their_fixtures(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "waits")
    # A shell starts its background jobs with SIGINT ignored, and so would pytest be.
    argv = ["env", "--default-signal=INT", *project(tmp_path, a=WAITS), "-n", "1"]
    with subprocess.Popen(argv, cwd=tmp_path, env=environ(), stdout=subprocess.PIPE, text=True) as process:
        (tmp_path / "waits").read_text()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == pytest.ExitCode.INTERRUPTED and "KeyboardInterrupt" in out
    assert (tmp_path / "ended").exists()


def test_where_pytest_itself_fails_in_a_test_that_test_has_failed_and_the_rest_runs(tmp_path: Path) -> None:
    argv = project(tmp_path, a="def test_words():\n    assert 0\n", b=SOUND)
    with (tmp_path / "conftest.py").open("a") as file:
        file.write(
            "def pytest_runtest_makereport(item, call):\n"
            "    if item.name == 'test_words' and call.excinfo:\n"
            "        raise KeyError('no words for it')\n"
        )
    done = run([*argv, "-n", "2"], tmp_path, DOCTOR_TEST_REPEAT="3")
    assert done.returncode == 1 and "1 failed, 8 passed" in done.stdout, done.stdout
    assert "the worker died in this test: exit status 1" in done.stdout and "no words for it" in done.stdout
