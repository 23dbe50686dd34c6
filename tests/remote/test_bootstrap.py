"""Starting a program on a host: the same by every shell and every Python, and not a byte too many is read."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from doctor.remote.bootstrap import argument_command, python_problem, stdin_command, stdin_script
from tests.test_collector import PYTHONS

SOURCE = b"import os\ndef main(request, program):\n    print(request.decode(), len(program), os.read(0, 99).decode())\n"
ANSWER = f"{{}} {len(SOURCE)} behind it\n"


def run(argv: Sequence[str], data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, input=data, capture_output=True, timeout=20)


@pytest.fixture(params=PYTHONS, ids=lambda path: Path(path).parts[-3])
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("direct", [True, False], ids=["by its path", "searched for"])
def test_what_comes_behind_the_request_is_the_programs_to_read(python: str, direct: bool) -> None:
    command = stdin_command(SOURCE, 2, python if direct else "")
    command = command.replace("for p in python3 ", f"for p in {python} ")
    assert python in command
    done = run(["sh", "-c", command], SOURCE + b"{}behind it")
    assert (done.stdout.decode(), done.stderr) == (ANSWER, b"")


def test_a_program_that_the_arguments_hold(python: str) -> None:
    command = argument_command(b"def main():\n    import sys\n    print(sys.version_info[:2])\n")
    command[2] = command[2].replace("for p in python3 ", f"for p in {python} ")
    assert run(command).stdout.decode() == f"({Path(python).parts[-3].replace('.', ', ').rpartition(',')[0]})\n"


@pytest.mark.parametrize("shell", ["sh", "bash", "csh", "fish", "dash"])
@pytest.mark.parametrize("as_root", [False, True])
def test_every_login_shell_reads_it_the_same(shell: str, as_root: bool) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    command = stdin_command(SOURCE, 2, as_root=as_root)
    assert run([shell, "-c", command], SOURCE + b"{}behind it").stdout.decode() == ANSWER


def test_a_prefix_is_quoted() -> None:
    command = stdin_command(SOURCE, 2, prefix=("env", "A=x y; false"))
    assert command.startswith("exec env 'A=x y; false' sh -c ")
    assert run(["sh", "-c", command], SOURCE + b"{}behind it").stdout.decode() == ANSWER


def test_the_text_is_safe_within_quotes() -> None:
    """Single ones around it, double ones around the program in it, and nothing that csh or fish would read."""
    assert not set("'!\\\n`") & set(stdin_script(SOURCE, "REQUEST", as_root=True))
    assert stdin_script(SOURCE, 5).count('"') == 2


def test_the_jobs_interpreter_is_tried_last_and_no_other_text_is() -> None:
    command = stdin_command(SOURCE, 2, candidate=sys.executable).replace("python3 /", "python-none /none/")
    command = command.replace("/usr/local/bin/python3 /usr/libexec/platform-python", "")
    assert run(["env", "-i", "/bin/sh", "-c", command], SOURCE + b"{}behind it").stdout.decode() == ANSWER
    for text in ("python3.12", "/opt/$(id)/python", "/opt/a b", "/x;y", "/x'y", "/" + "x" * 4000, "/x\ny"):
        assert stdin_command(SOURCE, 2, candidate=text) == stdin_command(SOURCE, 2)


def test_an_input_that_ends_too_early_ends_it() -> None:
    assert run(["sh", "-c", stdin_command(SOURCE, 2)], SOURCE[:-5]).returncode == 3


@pytest.mark.parametrize("code", [127, 0])
def test_a_host_without_python(code: int) -> None:
    argv = ["sh", "-c", stdin_command(SOURCE, 2)] if code else argument_command(SOURCE)
    argv = [word.replace("python3", "python-none").replace("/platform-python", "/none") for word in argv]
    done = run(argv)
    assert done.returncode == code
    assert python_problem(done.stderr.decode()) == "there is no python3 on the host"


@pytest.mark.parametrize("from_stdin", [True, False])
def test_a_python_that_is_too_old_says_which_it_is(from_stdin: bool, tmp_path: Path) -> None:
    """A stand-in that shows an old version to the program's own check."""
    site = tmp_path / "python3"
    site.write_text(
        '#!/bin/sh\nwhile [ "$1" != -c ]; do shift; done\n'
        f"exec {PYTHONS[0]} -c 'import sys; V = type(sys.version_info)\n"
        "class Old(tuple):\n"
        '    def __repr__(self): return "sys.version_info(major=3, minor=5, micro=2)"\n'
        "sys.version_info = Old((3, 5, 2))\n"
        'exec(sys.argv[1])\' "$2" "$3"\n'
    )
    site.chmod(0o755)
    argv = ["sh", "-c", stdin_command(SOURCE, 2)] if from_stdin else argument_command(SOURCE)
    argv = [word.replace("for p in python3 ", f"for p in {site} ") for word in argv]
    assert python_problem(run(argv).stderr.decode()) == "python3 is version 3.5; 3.6 or later is needed"
