"""The live view of a check: its hosts, which of them have answered, and what was found so far."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from doctor.engine.language import localized, localized_filled
from doctor.engine.record import HostRecord
from doctor.engine.texts import filled
from doctor.report.layout.formatting import duration
from doctor.report.layout.progress_line import stage_words
from doctor.report.layout.terminal import detect_terminal
from doctor.report.live.live_frame import LiveRow, LiveView, render_frame
from doctor.report.live.live_screen import LiveScreen, open_screen

INTERVAL = 0.5
"""Seconds between two frames."""
LATE_SECONDS = 10.0
"""From which on a host without an answer is one to look at."""
FOOTER = "q closes this view; the check goes on, and its report follows"


class LiveHosts:
    """Takes what `doctor.session.examine.examine` tells, and draws by a thread of its own."""

    def __init__(self, screen: LiveScreen, title: str, hosts: Sequence[str]) -> None:
        self.screen, self.title, self.hosts = screen, title, hosts
        self._terminal = detect_terminal(sys.stderr, "auto", os.environ)
        self._began = time.monotonic()
        self._answers: dict[str, tuple[float, str]] = {}
        """By host: after how many seconds, and why it could not be reached; empty where it answered."""
        self._notes: list[str] = []
        self._stage = ""
        self.live = True
        """As of `doctor.report.layout.progress_line.ProgressLine`, in whose place it stands."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._draw_all, daemon=True)
        self._thread.start()

    def step(self, host: str, record: HostRecord) -> None:
        why = (record.visit.text or record.visit.failure) if record.visit.failure else ""
        self._answers[host] = time.monotonic() - self._began, why

    def stage(self, name: str, seconds: float) -> None:
        """As `stage_words`."""
        self._stage = stage_words(name, seconds)

    def note(self, text: str) -> None:
        self._notes.append(text)

    def close(self) -> None:
        """The terminal as it was. May be called twice."""
        self._ended.set()
        self._thread.join()
        self.screen.close()

    def _draw_all(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause) and self.screen.visible:
            began = time.monotonic()
            self.screen.resize()
            self.screen.draw(render_frame(self.view(), self.screen.size, self._terminal, self.screen.held_lines(6)))
            pause = max(INTERVAL, 10 * (time.monotonic() - began))

    def view(self) -> LiveView:
        answers, seconds = dict(self._answers), time.monotonic() - self._began
        lost = sum(bool(why) for _, why in answers.values())
        state = filled(
            "{0} of {1} answered, {2} could not be reached; {3}",
            len(answers) - lost,
            len(self.hosts),
            lost,
            duration(seconds),
        )
        if self._stage:
            state = filled("{0}; {1}", state, self._stage)
        rows = host_rows(self.hosts, answers, seconds)
        return LiveView(
            self.title,
            state,
            (localized("host"), localized("after"), localized("state")),
            rows,
            tuple(self._notes),
            FOOTER,
        )


def host_rows(hosts: Sequence[str], answers: Mapping[str, tuple[float, str]], seconds: float) -> list[LiveRow]:
    """A row for each host: first those that could not be reached, then those without an answer."""
    rows = []
    for host in hosts:
        after, why = answers.get(host, (seconds, ""))
        if host not in answers:
            cells = (host, duration(after), "no answer yet")
            rows.append(LiveRow(cells, 1 if after >= LATE_SECONDS else 2, 1.0, "no answer yet"))
        elif why:
            text = filled("could not be reached: {0}", localized_filled(why))
            rows.append(LiveRow((host, duration(after), text), 0, 0.0, "could not be reached"))
        else:
            rows.append(LiveRow((host, duration(after), "has answered"), 2, 0.0, "has answered"))
    return rows


def open_live_hosts(command: str, source: str, hosts: Sequence[str]) -> LiveHosts | None:
    """The view; None where there can be none, with one line on stderr."""
    screen = open_screen(command, os.environ)
    return LiveHosts(screen, f"doctor {command}: {localized_filled(source)}", hosts) if screen else None
