"""Reads what the ranks of this host write into the watch's folder, and sorts them into trainings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from doctor.smoke.model import Failure
from doctor.watch.folder import WatchFolder
from doctor.watch.pace import StepPace
from doctor.watch.rank_process import RankProcess
from doctor.watch.verdict import TrainingWatch

MOST_PROCESSES = 4096
MOST_WORLD = 1 << 20


class Training(msgspec.Struct):
    """The ranks that met at one address, from one start to the next."""

    watch: TrainingWatch
    host: str
    processes: dict[int, RankProcess] = {}
    pace: StepPace = msgspec.field(default_factory=StepPace)
    notes: dict[str, None] = {}
    errors: dict[int, str] = {}
    """By rank: the traceback of the error that ended it."""
    failure: Failure | None = None
    began: float = 0.0

    @property
    def over(self) -> bool:
        """Whether every rank that was seen has ended."""
        return all(process.ended for process in self.processes.values())


class Observer:
    """The trainings that a watched command starts on this host, one after the other or side by side."""

    def __init__(self, folder: WatchFolder, host: str, patience: float) -> None:
        self.folder, self.host, self.patience = folder, host, patience
        self.trainings: list[Training] = []
        self._by_meeting: dict[str, Training] = {}
        self._processes: dict[str, RankProcess | None] = {}
        self._rank_of: dict[str, tuple[int, Training]] = {}
        self._last_look = 0.0
        self.judges = True
        """Whether what stops a training is a failure: not where the job is being ended from outside."""

    def look(self) -> None:
        """Takes in all that is new on this host."""
        now = time.monotonic()
        late = max(0.0, now - self._last_look - 0.5) if self._last_look else 0.0
        self._last_look = now
        self._find_processes()
        for process in [process for process in self._processes.values() if process is not None]:
            process.read_recorder()
            process.look_for_end()
            for event in process.new_events():
                self._take_event(process, event, now)
            process.observe(now)  # type: ignore[no-untyped-call]
            self._take_snapshot(process, now)
        for training in self.trainings:
            if training.failure is None and self.judges:
                self._judge(training, now, late)

    def _find_processes(self) -> None:
        for page in sorted(self.folder.ranks.glob("*.page")):
            if page.stem not in self._processes and len(self._processes) < MOST_PROCESSES:
                try:
                    self._processes[page.stem] = RankProcess(page)
                except (OSError, ValueError):
                    continue  # it is being made

    def _take_event(self, process: RankProcess, event: Mapping[str, Any], now: float) -> None:
        if event.get("ev") in ("rank", "joined") and process.name not in self._rank_of:
            rank, world = event.get("rank"), event.get("world")
            if isinstance(rank, int) and isinstance(world, int) and 0 <= rank < world <= MOST_WORLD:
                self._place(process, rank, world, str(event.get("meeting", "")), now)
        placement = self._rank_of.get(process.name)
        if placement is None:
            return
        rank, training = placement
        training.watch.take_event(rank, event, now)
        if event.get("ev") == "error":
            training.errors[rank] = str(event.get("stack", ""))[:6000]
        if event.get("ev") == "hook":
            training.notes[f"Rank {rank}: the hook: {str(event.get('text', ''))[:300]}"] = None

    def _place(self, process: RankProcess, rank: int, world: int, meeting: str, now: float) -> None:
        """Which training the process belongs to: a rank that is there already means that all begin anew."""
        training = self._by_meeting.get(meeting)
        if training is None or rank in training.processes or training.watch.world != world:
            watch = TrainingWatch(world, self.patience, [self.host] * world)
            training = self._by_meeting[meeting] = Training(watch, self.host, began=now)
            self.trainings.append(training)
        process.rank = rank
        training.processes[rank] = process
        self._rank_of[process.name] = (rank, training)

    def _take_snapshot(self, process: RankProcess, now: float) -> None:
        placement = self._rank_of.get(process.name)
        if placement is None or placement[1].processes.get(placement[0]) is not process:
            return
        rank, training = placement
        fields = process.snapshot(now)  # type: ignore[no-untyped-call]
        if fields is None:
            return
        try:
            training.watch.take_snapshot(rank, fields, now)
        except (msgspec.ValidationError, KeyError, TypeError, ValueError, IndexError):
            training.notes[f"Rank {rank}: what it wrote cannot be read"] = None
            return
        training.pace.add(rank, training.watch.of_all_ranks(rank, process.timed.entries))
        process.timed.entries = []

    def _judge(self, training: Training, now: float, late: float) -> None:
        failure = training.watch.judge(now, late, lambda rank: self._stack(training, rank))
        if failure is not None:
            training.failure = failure

    def _stack(self, training: Training, rank: int) -> str | None:
        process = training.processes.get(rank)
        return process.stack() if process else ""

    def stacks(self, training: Training) -> dict[int, str]:
        """By rank: its Python stacks, of those that live; the tracebacks of those that ended by an error."""
        stacks = dict(training.errors)
        for rank, process in sorted(training.processes.items()):
            if not process.ended and (stack := process.stack()):
                stacks[rank] = stack
        return stacks
