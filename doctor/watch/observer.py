"""Reads what the ranks of this host write into the watch's folder, and sorts them into trainings."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from doctor.watch.fleet.meeting import Meeting, find_meeting, meets_on_loopback, rank_environment
from doctor.watch.folder import WatchFolder
from doctor.watch.rank_process import RankProcess
from doctor.watch.training import Training

FindPid = Callable[[int, Path], int]
MOST_PROCESSES = 4096
MOST_WORLD = 1 << 20


class Observer:
    """The trainings that a watched command starts on this host, one after the other or side by side."""

    def __init__(
        self,
        folder: WatchFolder,
        host: str,
        patience: float,
        find_pid: FindPid = lambda pid, _: pid,
        timeout_of: Callable[[int], str] = lambda _: "",
    ) -> None:
        """``find_pid``: see `RankProcess`; ``timeout_of``: see `LiveLosses`."""
        self.find_pid, self.timeout_of = find_pid, timeout_of
        self.folder, self.host, self.patience = folder, host, patience
        self.trainings: list[Training] = []
        self._by_meeting: dict[str, Training] = {}
        self._starts: dict[str, int] = {}
        """By launch: how many trainings of it were seen."""
        self._processes: dict[str, RankProcess | None] = {}
        self._rank_of: dict[str, tuple[int, Training]] = {}
        self._addresses: dict[int, str] = {}
        """By training: where its program lets the ranks meet."""
        self._meetings: dict[int, Meeting | None] = {}
        self._last_look = 0.0
        self.judges = True
        """Whether what stops a training is a failure: not where the job is being ended from outside."""

    def look(self) -> None:
        """Takes in all that is new on this host, and of the hosts that it leads."""
        now = time.monotonic()
        late = max(0.0, now - self._last_look - 0.5) if self._last_look else 0.0
        self._last_look = now
        for training in self.trainings:
            training.exchange(now)
        self._find_processes()
        for process in [process for process in self._processes.values() if process is not None]:
            process.read_recorder()
            process.look_for_end(self.timeout_of)
            events = process.new_events()
            for event in events:
                self._place(process, event, now)
            process.observe(now)
            self._take_news(process, events, now)
        for training in self.trainings:
            if training.processes and not training.has_met:
                self._meet(training, now)
            if self.judges:
                training.judge(now, late)

    def _find_processes(self) -> None:
        for page in sorted(self.folder.ranks.glob("*.page")):
            if page.stem not in self._processes and len(self._processes) < MOST_PROCESSES:
                try:
                    self._processes[page.stem] = RankProcess(page, self.find_pid)
                except (OSError, ValueError):
                    continue  # it is being made

    def _place(self, process: RankProcess, event: Mapping[str, Any], now: float) -> None:
        """Which training a process belongs to: a rank that is there already means that all begin anew."""
        if event.get("ev") not in ("rank", "joined") or process.name in self._rank_of:
            return
        rank, world, meeting = event.get("rank"), event.get("world"), str(event.get("meeting", ""))
        if not isinstance(rank, int) or not isinstance(world, int) or not 0 <= rank < world <= MOST_WORLD:
            return
        training = self._by_meeting.get(meeting)
        if training is None or rank in training.processes or training.world != world:
            training = self._by_meeting[meeting] = Training(world, self.patience, self.host, now)
            self._addresses[id(training)] = meeting
            self.trainings.append(training)
        training.add_process(rank, process)
        self._rank_of[process.name] = (rank, training)

    def _take_news(self, process: RankProcess, events: list[dict[str, object]], now: float) -> None:
        placement = self._rank_of.get(process.name)
        if placement is None or placement[1].processes.get(placement[0]) is not process:
            return
        placement[1].take_own(placement[0], process, events, now)

    def _meet(self, training: Training, now: float) -> None:
        """Finds the other hosts of a training, by the environment of one of its ranks."""
        rank, process = min(training.processes.items())
        if not process.pid and not process.ended:
            return
        if id(training) not in self._meetings:
            self._meetings[id(training)] = self._find_meeting(training, rank, rank_environment(process.pid))
        training.meet(self._meetings[id(training)], now)

    def _find_meeting(self, training: Training, rank: int, environ: Mapping[str, str]) -> Meeting | None:
        address, user = self._addresses[id(training)], os.geteuid()
        training.watch.store_port = address.rpartition(":")[2] or environ.get("MASTER_PORT", "")
        first = find_meeting(environ, rank, training.world, address, 0, user)
        if first is None:
            training.is_on_one_host = meets_on_loopback(environ, rank, training.world, address)
            return None
        launch = first.context.launch_id
        generation = self._starts.get(launch, 0)
        self._starts[launch] = generation + 1
        return find_meeting(environ, rank, training.world, address, generation, user)
