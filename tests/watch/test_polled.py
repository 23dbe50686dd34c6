"""What a process looks for again and again, as its source and its variables tell."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from doctor.watch.attach.inspector.polled import condition_of, polled, values_of

TRIES = """
while True:
    try:
        link = socket.create_connection((host, port))
        break
    except OSError:
        time.sleep(1)
"""


@pytest.mark.parametrize(
    ("source", "number", "expected"),
    [
        ("while not os.path.exists(path):\n    time.sleep(1)", 2, "while not os.path.exists(path)"),
        ("while not store.check([key]): time.sleep(1)", 1, "while not store.check([key])"),
        ("for _ in range(9):\n    if is_there(path): break\n    time.sleep(1)", 3, "if is_there(path)"),
        ("while True:\n    if not ready(n):\n        time.sleep(1)\n        continue", 3, "if not ready(n)"),
        (TRIES, 7, "link = socket.create_connection((host, port))"),
        ("while not event.wait(1):\n    pass", 1, "while not event.wait(1)"),
        # Innocent: a pause of the program's own steps, and what stands in no loop.
        ("for batch in batches:\n    step(batch)\n    time.sleep(1)", 3, ""),
        ("while True:\n    time.sleep(1)", 2, ""),
        ("while busy:\n    pass\ntime.sleep(9)", 3, ""),
        ("for step in steps:\n    if step % 9 == 0:\n        save()\n    time.sleep(1)", 4, ""),
        ("for step in steps:\n    if step > 6: time.sleep(1)", 2, ""),
        ("while step < 9:\n    def pause():\n        time.sleep(9)", 3, ""),
        ("time.sleep(9)", 1, ""),
    ],
)
def test_the_condition_of_the_loop_that_sleeps(source: str, number: int, expected: str) -> None:
    assert condition_of(source.split("\n"), number) == expected  # type: ignore[no-untyped-call]


def test_a_long_file_takes_no_long_time() -> None:
    lines = ["    a()"] * 400_000
    began = time.monotonic()
    assert condition_of(lines, 400_000) == ""  # type: ignore[no-untyped-call]
    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize(
    ("condition", "variables", "values", "is_here"),
    [
        ("while not os.path.exists(path)", {"path": "'/tmp/done'"}, ["path = '/tmp/done'"], True),
        ("while not exists('done')", {}, [], True),
        ("while not os.path.exists(path)", {"path": "<PosixPath at 0x7>"}, [], False),
        (
            "connect((host, port))",
            {"host": "'127.0.0.1'", "port": "29500"},
            ["host = '127.0.0.1'", "port = 29500"],
            True,
        ),
        ("connect((host, port))", {"host": "'nas1'", "port": "2049"}, ["host = 'nas1'", "port = 2049"], False),
        ("while not store.check([key])", {"key": "'ckpt/6'"}, ["key = 'ckpt/6'"], True),
        ("while not done(token)", {"token": "'abc/def'"}, [], False),
        ("while not done(url)", {"url": "'https://u:p@h/x?sig=1'"}, [], False),
        ("while not done(path)", {"other": "'/tmp/x'"}, [], False),
    ],
)
def test_the_values_that_a_condition_names(
    condition: str, variables: dict[str, str], values: list[str], is_here: bool
) -> None:
    rows = [{"name": name, "repr": text, "arg": False} for name, text in variables.items()]
    assert values_of(os.getpid(), condition, rows, True) == [values, is_here]  # type: ignore[no-untyped-call]


def test_the_loop_of_a_process_that_sleeps(tmp_path: Path) -> None:
    """A file that its user may not read, and one that is none, show no line."""
    script = tmp_path / "wait.py"
    script.write_text("import os, time\nwhile not os.path.exists(name):\n    time.sleep(1)\n")
    frames = [{"filename": str(script), "line": 3, "locals": [{"name": "name", "repr": "'/tmp/x'", "arg": False}]}]
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = polled(process.pid, frames, True)  # type: ignore[no-untyped-call]
        at_folder = polled(process.pid, [{**frames[0], "filename": str(tmp_path)}], True)  # type: ignore[no-untyped-call]
        process.kill()
    assert (found, at_folder) == (["while not os.path.exists(name)", ["name = '/tmp/x'"], True], None)
