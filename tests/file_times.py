"""How long every test file takes: the slowest are printed, and one beyond the limit fails the run."""

from __future__ import annotations

import os

import pytest

from tests.scheduling import group_of

LIMIT = 60.0
"""Seconds of one test file, as on a machine with a core for each worker."""


class FileTimes:
    """A pytest plugin. With ``--full`` there is no limit; DOCTOR_TEST_FILE_SECONDS sets another (0: none)."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.seconds: dict[str, float] = {}
        self.limit = float(os.environ.get("DOCTOR_TEST_FILE_SECONDS", "0" if config.getoption("--full") else LIMIT))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = group_of(report.nodeid)  # a long file is divided among the workers
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration

    @property
    def dilation(self) -> float:
        """How much longer than on an idle machine all took: workers, or processes that want to run, for each core."""
        workers = self.config.getoption("workers") or 1
        return max(1.0, workers / (os.cpu_count() or 1), max(os.getloadavg()) / (os.cpu_count() or 1))

    def slow_files(self) -> list[str]:
        """The files that took longer than they may."""
        return [file for file, seconds in self.seconds.items() if 0 < self.limit < seconds / self.dilation]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.slow_files() and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        slowest = sorted(self.seconds.items(), key=lambda pair: -pair[1])[:15]
        if sum(self.seconds.values()) < 30:
            return
        terminalreporter.section("slowest test files")
        for file, seconds in slowest:
            limit = f"  FAILED: more than {self.limit:g} s; split it, or mark cases `full`"
            mark = limit if file in self.slow_files() else ""
            terminalreporter.line(f"{seconds / self.dilation:7.1f} s  {file}{mark}")
