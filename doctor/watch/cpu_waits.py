"""For how long ranks waited for a CPU that something else had, without what their own CPU quota kept back.

The kernel counts both alike in the books of a thread. A control group without any of its quota left rests until its
next period: `throttled_usec` has these seconds, over all CPUs, and the waits of the ranks in it have as many. What is
taken off by that is the job's own slowness, as a quota is its container's setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from doctor.analysis.outliers.peers import BUSY_RATIO, BUSY_SHARE, OwnWork
from doctor.engine.sanitize import rank_names
from doctor.engine.texts import filled
from doctor.smoke.programs.cpu_quota import has_quota, quota_folders, throttling


class QuotaWait:
    """Of one rank: the quota that has held it back the most, and its waits, since it was first looked at."""

    def __init__(self) -> None:
        self.folder = ""
        self.held = self.waited = 0.0
        self._first: dict[str, float] = {}
        self._first_waited = -1.0

    def look(self, pid: int, waited: float) -> None:
        """``waited``: seconds for a CPU, of all its threads so far."""
        if self._first_waited < 0:
            self._first_waited = waited
        self.waited = max(self.waited, waited - self._first_waited)
        for folder in quota_folders(pid):
            seconds = throttling(folder)[2] if has_quota(folder) else 0.0
            held = seconds - self._first.setdefault(folder, seconds)
            if held > self.held:
                self.folder, self.held = folder, held

    def share(self, others: Iterable[QuotaWait]) -> float:
        """Of its waits, what its quota has made. ``others``: of all ranks of the host; some are in the same group.

        >>> some = QuotaWait()
        >>> some.folder, some.held, some.waited = "/sys/fs/cgroup", 3.0, 4.0
        >>> some.share([some])
        0.75
        """
        waited = sum(other.waited for other in others if other.folder == self.folder) if self.folder else 0.0
        return min(1.0, self.held / waited) if waited > 0 else 0.0


class CpuWaits:
    """By rank: the share of its time in which it waited for a CPU that something else had."""

    def __init__(self) -> None:
        self.shares: dict[int, float] = {}

    def busy_ranks(self) -> list[int]:
        return sorted(rank for rank, share in self.shares.items() if share > BUSY_SHARE)

    def are_known_in(self, work: Mapping[int, OwnWork]) -> bool:
        """Whether it is known how long in a step those ranks waited for a CPU that did so for much of their time."""
        return all(work[rank].starved for rank in self.busy_ranks() if rank in work)

    def sentence(self, work: Mapping[int, OwnWork]) -> str:
        """How far the paces of the busy ranks were not compared."""
        text = "Of the ranks' paces only {2} times the others' counts: {0} waited for a CPU, up to {1} % of the time"
        if not self.are_known_in(work):
            text = "The paces of the ranks were not compared: {0} waited for a CPU, up to {1} % of the time"
        most = max(self.shares.values())
        return filled(text, rank_names(self.busy_ranks()), f"{100 * most:.0f}", f"{BUSY_RATIO:g}")
