"""Tests marked `sample` take turns: of those of one group, every fifth runs for a commit; ``--full`` runs all.

They are cases of one proof that cost seconds each: kinds of fault in a real training, launchers that start one, further
faults of a check. Which of them run follows from the commit alone, so that a run can be repeated; DOCTOR_TEST_SAMPLE
names another commit, or ``all``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

PARTS = 5
ROOT = Path(__file__).resolve().parents[1]


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
    """Those that another commit's sample has: four fifths of the marked tests of a class, or outside of classes;
    of a group of fewer than five, all but one.

    ``revision``: hexadecimal digits, or ``all``, which leaves nothing out. A test that is asked for alone runs.

    Raises: ValueError for any other ``revision``.
    """
    if revision == "all":
        return set()
    turn = int(revision[:8], 16)
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample"):
            groups.setdefault(item.nodeid.rpartition("::")[0].partition("[")[0], []).append(item)
    return {
        item
        for group in groups.values()
        for number, item in enumerate(group)
        if (number + turn) % min(PARTS, len(group))
    }
