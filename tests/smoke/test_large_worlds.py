"""Sixty-four and more real ranks on this machine: no false alarm, however few CPUs they share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.full]
ROOT = Path(__file__).resolve().parents[2]
RANK_BYTES = 100 << 20
"""Memory of a rank of its own, at most: what it shares with the others is counted once."""


@pytest.mark.timeout(700)
@pytest.mark.parametrize("world", [64, 128])
def test_a_healthy_run(world: int) -> None:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if free < world * RANK_BYTES:
        pytest.skip(f"{world} ranks need {world * RANK_BYTES >> 30} GB of memory; {free >> 30} GB are free")
    layouts = [f"dp={world}", f"dp={world // 8},tp=8", f"pp=2,dp={world // 2}"]
    argv = [sys.executable, "-m", "doctor", "smoke", "--json", "--ranks-per-host", str(world), "--budget", "600"]
    argv += [word for layout in layouts for word in ("--layout", layout)] + ["--max-bytes", "64K", "--steps", "2"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=690)
    report = json.loads(done.stdout)
    assert report["smoke"]["ended"] == "complete", report["smoke"]["failures"]
    errors = [
        outcome["check"] for outcome in report["outcomes"] if outcome["findings"] and outcome["severity"] == "error"
    ]
    assert not errors
