"""Some tests take turns: of one group, every twenty-fourth runs for a commit; ``--full`` runs all.

Those marked `sample` are cases of one proof that cost seconds each: kinds of fault in a real training, launchers that
start one, further faults of a check. Those of `COSTLY` each take `COSTLY_SECONDS` of a core or more, as measured by
`tests.cpu_seconds`; what every commit must prove, such as that healthy hosts have no finding, is marked `every` and
takes no turns.

Which of them run follows from the commit alone, so that a run can be repeated; DOCTOR_TEST_SAMPLE names another
commit, or ``all``.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

PARTS = 24
ROOT = Path(__file__).resolve().parents[1]
COSTLY = Path(__file__).with_name("costly.txt")
"""Lines ``SECONDS NODEID``; made anew by ``pytest -n 6 --full --cpu-seconds tests/costly.txt``."""
COSTLY_SECONDS = 0.3


@functools.cache
def costly() -> dict[str, float]:
    """Seconds of a core that the tests of `COSTLY` take."""
    pairs = (line.split(" ", 1) for line in COSTLY.read_text(encoding="utf-8").splitlines())
    return {nodeid: float(seconds) for seconds, nodeid in pairs}


def commit() -> str:
    """The commit whose sample runs: that of the working tree; else the number of the day."""
    named = os.environ.get("DOCTOR_TEST_SAMPLE")
    if named:
        return named
    git = shutil.which("git")
    argv = [git or "", "rev-parse", "--short=8", "HEAD"]
    text = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() if git else ""
    return text or f"{int(time.time() // 86400):08x}"


def left_out(items: Sequence[pytest.Item], revision: str) -> set[pytest.Item]:
    """Those that another commit's sample has: of every `PARTS` marked tests of a class, or outside of classes, all but
    one; of a smaller group, too. And of every `PARTS` costly tests of a folder, with like shares of the seconds in
    each part; folders with fewer of them are one group with the files outside of folders. Of less than `PARTS` all run.

    ``revision``: hexadecimal digits, or ``all``, which leaves nothing out. A test that is asked for alone runs.

    Raises: ValueError for any other ``revision``.
    """
    if revision == "all":
        return set()
    turn = int(revision[:8], 16)
    marked: dict[str, list[pytest.Item]] = {}
    unmarked: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample"):
            marked.setdefault(item.nodeid.rpartition("::")[0].partition("[")[0], []).append(item)
        elif item.nodeid in costly() and not item.get_closest_marker("every"):
            unmarked.setdefault(folder_of(item.nodeid), []).append(item)
    small = [folder for folder, group in unmarked.items() if len(group) < PARTS]
    few = [item for folder in small for item in unmarked.pop(folder)]
    unmarked.setdefault("", []).extend(few)
    long = [group for group in unmarked.values() if len(group) >= PARTS]
    groups = [*marked.values(), *(sorted(group, key=lambda item: -costly()[item.nodeid]) for group in long)]
    return {item for group in groups for number, item in enumerate(group) if (number + turn) % min(PARTS, len(group))}


def folder_of(nodeid: str) -> str:
    """The folder below ``tests``, "" for a file in ``tests`` itself; a test's parameters may have slashes, too.

    >>> folder_of("tests/net/test_agent.py::test_ends[/dev/null]")
    'net'
    """
    folders = nodeid.partition("::")[0].split("/")[1:-1]
    return folders[0] if folders else ""
