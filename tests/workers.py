"""Tests in several processes: ``-n 6`` forks six workers from the one process that has collected the tests.

A worker takes one group of tests after the other (see `tests.scheduling`), the longest first, and sends its reports to
that process. pytest-xdist starts an interpreter for each worker, which imports and collects all tests again: 5 CPU s a
worker, and 1 ms a test for what is sent. It is not used.

On a machine that others use, too, a test can fail because of them. DOCTOR_TEST_REPEAT=3 has up to three failed tests
run again, one after the other, when all others have ended: one that passes then is named, with why it failed before.
With more failures than that nothing is repeated.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Iterable
from multiprocessing.connection import Connection, Pipe, wait
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from _pytest.config import create_terminal_writer

from tests.scheduling import group_of

END_SECONDS = 15.0
"""For the workers of an interrupted run to end their hosts."""
POLL_SECONDS = 1.0


def add_option(parser: pytest.Parser) -> None:
    group = parser.getgroup("workers", "test workers")
    group._addoption("-n", "--workers", type=int, default=0, metavar="N", help="Run the tests in N forked processes.")


class Worker:
    """A forked process, as the one that collected the tests sees it."""

    def __init__(self, pid: int, connection: Connection) -> None:
        self.pid, self.connection = pid, connection
        self.remaining: deque[int] = deque()
        """Numbers of the tests that it was given and has not finished; the first one runs."""
        self.error = ""
        """The traceback with which pytest itself failed in it, as where time ends while a failure is put into words."""


class Workers:
    """A pytest plugin: has the collected tests run by forked workers."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.workers: list[Worker] = []
        self.groups: deque[list[int]] = deque()
        self.repeats = int(os.environ.get("DOCTOR_TEST_REPEAT", "0"))
        self.failed: dict[int, list[pytest.TestReport]] = {}
        """Reports of the tests that may run again, by number."""
        self.before: dict[int, list[pytest.TestReport]] = {}
        self.passed_alone: list[pytest.TestReport] = []
        """Of tests that passed when they ran again: why they failed before."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        option = session.config.option
        if option.collectonly or (session.testsfailed and not option.continue_on_collection_errors):
            return None  # pytest's own loop has the words for it
        self.groups = groups_of(item.nodeid for item in session.items)
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # one for all workers
        try:
            for _ in range(min(self.count, len(self.groups))):
                self.start(session)
            while self.workers:
                self.serve(session)
            self.repeat(session)
        finally:
            self.interrupt()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def repeat(self, session: pytest.Session) -> None:
        """Runs the failed tests again, each in its turn; those that fail again have failed."""
        self.before, self.failed, self.repeats = self.failed, {}, 0
        self.groups = deque([number] for number in self.before)
        if self.groups:
            self.start(session)
        while self.workers:
            self.serve(session)

    def give_up_repeating(self, session: pytest.Session) -> None:
        for reports in self.failed.values():
            _log(session, reports)
        self.failed, self.repeats = {}, 0

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for report in self.passed_alone:
            terminalreporter.section(f"failed beside others, and passed alone: {report.nodeid}")
            terminalreporter.write_line(report.longreprtext)

    def start(self, session: pytest.Session) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # no worker is left behind unknown
        try:
            pid = os.fork()
            if pid:
                self.workers.append(Worker(pid, ours))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if pid == 0:
            for connection in [ours, *(worker.connection for worker in self.workers)]:
                connection.close()
            self.workers.clear()
            run_worker(session, theirs)
        theirs.close()

    def serve(self, session: pytest.Session) -> None:
        """Answers the workers that have sent something, and replaces those that have died."""
        ready = wait([worker.connection for worker in self.workers], POLL_SECONDS)
        for worker in list(self.workers):
            try:
                if worker.connection in ready:
                    self.receive(session, worker)
                elif not ready and os.waitpid(worker.pid, os.WNOHANG)[0]:
                    raise EOFError  # what it started holds its end of the connection
            except (EOFError, ConnectionError):
                self.end(session, worker)

    def receive(self, session: pytest.Session, worker: Worker) -> None:
        """Raises: EOFError, ConnectionError, when the worker has ended."""
        name, value = worker.connection.recv()
        if name == "next group":
            stopped = session.shouldfail or session.shouldstop
            group = self.groups.popleft() if self.groups and not stopped else []
            worker.remaining += group
            worker.connection.send(group)
        elif name == "finished":
            number, hook = worker.remaining.popleft(), session.config.hook
            reports = [hook.pytest_report_from_serializable(config=session.config, data=data) for data in value]
            self.finished(session, number, reports)
        elif name == "stopped":
            worker.remaining.clear()
        elif name == "warning":
            arguments = {"warning_message": warnings.WarningMessage(*value[0]), "when": "runtest"}
            more = {"nodeid": value[1], "location": value[2]}
            session.config.hook.pytest_warning_recorded.call_historic(kwargs={**arguments, **more})
        else:
            worker.error = value

    def finished(self, session: pytest.Session, number: int, reports: list[pytest.TestReport]) -> None:
        """Reports a test, or keeps its failure until it has run again."""
        has_failed = any(report.failed for report in reports)
        if has_failed and self.repeats:
            self.failed[number] = reports
            if len(self.failed) > self.repeats:
                self.give_up_repeating(session)
            return
        if not has_failed:
            self.passed_alone += [report for report in self.before.get(number, ()) if report.failed]
        _log(session, reports)

    def end(self, session: pytest.Session, worker: Worker) -> None:
        """A worker has ended. The test in which it died has failed; another worker runs what it has left."""
        self.workers.remove(worker)
        worker.connection.close()
        status = "unknown"
        with contextlib.suppress(ChildProcessError):  # it was waited for already
            status = str(os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1]))
        if not worker.remaining:
            return
        number = worker.remaining.popleft()
        item = session.items[number]
        text = f"the worker died in this test: exit status {status}\n{worker.error}".rstrip()
        self.finished(session, number, [pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")])
        if worker.remaining:
            self.groups.appendleft(list(worker.remaining))
        if self.groups:
            self.start(session)

    def interrupt(self) -> None:
        """Ends the workers that are left, if any, and their hosts with them."""
        for number in (signal.SIGINT, signal.SIGKILL):
            for worker in self.workers:
                worker.connection.close()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, number)
            deadline = time.monotonic() + END_SECONDS
            while self.workers and time.monotonic() < deadline:
                self.workers = [worker for worker in self.workers if not _has_ended(worker.pid)]
                time.sleep(0.02)


def _log(session: pytest.Session, reports: Iterable[pytest.TestReport]) -> None:
    for report in reports:
        session.config.hook.pytest_runtest_logreport(report=report)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def groups_of(nodeids: Iterable[str]) -> deque[list[int]]:
    """The numbers of the tests, group by group, in the order of their first tests."""
    groups: dict[str, list[int]] = {}
    for number, nodeid in enumerate(nodeids):
        groups.setdefault(group_of(nodeid), []).append(number)
    return deque(groups.values())


# ---- in a worker


class Sender:
    """A pytest plugin: sends what is reported to the process that collected the tests."""

    def __init__(self, session: pytest.Session, connection: Connection) -> None:
        self.session, self.connection = session, connection
        self.reports: list[dict[str, Any] | None] = []
        """Of the test that runs: they are sent together when it has finished."""
        self.registering = True
        session.config.pluginmanager.register(self, "sender")  # hears of all warnings so far, which are known
        self.registering = False

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self.session.config
        self.reports.append(config.hook.pytest_report_to_serializable(config=config, report=report))

    @pytest.hookimpl
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, nodeid: str, location: Any) -> None:
        of = warning_message
        if not self.registering:
            self.connection.send(
                ("warning", ((str(of.message), of.category, of.filename, of.lineno), nodeid, location))
            )

    def next_group(self) -> list[int]:
        self.connection.send(("next group", None))
        group: list[int] = self.connection.recv()
        return group

    def run(self) -> None:
        """Runs groups until there are none. The next one is asked for before the last test: fixtures may serve both."""
        items, remaining = self.session.items, deque(self.next_group())
        while remaining:
            item = items[remaining.popleft()]
            if not remaining:
                remaining += self.next_group()
            following = items[remaining[0]] if remaining else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self.connection.send(("finished", self.reports))
            self.reports = []
            if self.session.shouldfail or self.session.shouldstop:
                self.connection.send(("stopped", None))
                break


def run_worker(session: pytest.Session, connection: Connection) -> NoReturn:
    """The whole life of a worker."""
    status = 1
    try:
        _become_worker(session.config)
        sender = Sender(session, connection)
        try:
            sender.run()
            status = 0
        except (EOFError, BrokenPipeError, KeyboardInterrupt):  # interrupted, or nobody listens
            pass
        except BaseException:  # noqa: BLE001 - it is raised again where it is shown
            with contextlib.suppress(OSError):
                connection.send(("failed", traceback.format_exc()))
        finally:
            session._setupstate.teardown_exact(None)
            atexit._run_exitfuncs()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _become_worker(config: pytest.Config) -> None:
    """What two processes cannot share: files of captured output, the terminal, random numbers, work at the end."""
    atexit._clear()
    random.seed()
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    config.pluginmanager.unregister(name="terminalreporter")
    # Where a plugin writes to the terminal, such as the stacks of a test that takes too long, the test's output has it.
    writer = SimpleNamespace(_tw=create_terminal_writer(config, sys.stdout))
    config.pluginmanager.register(writer, "terminalreporter")
