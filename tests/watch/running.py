"""Starts `doctor watch` around commands, as a user does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests import preloaded

PROGRAM = Path(__file__).with_name("program.py")
LIMIT = 300
"""Seconds for a command on a machine under load."""


class Watched(NamedTuple):
    """What `doctor watch` came to."""

    code: int
    stdout: str
    stderr: str
    report: dict[str, Any]
    """The JSON report; empty where there is none."""

    @property
    def failure(self) -> dict[str, Any]:
        failures = (self.report.get("smoke") or {}).get("failures") or [{}]
        return dict(failures[0])

    def stack(self, rank: int) -> str:
        """Of a rank, as the failure has it."""
        return next((stack["text"] for stack in self.failure["stacks"] if stack["rank"] == rank), "")

    @property
    def found_ranks(self) -> dict[str, list[int]]:
        """By check that failed: the ranks of its first finding."""
        failed = [outcome for outcome in self.report["outcomes"] if outcome["findings"]]
        return {outcome["check"]: outcome["findings"][0]["values"]["ranks"] for outcome in failed}


def doctor_watch(*command: str, options: tuple[str, ...] = (), folder: Path, **environ: str) -> Watched:
    """Runs the command under `doctor watch`, with a JSON report in ``folder``."""
    file = folder / "report.json"
    argv = [sys.executable, "-m", "doctor", "watch", "-q", "-f", f"json={file}", *options, "--", *command]
    done = preloaded.run(argv, capture_output=True, text=True, timeout=LIMIT, env={**os.environ, **environ})
    report = json.loads(file.read_text()) if file.exists() else {}
    return Watched(done.returncode, done.stdout, done.stderr, report)


def training(*arguments: object) -> tuple[str, ...]:
    """The command of the tests' own program; see `tests.watch.program`."""
    return (sys.executable, str(PROGRAM), *map(str, arguments))
