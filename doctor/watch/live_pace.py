"""Compares a job's pace with that of its earlier runs while it goes on, and keeps it at its end.

Earlier runs are read and written in threads: the state folder may be on a file server that hangs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence

import msgspec

from doctor.analysis.outliers.own_past import LEAST_STEPS, compare_pace, pace_lines
from doctor.config.file import find_config, parse_history
from doctor.engine.errors import CommandError
from doctor.engine.watch_summary import PaceComparison, RunPace
from doctor.history.paces import PaceFolder, job_identity
from doctor.watch.training import Training

LOOK_SECONDS = 60.0
RECENT_STEPS = 100
"""The newest ones, by which a job that goes on is judged."""
FINISH_SECONDS = 10.0


class LivePace:
    """Of one watch."""

    def __init__(self, command_line: Sequence[str], environ: Mapping[str, str]) -> None:
        self.environ, self.job = environ, job_identity(command_line)
        self._earlier: list[RunPace] = []
        self._keeps = True
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self._next = LOOK_SECONDS
        self._reported: set[str] = set()

    def _read(self) -> None:
        with contextlib.suppress(OSError, CommandError):
            self._keeps = parse_history(find_config(None, self.environ), self.environ).keep
        with contextlib.suppress(OSError), PaceFolder.opened(self.environ, create=False) as folder:
            self._earlier = folder.runs(self.job) if folder and self._keeps else []

    def look(self, training: Training, seconds: float) -> list[str]:
        """What makes the job slower than in its earlier runs, each thing once. ``seconds``: since the job began."""
        if seconds < self._next or not training.decides:
            return []
        self._next = seconds + LOOK_SECONDS
        report = self._compare(training, RECENT_STEPS)
        if report is None:
            return []
        by_place = {
            f"{row.part} {row.ranks} {row.hosts}": line
            for row, line in zip(report.slow, pace_lines(report), strict=True)
        }
        lines = [line for place, line in by_place.items() if place not in self._reported]
        self._reported.update(by_place)
        return lines

    def _compare(self, training: Training, newest: int = 0) -> PaceComparison | None:
        """What the training's report says of its pace; None before there are enough steps to say anything."""
        now = training.run_pace(newest)
        is_known = training.decides and now.steps >= LEAST_STEPS
        training.pace_report = compare_pace(now, self._earlier) if is_known else None
        return training.pace_report

    def finish(self, training: Training) -> None:
        """The training has ended without a failure: its whole run is judged, and kept."""
        self._thread.join(FINISH_SECONDS)
        report = self._compare(training)
        if report is None:
            return
        kept = msgspec.structs.replace(report.now, is_slow=bool(report.slow or report.starved or report.longest))
        self._earlier = [*self._earlier, kept]
        if self._keeps:
            thread = threading.Thread(target=self._write, args=(kept,), daemon=True)
            thread.start()
            thread.join(FINISH_SECONDS)

    def _write(self, run: RunPace) -> None:
        with contextlib.suppress(OSError), PaceFolder.opened(self.environ, create=True) as folder:
            if folder:
                folder.add(self.job, run)
