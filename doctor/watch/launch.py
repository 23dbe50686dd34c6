"""`doctor watch -- COMMAND`: runs a command with the hook in its environment, and watches its ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from doctor.engine.errors import InputError
from doctor.engine.loss_rules import CHECK_OF, LOSS_CHECKS, is_warning, verdict_text
from doctor.engine.record import Run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.watch_summary import WatchResult
from doctor.environment.job_context import detect
from doctor.smoke.model import Failure
from doctor.watch.command import ENDING, LOOK, WatchedCommand, warn
from doctor.watch.data.analyze import DataReport
from doctor.watch.data_outcomes import notes_of
from doctor.watch.folder import WatchFolder
from doctor.watch.job_output import JobOutput
from doctor.watch.live_losses import LiveLosses
from doctor.watch.loss.loss_options import LossOptions
from doctor.watch.loss.loss_report import headline
from doctor.watch.observer import Observer, Training
from doctor.watch.outcome import output_only_run, watched_run, with_stacks

NO_RANK = (
    "no rank was seen: no process of the command formed a process group of torch.distributed; or its interpreter runs "
    "with -I, -E or -S, or on another host"
)
SETTLE_SECONDS = 3.0
"""After a command that failed: for the rules to name the rank that ended first."""
MINUTE = 60.0
"""Seconds between two lines about the training."""
ENDS = frozenset({"dead", "not-started"})
"""Failures after which the others do not hang for long: they notice it, or their launcher ends them."""


class WatchOutcome(msgspec.Struct, frozen=True):
    """What a training came to."""

    run: Run
    checks: tuple[str, ...]
    """That it can be evaluated with."""
    data: DataReport | None
    """What its digests show; None where none were asked for."""


Report = Callable[[WatchOutcome], int]
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
    reads_output: bool = True
    """Whether the job's streams are carried, and its losses read from them."""
    losses: LossOptions = LossOptions()


def run(command_line: Sequence[str], environ: Mapping[str, str], options: WatchOptions, report: Report) -> int:
    """Returns the exit code: the command's own while nothing was found, else the report's.

    Raises: InputError where the command cannot be started or the folder for the ranks cannot be made.
    """
    context = detect(environ, as_rank=True)
    watches = True
    try:
        if context.launcher:
            folder, watches = WatchFolder.shared(context.identity)
        else:
            folder = WatchFolder.create()
    except OSError as error:
        raise InputError(f"no folder for the ranks can be made: {error.strerror or error}") from None
    every_line = options.losses.pattern is not None
    output = JobOutput(folder.copies, context.rank, every_line) if options.reads_output else None
    try:
        if not watches:  # another process of the launch watches all ranks of this host
            return WatchedCommand(command_line, folder.environment(environ, options.data), output).run(lambda: False)
        return _Watch(folder, command_line, environ, options, report, output).run()
    finally:
        if output:
            output.close()
        if watches:
            folder.remove()


class _Watch:
    def __init__(
        self,
        folder: WatchFolder,
        command_line: Sequence[str],
        environ: Mapping[str, str],
        options: WatchOptions,
        report: Report,
        output: JobOutput | None,
    ) -> None:
        self.folder, self.options, self.report = folder, options, report
        self.losses = LiveLosses(folder.copies, folder.data.digests, options.losses.log_watch(()))
        self.notes = tuple(output.notes) if output else ()
        self.host = os.uname().nodename
        self.observer = Observer(folder, self.host, options.patience)
        self.source = strip_control_chars(" ".join(command_line), 200)
        self.began = self.last_line = time.monotonic()
        self.ended = False
        """Whether the job was ended for what was found."""
        self.reported: dict[int, int] = {}
        """By index of the training: the exit code of its report."""
        self.command = WatchedCommand(command_line, folder.environment(environ, options.data), output)

    def run(self) -> int:
        code = self.command.run(self.look)
        self.look()
        while self._others_live() and not self.ended and not self.look():
            time.sleep(LOOK)
        settled = time.monotonic() + SETTLE_SECONDS
        while code and not self.ended and self._unexplained() and time.monotonic() < settled:
            time.sleep(LOOK)
            self.look()
        self.losses.finish(time.monotonic())
        self._tell_losses(None)
        last = len(self.observer.trainings) - 1
        for index, training in enumerate(self.observer.trainings):
            if index not in self.reported:
                self._finish(index, training, is_last=index == last)
        if not self.observer.trainings:
            self._finish_without_ranks()
        exit_code = max(self.reported.values(), default=0)
        return exit_code if exit_code else code

    def _tell_losses(self, now: float | None) -> bool:
        """One line for each new verdict on the loss. Returns whether the job is to be ended for one."""
        # How long a rank may be without a sign is judged by its calls, where they are seen.
        self.losses.tells_silence = not self.observer.trainings
        verdicts = self.losses.look(now) if now is not None else self.losses.new_verdicts(None)
        for verdict in verdicts:
            severity = "warning" if is_warning(verdict) else "error"
            warn(f"{severity}: {verdict_text(verdict)} ({CHECK_OF[verdict.kind]})")
        return self.options.exit_on_fault and not all(map(is_warning, verdicts))

    def _unexplained(self) -> bool:
        """Whether ranks ended, and no failure is known yet: the rules wait a while for the cause."""
        return self.observer.judges and any(training.failure is None for training in self.observer.trainings[-1:])

    def _others_live(self) -> bool:
        """Whether ranks are left that other processes of the launch have started."""
        return any(training.began and not training.over for training in self.observer.trainings[-1:])

    def look(self) -> bool:
        """Whether the job is to be ended."""
        if self.command.interrupted in ENDING:
            self.observer.judges = False  # how ranks end from now on is no fault
        self.observer.look()
        end = False
        for index, training in enumerate(self.observer.trainings):
            if training.failure is not None and index not in self.reported:
                end = self._report_failure(index, training, training.failure) or end
        now = time.monotonic()
        if self._tell_losses(now) and not self.ended:
            end = self.ended = True
            ranks = [process.pid for one in self.observer.trainings for process in one.processes.values()]
            self.command.end(pid for pid in ranks if pid)
        if now - self.last_line > MINUTE:
            self.last_line = now
            for training in self.observer.trainings[-1:]:
                warn(self._line(training))
            if not self.observer.trainings and self.losses.watch.losses:
                warn(headline(self.losses.watch, self.losses.watch.verdicts(now)))
        return end

    def _report_failure(self, index: int, training: Training, failure: Failure) -> bool:
        hang = failure.kind not in ENDS
        if not hang or self.options.on_hang != "report":
            failure = with_stacks(failure, self.observer.stacks(training))
        self.reported[index] = self.report(self._outcome(training, failure))
        end = (hang and self.options.on_hang == "end") or self.options.exit_on_fault
        if end:
            self.ended = True
            self.command.end(process.pid for process in training.processes.values() if not process.ended)
        return end

    def _finish(self, index: int, training: Training, is_last: bool) -> None:
        """A training without a failure: its slow ranks, and what is wrong with its data and its loss."""
        from doctor.smoke.speed.stragglers import find_stragglers

        outcome = self._outcome(training, None)
        losses = bool(is_last and self.losses.verdicts())
        wrong = bool(outcome.data and outcome.data.causes)
        slow = find_stragglers({rank: [times] for rank, times in training.pace.work().items()})
        told = any(self.reported.values())  # of an earlier start: its report is not to be written over
        if slow or wrong or losses or (self.options.always_report and not told):
            self.reported[index] = self.report(outcome)
        if not slow and not wrong and not losses:
            warn(f"{self._line(training)}; no fault was found")

    def _finish_without_ranks(self) -> None:
        """A program of which nothing but its output was seen."""
        watch = self.losses.watch
        if not watch.losses:
            return warn(NO_RANK)
        verdicts = self.losses.verdicts()
        warn(f"{NO_RANK}. {headline(watch, verdicts)}")
        if verdicts or (self.options.always_report and watch.decided):
            seconds = time.monotonic() - self.began
            unseen = output_only_run(self.source, seconds, (*self.notes, *watch.notes))
            self.reported[0] = self.report(WatchOutcome(self._with_losses(unseen, {}), LOSS_CHECKS, None))
        return None

    def _with_losses(self, run: Run, hosts: dict[int, str], data: DataReport | None = None) -> Run:
        watch = self.losses.watch
        result = WatchResult(
            curves=watch.curves(),
            verdicts=tuple(self.losses.verdicts()),
            digests=self.folder.data.saved() if data else {},
            hosts=hosts,
        )
        return msgspec.structs.replace(run, watch=msgspec.to_builtins(result, str_keys=True))

    def _outcome(self, training: Training, failure: Failure | None) -> WatchOutcome:
        watch = training.watch
        unseen = watch.world - len(training.processes)
        notes = (*training.notes, *self.notes, *self.losses.watch.notes)
        if unseen and (failure is None or failure.kind != "never-joined"):
            notes += (f"{unseen} of {watch.world} ranks were not seen on this host; nothing is known of them.",)
        data = self._data()
        hosts = dict.fromkeys(sorted(training.processes), training.host)
        saved_run, checks = watched_run(
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
        wrong = {CHECK_OF[verdict.kind] for verdict in self.losses.verdicts()}
        checks += tuple(name for name in LOSS_CHECKS if name in wrong or (failure is None and self.losses.watch.losses))
        return WatchOutcome(self._with_losses(saved_run, hosts, data), checks, data)

    def _data(self) -> DataReport | None:
        """What the digests show; None where there are none and none were asked for."""
        if not self.options.data and not any(self.folder.data.digests.glob("*.probe")):
            return None
        return self.folder.data.report()

    def _line(self, training: Training) -> str:
        watch = training.watch
        steps = sorted(watch.steps.values()) or [0]
        seconds = time.monotonic() - training.began
        pace = f", {steps[0] / seconds:.2f} steps/s" if steps[0] else ""
        return f"{len(training.processes)} of {watch.world} ranks, step {steps[0]}{pace}, {seconds:.0f} s"
