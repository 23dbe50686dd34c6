"""The live job as Prometheus metrics, for the textfile collector of node_exporter.

The file is replaced as a whole each `INTERVAL`, by the host that decides over the job: the leading one of several.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from doctor.config.atomic_write import write_atomic
from doctor.engine.texts import filled
from doctor.smoke.model import UNKNOWN_HOST
from doctor.watch.command import warn
from doctor.watch.training import Training

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Gauge

INTERVAL = 10.0
"""Seconds between two writings."""
MOST_RANKS = 2048
"""Ranks that have series of their own."""
RECENT_STEPS = 20
"""Median compute time per rank over the latest steps."""
SPENT = ("compute", "collective", "input")
PARTS = ("input", "compute", "wait", "network", "unsplit", "cpu_wait")


class LiveMetrics:
    """Writes the file of one watch. ``path`` empty: none."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._next = time.monotonic() + INTERVAL
        self._last: tuple[float, int] | None = None
        """When the file was written last, and the step of the slowest rank then."""
        self._failed = False

    def write_each_interval(self, trainings: Sequence[Training], reported: Mapping[int, int]) -> None:
        """`write`, where it is time for it."""
        if self.path and time.monotonic() >= self._next:
            self._next = time.monotonic() + INTERVAL
            self.write(trainings, reported, running=True)

    def write(self, trainings: Sequence[Training], reported: Mapping[int, int], *, running: bool) -> None:
        """``trainings``: the newest one, or none. A file that cannot be written is said once, and the watch goes on."""
        if not self.path or any(not training.decides for training in trainings):
            return
        try:
            write_atomic(self.path, self.text(trainings, reported, running=running), 0o644)
        except OSError as error:
            if not self._failed:
                warn(filled("--prometheus {0}: {1}", self.path, error.strerror or error))
            self._failed = True

    def text(self, trainings: Sequence[Training], reported: Mapping[int, int], *, running: bool) -> bytes:
        """The file."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        gauge(registry, "running", "1 while the watched command runs.").set(int(running))
        gauge(registry, "timestamp_seconds", "When this file was written, in seconds since the epoch.").set(time.time())
        gauge(registry, "fault", "1 after a fault was found in the job, else 0.").set(int(any(reported.values())))
        for training in trainings:
            self._job(registry, training)
            _ranks(registry, training)
        return generate_latest(registry)

    def _job(self, registry: CollectorRegistry, training: Training) -> None:
        watch, now = training.watch, time.monotonic()
        gauge(registry, "ranks", "Ranks of the job.").set(watch.world)
        gauge(registry, "ranks_seen", "Ranks that a watch has seen.").set(len(training.hosts))
        gauge(registry, "hosts", "Hosts whose ranks were seen.").set(len(set(training.hosts.values())))
        step = min(watch.steps.values(), default=0)
        gauge(registry, "step", "Steps that every rank has finished.").set(step)
        before, step_before = self._last or (training.began, 0)
        pace = max(step - step_before, 0) / max(now - before, 1e-3)
        gauge(registry, "steps_per_second", "Steps a second since this file was written before.").set(pace)
        self._last = (now, step)


def _ranks(registry: CollectorRegistry, training: Training) -> None:
    labels = ("rank", "host")
    spent = gauge(registry, "rank_seconds", "Seconds that a rank has spent, by state.", *labels, "state")
    steps = gauge(registry, "rank_step", "Steps that a rank has finished.", *labels)
    quiet = gauge(registry, "rank_quiet_seconds", "Seconds since a rank last gave a sign.", *labels)
    work_times = gauge(registry, "rank_work_seconds", "Usual seconds of a rank's own work in a step.", *labels)
    for rank in sorted(training.hosts)[:MOST_RANKS]:
        place = (str(rank), training.hosts[rank])
        for state, nanoseconds in zip(SPENT, training.times.get(rank, ()), strict=False):
            spent.labels(*place, state).set(nanoseconds / 1e9)
        steps.labels(*place).set(training.watch.steps.get(rank, 0))
        snapshot = training.watch.snapshots.get(rank)
        if snapshot is not None:
            quiet.labels(*place).set(snapshot.age)
    steps_of = gauge(registry, "rank_step_seconds", "Seconds of a rank's usual step, by part.", *labels, "part")
    for rank, pace in list(training.run_pace(RECENT_STEPS).ranks.items())[:MOST_RANKS]:
        for part in PARTS:
            steps_of.labels(str(rank), pace.host, part).set(getattr(pace, part))
    if training.pace_report and training.pace_report.runs:
        text = "Times the usual step of earlier runs that a step takes; 1 where it is within their range."
        slow = training.pace_report.slow
        gauge(registry, "slow_down_ratio", text).set(max((row.step / row.usual_step for row in slow), default=1.0))
    usual = training.usual_work(RECENT_STEPS)
    for rank, seconds in sorted(usual.items())[:MOST_RANKS]:
        work_times.labels(str(rank), training.hosts.get(rank, UNKNOWN_HOST)).set(seconds)
    if len(usual) > 1:
        slowest = max(usual, key=lambda rank: usual[rank])
        place = (str(slowest), training.hosts.get(slowest, UNKNOWN_HOST))
        text = "Own work of the rank that takes longest, over the usual rank's."
        others = statistics.median(usual.values())
        if others > 0:
            gauge(registry, "slowest_rank_ratio", text, *labels).labels(*place).set(usual[slowest] / others)


def gauge(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Gauge:
    """A metric of the live job."""
    from prometheus_client import Gauge

    return Gauge(f"doctor_watch_{name}", text, labels, registry=registry)
