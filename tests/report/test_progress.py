from __future__ import annotations

import io

import pytest

from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord
from doctor.report.layout import progress_line
from doctor.report.layout.progress_line import ProgressLine

FINE, LOST = HostRecord(Visit()), HostRecord(Visit("refused", "connection refused"))


@pytest.fixture(autouse=True)
def capable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that can wipe a line, whatever the tests run in."""
    monkeypatch.setenv("TERM", "xterm")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_counts_hosts_and_leaves_no_trace() -> None:
    stream = Terminal()
    observed_progress_line = ProgressLine(2, stream)
    observed_progress_line.step("a", FINE)
    observed_progress_line.step("b", LOST)
    assert stream.getvalue().endswith("\r1 of 2 hosts answered, 1 could not be reached\x1b[K")
    observed_progress_line.close()
    observed_progress_line.close()
    assert stream.getvalue().endswith("\x1b[K\r\x1b[K")


def test_it_writes_nothing_where_nobody_watches() -> None:
    stream = io.StringIO()
    for watched in (stream, None):
        observed_progress_line = ProgressLine(1, watched)
        observed_progress_line.step("a", FINE)
        observed_progress_line.close()
    assert stream.getvalue() == ""


def test_it_writes_nothing_where_a_line_cannot_be_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    observed_progress_line = ProgressLine(1, stream)
    observed_progress_line.step("a", FINE)
    observed_progress_line.close()
    assert stream.getvalue() == ""


def test_one_host_is_in_the_singular() -> None:
    stream = Terminal()
    ProgressLine(1, stream)
    assert stream.getvalue() == "\r0 of 1 host answered\x1b[K"


def test_it_writes_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line.time, "monotonic", lambda: 0.0)
    stream = Terminal()
    observed_progress_line = ProgressLine(1000, stream)
    for number in range(1000):
        observed_progress_line.step(str(number), FINE)
    assert stream.getvalue().count("\r") == 2


def test_a_terminal_that_is_gone_ends_no_run() -> None:
    class ClosedTerminal(Terminal):
        def write(self, text: str) -> int:
            raise OSError("gone")

    observed_progress_line = ProgressLine(1, ClosedTerminal())
    observed_progress_line.step("a", FINE)
    observed_progress_line.close()


def test_no_bar_is_there_for_files_that_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress_line.time, "monotonic", lambda: clock[0])
    stream = Terminal()
    bar = ProgressLine(1, stream, hosts=False)
    clock[0] += 0.9
    bar.read(500, 1000)
    assert stream.getvalue() == ""
    clock[0] += 0.3
    bar.read(900, 1000)
    assert "90% of 1000 B read" in stream.getvalue()


def test_the_stages_of_a_smoke_run_take_its_place() -> None:
    stream = Terminal()
    observed_progress_line = ProgressLine(1, stream)
    observed_progress_line.step("a", FINE)
    observed_progress_line.stage("", 0.0)
    assert stream.getvalue().endswith("\rsmoke run: starting\x1b[K")
    observed_progress_line.stage("pairs\x1b[2J", 2.31)
    assert stream.getvalue().endswith("\rsmoke run: pairs done after 2.3 s\x1b[K")
    observed_progress_line.close()
    assert stream.getvalue().endswith("\r\x1b[K")
    silent = io.StringIO()
    ProgressLine(1, silent).stage("pairs", 2.0)
    assert silent.getvalue() == ""
