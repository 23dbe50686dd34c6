"""Keeps each run in the history, and tells since when its findings are there. Never fails a run, nor slows one.

All of it happens in a thread that is given up once it is blocked for a while: a home folder may be on a file server
that hangs. A busy machine alone costs no record. The run is written before earlier ones are read.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from doctor.config.file import HistorySettings, find_config, parse_history
from doctor.engine.report_parts import AgeKey, FindingAge
from doctor.engine.result import Report
from doctor.engine.texts import filled
from doctor.history.run_record import FLEET, LOCAL, RunRecord, RunView, make_record, recorded_names
from doctor.history.run_store import HistoryFolder, NoHistory, current_time, open_history
from doctor.remote.runtime.reading import schedule
from doctor.session.output_files import print_warning

if TYPE_CHECKING:
    from datetime import datetime

    from doctor.engine.check import Check
    from doctor.report.diff.values import RunValues

HISTORY_SECONDS = 1.0
"""Seconds for which reading and writing may be blocked."""
MOST_SECONDS = 30.0
"""Seconds for all of it, also on a machine that is busy."""


class HistoryOptions(msgspec.Struct, frozen=True):
    """How one run is kept."""

    command: str
    """The command's name."""
    config: Path | None = None
    """The settings file that was named."""
    seconds: float = HISTORY_SECONDS
    """For which it may be blocked."""
    most_seconds: float = MOST_SECONDS
    """In all."""
    quiet: bool = False
    """Nothing is said of a run that could not be kept."""
    code: int | None = None
    """The exit code of the run; None: as without options."""


def remember(
    report: Report,
    checks: Iterable[Check],
    options: HistoryOptions,
    *,
    tells_ages: bool = True,
    keeps: bool = True,
    values: RunValues | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Report:
    """Keeps the run, and returns ``report`` with the ages of its findings; without ages it is ``report`` itself.

    What hosts are predicted to be after a reboot is neither kept nor compared with what they were.
    ``values``: settings and versions that are kept with it.
    One line on stderr where the run could not be kept; none where there is no home folder.
    """
    if not report.hosts or report.after_reboot:
        return report
    worker = _Worker(report, checks, options, environ, tells_ages, keeps, values)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    ended = join_unless_blocked(thread, options.seconds, options.most_seconds)
    limit = f"{min(options.seconds, options.most_seconds):g}"
    problem = worker.problem if ended else filled("no answer within {0} s", limit)
    if problem and keeps and not options.quiet and not worker.is_kept:
        print_warning(filled("history: {0}; this run is not saved", problem))
    return msgspec.structs.replace(report, ages=worker.ages) if worker.ages else report


class _Worker:
    """What the thread does, and what came of it."""

    def __init__(
        self,
        report: Report,
        checks: Iterable[Check],
        options: HistoryOptions,
        environ: Mapping[str, str],
        tells_ages: bool,
        keeps: bool,
        values: RunValues | None = None,
    ) -> None:
        self.values = values
        self.report, self.checks, self.options, self.environ = report, checks, options, environ
        self.tells_ages, self.keeps = tells_ages, keeps
        self.ages: Mapping[AgeKey, FindingAge] = {}
        self.problem = ""
        self.is_kept = False

    def run(self) -> None:
        try:
            self._run()
        except OSError as error:
            self.problem = error.strerror or str(error)
        except Exception as error:  # noqa: BLE001 - the report matters more than any error here
            self.problem = str(error) or type(error).__name__

    def _run(self) -> None:
        settings = history_settings(self.options.config, self.environ)
        if not settings.keep:
            return
        try:
            with open_history(self.environ, create=self.keeps) as folder:
                earlier_names = folder.names()
                try:
                    if self.keeps:
                        now = current_time()
                        self._keep(folder, now)
                        folder.prune(settings, now)
                finally:
                    if self.tells_ages and any(outcome.findings for outcome in self.report.outcomes):
                        self._read_ages(folder, earlier_names)
        except NoHistory as error:
            self.problem = str(error)

    def _keep(self, folder: HistoryFolder, now: datetime) -> None:
        values = self._encoded_values()
        folder.write(self._record(values), now)
        self.is_kept = True

    def _record(self, values: bytes) -> RunRecord:
        options = self.options
        return make_record(self.report, self.checks, options.command, machine_name(), values, options.code)

    def _encoded_values(self) -> bytes:
        if self.values is None:
            return b""
        from doctor.history.kept_values import encode_values

        names = recorded_names(self.values.hosts, machine_name())
        hosts = {names[host]: by_fact for host, by_fact in self.values.hosts.items()}
        try:
            return encode_values(msgspec.structs.replace(self.values, hosts=hosts))
        except ValueError:  # the run is worth keeping without them
            return b""

    def _read_ages(self, folder: HistoryFolder, earlier_names: Sequence[str]) -> None:
        # Two runs may begin in one second.
        earlier = [run for run in folder.newest(MAX_RUNS, earlier_names) if run.started <= self.report.started]
        self.ages = ages(self.report, [RunView(run) for run in earlier], machine_name())


def machine_name() -> str:
    """What this machine is called in records."""
    return os.uname().nodename.partition(".")[0] or "localhost"


def history_settings(config: Path | None, environ: Mapping[str, str]) -> HistorySettings:
    """The settings that hold. Raises: ConfigError."""
    return parse_history(find_config(config, environ), environ)


def keeps_settings(options: HistoryOptions | None) -> bool:
    """Whether runs are to read and keep every setting: ``values = true`` of doctor.toml. Raises: ConfigError."""
    if options is None:
        return False
    settings = history_settings(options.config, os.environ)
    return settings.keep and settings.values


MAX_INTERVAL_SECONDS = 0.05
"""Seconds between two readings of what the thread did."""


def join_unless_blocked(thread: threading.Thread, blocked_seconds: float, most_seconds: float) -> bool:
    """Whether the thread ended before it was blocked for ``blocked_seconds``, and within ``most_seconds`` in all.

    A thread is blocked while it neither runs nor waits for a CPU: while a file system does not answer. Where the
    kernel does not count that (no ``schedstat``), all time is taken for blocked.
    """
    start = time.monotonic()
    interval = min(MAX_INTERVAL_SECONDS, blocked_seconds)
    while True:
        thread.join(interval)
        elapsed = time.monotonic() - start
        blocked = elapsed - cpu_seconds(thread)
        if not thread.is_alive():  # asked after its times, which are lost with the thread
            return True
        if elapsed >= most_seconds or blocked >= blocked_seconds:
            return False


def cpu_seconds(thread: threading.Thread) -> float:
    """Seconds for which the thread ran, or could have run and had no CPU; 0 where they are not known."""
    return float(sum(schedule(f"/proc/self/task/{thread.native_id}"))) / 1e9


MAX_RUNS = 20
"""Earlier runs that are asked."""


def ages(report: Report, earlier: Sequence[RunView], machine: str = LOCAL) -> Mapping[AgeKey, FindingAge]:
    """The age of each finding, by check and host; none for one that earlier runs say nothing certain of.

    ``earlier``: the runs before this one, newest first. A finding is new only where the last run that had its check
    and its host looked, and found nothing. ``machine``: the name of this machine, which a report may call localhost.
    """
    recorded = recorded_names(report.hosts, machine)
    fleet = frozenset(recorded.values())
    keys = {
        (outcome.check, host)
        for outcome in report.outcomes
        for finding in outcome.findings
        for host in finding.hosts or (FLEET,)
    }
    ages_by_key = {key: _age(key[0], recorded.get(key[1], key[1]), fleet, earlier) for key in sorted(keys)}
    return {key: age for key, age in ages_by_key.items() if age is not None}


def _age(check: str, host: str, fleet: frozenset[str], earlier: Sequence[RunView]) -> FindingAge | None:
    comparable = [run for run in earlier if run.is_comparable(check, host, fleet)]
    if not comparable or comparable[0].state(check, host) is None:
        return None
    states = [(run.record.started, state) for run in comparable if (state := run.state(check, host))]
    present = [state != "clear" for _, state in states]
    streak = present.index(False) if False in present else len(present)
    before = present[streak:]
    times = 1 + sum(present and not later for later, present in pairwise(before))
    if not streak:
        return FindingAge("new", states[0][0], times=times)
    return FindingAge("present", states[streak - 1][0], streak + 1, not before, times)
