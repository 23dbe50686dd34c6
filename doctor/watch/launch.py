"""`doctor watch -- COMMAND`: runs a command with the hook in its environment, and watches its ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from doctor.engine.errors import InputError
from doctor.engine.exit_code import Exit
from doctor.engine.record import Run
from doctor.engine.sanitize import strip_control_chars
from doctor.environment.job_context import detect
from doctor.smoke.model import Failure
from doctor.watch.command import LOOK, WatchedCommand, warn
from doctor.watch.data.analyze import DataReport, analyze_records
from doctor.watch.data_outcomes import notes_of
from doctor.watch.folder import WatchFolder
from doctor.watch.observer import MOST_PROCESSES, Observer, Training
from doctor.watch.outcome import watched_run, with_stacks

NO_RANK = (
    "no rank was seen: no process of the command formed a process group of torch.distributed; or its interpreter runs "
    "with -I, -E or -S, or on another host"
)
MOST_DIGEST_BYTES = 64 << 20
"""Of one process."""
MINUTE = 60.0
"""Seconds between two lines about the training."""
ENDS = frozenset({"dead", "not-started"})
"""Failures after which the others do not hang for long: they notice it, or their launcher ends them."""


class Outcome(msgspec.Struct, frozen=True):
    """What a training came to."""

    run: Run
    checks: tuple[str, ...]
    """That it can be evaluated with."""
    data: DataReport | None
    """What its digests show; None where none were asked for."""
    hosts: dict[int, str]
    """Of each rank that was seen."""


Report = Callable[[Outcome], int]
"""Evaluates a training and puts out the report; returns the exit code."""


class WatchOptions(msgspec.Struct, frozen=True):
    """What is done on a verdict, and when there is one."""

    on_hang: Literal["report", "dump", "end"] = "dump"
    exit_on_fault: bool = False
    patience: float = 60.0
    """Least seconds without progress that count as a hang."""
    always_report: bool = False
    """Also where nothing was found."""
    data: str = ""
    """Which steps' data is digested: ``10`` the first ten, ``10,100`` also every hundredth; empty: none."""


def run(words: Sequence[str], environ: Mapping[str, str], options: WatchOptions, report: Report) -> int:
    """Returns the exit code: the command's own while nothing was found, else the report's.

    Raises: InputError where the command cannot be started or the folder for the ranks cannot be made.
    """
    context = detect(environ, as_rank=True)
    watches = True
    try:
        if context.launcher:
            folder, watches = WatchFolder.shared(context.identity, data=bool(options.data))
        else:
            folder = WatchFolder.create(data=bool(options.data))
    except OSError as error:
        raise InputError(f"no folder for the ranks can be made: {error.strerror or error}") from None
    if options.data:
        environ = {**environ, "DOCTOR_WATCH_DATA": options.data}
    if not watches:  # another process of the launch watches all ranks of this host
        return WatchedCommand(words, folder.environment(environ)).run(lambda: False)
    try:
        return _Watch(folder, words, environ, options, report).run()
    finally:
        folder.remove()


def _bounded(file: Path) -> bytes | None:
    try:
        with file.open("rb") as stream:
            return stream.read(MOST_DIGEST_BYTES)
    except OSError:
        return None


class _Watch:
    def __init__(
        self,
        folder: WatchFolder,
        words: Sequence[str],
        environ: Mapping[str, str],
        options: WatchOptions,
        report: Report,
    ) -> None:
        self.folder, self.options, self.report = folder, options, report
        self.host = os.uname().nodename
        self.observer = Observer(folder, self.host, options.patience)
        self.source = strip_control_chars(" ".join(words), 200)
        self.began = self.told = time.monotonic()
        self.ended = False
        """Whether the job was ended for what was found."""
        self.reported: dict[int, int] = {}
        """By index of the training: the exit code of its report."""
        self.command = WatchedCommand(words, folder.environment(environ))

    def run(self) -> int:
        code = self.command.run(self.look)
        self.look()
        while self._others_live() and not self.ended and not self.look():
            time.sleep(LOOK)
        for index, training in enumerate(self.observer.trainings):
            if index not in self.reported:
                self._finish(index, training)
        found = max(self.reported.values(), default=0)
        if not self.observer.trainings:
            warn(NO_RANK)
        return found if found else code

    def _others_live(self) -> bool:
        """Whether ranks are left that other processes of the launch have started."""
        return any(training.began and not training.over for training in self.observer.trainings[-1:])

    def look(self) -> bool:
        """Whether the job is to be ended."""
        self.observer.look()
        end = False
        for index, training in enumerate(self.observer.trainings):
            if training.failure is not None and index not in self.reported:
                end = self._tell(index, training, training.failure) or end
        if time.monotonic() - self.told > MINUTE:
            self.told = time.monotonic()
            for training in self.observer.trainings[-1:]:
                warn(self._line(training))
        return end

    def _tell(self, index: int, training: Training, failure: Failure) -> bool:
        hang = failure.kind not in ENDS
        if not hang or self.options.on_hang != "report":
            failure = with_stacks(failure, self.observer.stacks(training))
        self.reported[index] = self.report(self._outcome(training, failure)) or Exit.FAILED
        end = (hang and self.options.on_hang == "end") or self.options.exit_on_fault
        if end:
            self.ended = True
            for process in training.processes.values():
                process.terminate()
        return end

    def _finish(self, index: int, training: Training) -> None:
        """A training without a failure: its slow ranks, and what is wrong with its data."""
        from doctor.smoke.speed.stragglers import find_stragglers

        outcome = self._outcome(training, None)
        wrong = bool(outcome.data and outcome.data.causes)
        slow = find_stragglers({rank: [times] for rank, times in training.pace.work().items()})
        if slow or wrong or self.options.always_report:
            self.reported[index] = self.report(outcome)
        if not slow and not wrong:
            warn(f"{self._line(training)}; no fault was found")

    def _outcome(self, training: Training, failure: Failure | None) -> Outcome:
        watch = training.watch
        unseen = watch.world - len(training.processes)
        notes = tuple(training.notes)
        if unseen and (failure is None or failure.kind != "never-joined"):
            notes += (f"{unseen} of {watch.world} ranks were not seen on this host; nothing is known of them.",)
        data = self._data()
        hosts = dict.fromkeys(sorted(training.processes), training.host)
        made, checks = watched_run(
            self.source,
            hosts,
            watch.world,
            watch.backend,
            failure,
            training.pace.work(),
            max(watch.steps.values(), default=0),
            time.monotonic() - training.began,
            notes + (notes_of(data) if data else ()),
        )
        return Outcome(made, checks, data, hosts)

    def _data(self) -> DataReport | None:
        if not self.options.data:
            return None
        files = sorted(self.folder.digests.glob("*.probe"))[:MOST_PROCESSES]
        return analyze_records(content for file in files if (content := _bounded(file)) is not None)

    def _line(self, training: Training) -> str:
        watch = training.watch
        steps = sorted(watch.steps.values()) or [0]
        seconds = time.monotonic() - training.began
        pace = f", {steps[0] / seconds:.2f} steps/s" if steps[0] else ""
        return f"{len(training.processes)} of {watch.world} ranks, step {steps[0]}{pace}, {seconds:.0f} s"
