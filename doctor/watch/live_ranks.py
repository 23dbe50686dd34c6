"""The live view of a watched job: its ranks, what each of them does, and what was found."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from doctor.engine.language import localized
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled
from doctor.engine.watch_summary import LossVerdict
from doctor.report.layout.formatting import duration
from doctor.report.layout.terminal import detect_terminal
from doctor.report.live.live_frame import LiveRow, LiveView, render_frame
from doctor.report.live.live_screen import LiveScreen
from doctor.smoke.model import Snapshot
from doctor.watch.loss.log_watch import verdict_line
from doctor.watch.training import Training

INTERVAL = 0.5
"""Seconds between two frames."""
RECENT_STEPS = 20
QUIET_SECONDS = 10.0
"""Without a sign, from which on a rank is one to look at."""
FOOTER = "q closes this view; the job goes on, and its output follows"
_DOES = {"start": "is starting", "input": "reads its input", "compute": "computes", "done": "has finished"}


class LiveRanks:
    """Draws each `INTERVAL`, as long as the user has not closed the view; nothing where there is none."""

    def __init__(self, screen: LiveScreen | None, title: str) -> None:
        self.screen, self.title = screen, title
        self._terminal = detect_terminal(sys.stderr, "auto", os.environ)
        self._began = time.monotonic()
        self._next = 0.0
        self._pace: list[tuple[float, int]] = []
        """When which step was the slowest rank's: of the last minute."""

    def draw(self, trainings: Sequence[Training], loss_verdicts: Callable[[], Sequence[LossVerdict]]) -> None:
        now = time.monotonic()
        if now < self._next or self.screen is None or not self.screen.visible:
            return
        losses = [verdict_line(verdict) for verdict in loss_verdicts()]
        output = self.screen.held_lines(6)
        state = filled("no rank was seen yet; {0}", duration(now - self._began))
        empty = LiveView(self.title, state, _columns(), (), losses, FOOTER)
        view = self._view(trainings[-1], losses, now) if trainings else empty
        self.screen.resize()
        self.screen.draw(render_frame(view, self.screen.size, self._terminal, output))
        self._next = time.monotonic() + max(INTERVAL, 10 * (time.monotonic() - now))

    def _view(self, training: Training, losses: Sequence[str], now: float) -> LiveView:
        step = min(training.watch.steps.values(), default=0)
        self._pace = [(when, before) for when, before in self._pace if now - when < 60 and before <= step]
        self._pace.append((now, step))
        start, before = self._pace[0]
        pace = filled("{0} steps/s", f"{(step - before) / (now - start):.2f}") if now - start > 1 else "-"
        ranks, hosts = count_noun(training.world, "rank"), count_noun(len(set(training.hosts.values())), "host")
        place = (len(training.hosts), ranks, hosts, step, pace, duration(now - self._began))
        state = filled("{0} of {1} on {2}, step {3}, {4}; {5}", *place)
        return LiveView(self.title, state, _columns(), rank_rows(training), (*verdicts_of(training), *losses), FOOTER)


def _columns() -> tuple[str, ...]:
    names = (localized("rank"), localized("host"), localized("step"), localized("s/step"))
    return (*names, localized("quiet"), localized("state"))


def verdicts_of(training: Training) -> list[str]:
    """What was found in a training so far, and what is only likely."""
    texts = []
    if training.failure is not None:
        texts.append(training.headline(training.failure))
    elif training.watch.likely is not None:
        texts.append(filled("likely {0}", training.headline(training.watch.likely)))
    if training.follower is not None and training.follower.verdict is not None:
        texts.append(training.follower.verdict.headline)
    return [*texts, *training.long_waits()]


def rank_rows(training: Training) -> list[LiveRow]:
    """A row for each rank of the job; those that no watch has seen, too."""
    watch = training.watch
    found = training.failure or watch.likely or watch.overdue
    culprits = frozenset(found.culprit_ranks) if found is not None else frozenset()
    work = training.usual_work(RECENT_STEPS)
    rows = []
    for rank in range(min(watch.world, 1 << 16)):
        snapshot = watch.snapshots.get(rank)
        host = training.hosts.get(rank, "")
        rows.append(_row(rank, host, snapshot, work, is_culprit=rank in culprits))
    return rows


def _row(rank: int, host: str, snapshot: Snapshot | None, work: Mapping[int, float], *, is_culprit: bool) -> LiveRow:
    if snapshot is None:
        return LiveRow((str(rank), host or "-", "-", "-", "-", "not seen yet"), 1, rest="not seen yet")
    pace = f"{work[rank]:.3f}" if rank in work else "-"
    does, rest = _does(snapshot)
    is_odd = bool(snapshot.dead and snapshot.dead != "exit status 0") or snapshot.process in "TtFXZ"
    trouble = 0 if is_culprit else 1 if is_odd or snapshot.age >= QUIET_SECONDS else 2
    weight = snapshot.age if trouble < 2 else 0.0
    cells = (str(rank), host, str(snapshot.step), pace, f"{snapshot.age:.0f} s", does)
    return LiveRow(cells, trouble, weight, rest)


def _does(snapshot: Snapshot) -> tuple[str, str]:
    """In words: with its place, and without."""
    if snapshot.dead and snapshot.dead != "exit status 0":
        return filled("has ended: {0}", snapshot.dead), "has ended"
    if snapshot.dead:
        return "has finished", "has finished"
    if snapshot.process in "TtF":
        return "is stopped", "is stopped"
    if snapshot.state == "collective":
        rest = filled("in {0}", snapshot.op or "a collective")
        return filled("in {0}, call {1}", snapshot.op or "a collective", snapshot.seq), rest
    return _DOES[snapshot.state], _DOES[snapshot.state]
