"""The hook's files in a program that closes all files that it finds open, and opens others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.watch import data_folder
from doctor.watch.hook import collectives
from doctor.watch.rank_process import RankProcess

HOOK = Path(data_folder.__file__).parent / "hook"


def test_a_host_gets_each_file_of_the_hook_that_another_one_imports() -> None:
    texts = {name: (HOOK / f"{name}.py").read_text() for name in data_folder.FILES}
    imported = {
        found
        for text in texts.values()
        for found in re.findall(r"(?m)^ *from \.(\w+) import|_PACKAGE \+ \"\.(\w+)\"", text)
    }
    assert {name for pair in imported for name in pair if name} == set(data_folder.FILES) - {"data_hooks"}


PROGRAM = """
import os, sys
from doctor.watch.hook.rank_files import start_recording
files = start_recording(0, 1)
os.closerange(3, 256)
others = [os.open(f"other-{number}", os.O_CREAT | os.O_WRONLY) for number in range(8)]
files.emit("joined", rank=0, world=1, backend="gloo")
print("ready", flush=True)
sys.stdin.readline()
"""


def test_nothing_is_written_into_files_that_are_the_programs_own(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    environ = {**os.environ, "DOCTOR_WATCH": str(tmp_path)}
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environ, cwd=tmp_path, **streams) as program:  # type: ignore[call-overload]
        assert program.stdout.readline() == "ready\n"
        (page,) = (tmp_path / "ranks").glob("*.page")
        process = RankProcess(page)
        process.read_recorder()
        assert [event["ev"] for event in process.new_events()] == ["rank", "joined"]
        assert process.pid == program.pid and process.stack() == ""
        program.communicate("\n", timeout=60)
    assert [path.read_bytes() for path in tmp_path.glob("other-*")] == [b""] * 8
    assert json.loads(page.with_suffix(".events").read_text().splitlines()[0])["stacks"] > 2


PRINTS_AN_ERROR = """
import sys
from doctor.watch.hook.rank_files import start_recording
from doctor.watch.hook.training import report_exceptions
files = start_recording(0, 1)
report_exceptions()
files.next_step()
try:
    raise ImportError("a module of another NumPy")
except ImportError:
    sys.excepthook(*sys.exc_info())  # as PyErr_Print of a library in C
if sys.argv[1] == "goes on":
    files.next_step()
"""


@pytest.mark.parametrize(("then", "error", "ends"), [("goes on", "", True), ("ends", "ImportError: a module", False)])
def test_an_error_that_a_library_prints_is_not_the_ranks_own_where_it_goes_on(
    then: str, error: str, ends: bool, tmp_path: Path
) -> None:
    (tmp_path / "ranks").mkdir()
    environ = {**os.environ, "DOCTOR_WATCH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", PRINTS_AN_ERROR, then], env=environ, timeout=60, check=True)
    (page,) = (tmp_path / "ranks").glob("*.page")
    process = RankProcess(page)
    process.new_events()
    process.read_recorder()
    assert process.error.startswith(error) and bool(process.error) == bool(error)
    assert process.told_end == ends


class Recorded:
    """The files of a rank that only keep its state."""

    state = "compute"

    def become(self, state: str) -> None:
        self.state = state


class Options:
    def __init__(self, asynchronous: bool) -> None:
        self.asyncOp = asynchronous


@pytest.mark.parametrize(
    ("work", "asynchronous", "state"),
    [
        pytest.param(None, False, "compute", id="put behind the stream of a device: torch 2.8 and later over NCCL"),
        pytest.param(Options(True), False, "collective", id="the program waits for it at once"),
        pytest.param(Options(True), True, "compute", id="the program goes on"),
    ],
)
def test_in_which_state_a_rank_is_after_its_call(
    work: object, asynchronous: bool, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that goes on computing must not be taken for one in its last collective."""
    files = Recorded()
    monkeypatch.setattr(collectives, "recording", lambda: files)

    def call(group: object, options: Options) -> object:
        collectives.WAITS.call = ("all_reduce", 1)
        files.become("collective")
        return work

    assert collectives.wrap_method(call)(object(), Options(asynchronous)) is work  # type: ignore[no-untyped-call]
    assert files.state == state
