"""`doctor watch -- COMMAND`: runs a command with the hook in its environment, and watches its ranks."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from doctor.analysis.outliers.own_past import CHECK as PACE_CHECK
from doctor.analysis.outliers.own_past import pace_notes
from doctor.analysis.outliers.peers import stragglers_by_part
from doctor.analysis.values.resumed import CHECK as RESUME_CHECK
from doctor.analysis.values.resumed import is_lost, resume_lines, resume_notes
from doctor.config.user_key import load_or_create_key
from doctor.engine.errors import InputError
from doctor.engine.exit_code import Exit
from doctor.engine.loss_rules import CHECK_OF, LOSS_CHECKS, is_warning, verdict_text
from doctor.engine.record import Run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.engine.watch_summary import PaceComparison, WatchResult
from doctor.environment.job_context import detect
from doctor.report.live.live_screen import LiveScreen, open_screen
from doctor.smoke.model import Failure
from doctor.watch.command import ENDING, LOOK, WatchedCommand, warn
from doctor.watch.data.data_report import DataReport
from doctor.watch.data_outcomes import data_headlines, notes_of
from doctor.watch.fleet.messages import FleetVerdict
from doctor.watch.folder import WatchFolder
from doctor.watch.job_output import JobOutput
from doctor.watch.live_losses import LiveLosses
from doctor.watch.live_metrics import LiveMetrics
from doctor.watch.live_pace import LivePace
from doctor.watch.live_ranks import LiveRanks
from doctor.watch.loss.log_watch import LogWatch, LossOptions, verdict_line
from doctor.watch.loss.log_watch import headline as loss_headline
from doctor.watch.observer import Observer
from doctor.watch.outcome import output_only_run, watched_run, with_stacks
from doctor.watch.resume.live_resume import LiveResume
from doctor.watch.training import Training
from doctor.watch.within import command_within, host_pid, require_shared_folder

NO_RANK = (
    "no rank was seen: no process of the command formed a process group of torch.distributed; or its interpreter runs "
    "with -I, -E or -S, or on another host"
)
ORPHAN_SECONDS = 15.0
"""For ranks that are left when a signal has ended their command: no other process ends those that hang."""
SETTLE_SECONDS = 3.0
"""After a command that failed: for the rules to name the rank that ended first."""
MOST_WARNINGS = 64
MINUTE = 60.0
"""Seconds between two lines about the training."""
PARTING_SECONDS = 20.0
"""For the leading host to tell what it has decided, after the ranks of this one have ended."""
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
    place: str = "stdout"
    """Where the report goes, for the other hosts."""
    metrics: str = ""
    """Path of the Prometheus textfile of the live job; empty: none."""
    within: tuple[str, ...] = ()
    """The command that enters the container in which the watched command is to run; empty: none."""
    data: str = ""
    """Which steps' data is digested: ``10`` the first ten, ``10,100`` also every hundredth; empty: none."""
    reads_output: bool = True
    """Whether the job's streams are carried, and its losses read from them."""
    losses: LossOptions = LossOptions()
    live: bool = False
    """Whether the ranks are shown on the terminal while they run."""
    tell: Callable[[str, bool], None] = lambda _line, _is_error: None
    """Called with a verdict that falls while the job goes on, and whether it is an error: for `--notify`."""


def run(command_line: Sequence[str], environ: Mapping[str, str], options: WatchOptions, report: Report) -> int:
    """Returns the exit code: the command's own while nothing was found, else the report's.

    Where no folder for the ranks can be made, the command runs unwatched.

    Raises: InputError where the command cannot be started.
    """
    context = detect(environ, as_rank=True)
    watches = True
    try:
        if context.launcher:
            # Other users may write to the place: with the key, none can take the name beforehand.
            key, trouble = load_or_create_key(environ)
            folder, watches = WatchFolder.shared(f"{'' if trouble else key.hex()} {context.identity}")
        else:
            folder = WatchFolder.create()
    except OSError as error:
        why = filled("no folder for the ranks can be made: {0}", error.strerror or error)
        if options.within:
            raise InputError(why) from None
        warn(filled("not watched: {0}", why))
        return WatchedCommand(command_line, environ, None).run(lambda: False)
    every_line = options.losses.pattern is not None
    screen = open_screen("watch", environ) if options.live and watches else None
    output = None
    try:
        output = JobOutput(folder.copies, context.rank, every_line) if options.reads_output else None
        if not watches:  # another process of the launch watches all ranks of this host
            return _start(folder, command_line, environ, options, output).run(lambda: False)
        return _Watch(folder, command_line, environ, options, report, output, screen).run()
    finally:
        if output:
            output.close()
        if screen:
            screen.close()
        if watches:
            folder.remove()


def _start(
    folder: WatchFolder,
    command_line: Sequence[str],
    environ: Mapping[str, str],
    options: WatchOptions,
    output: JobOutput | None,
) -> WatchedCommand:
    """Raises: InputError."""
    if not options.within:
        return WatchedCommand(command_line, folder.environment(environ, options.data), output)
    require_shared_folder(options.within, folder.ranks)
    inner = command_within(options.within, folder.hook, folder.variables(options.data), command_line)
    return WatchedCommand(inner, environ, output)


class _Watch:
    def __init__(
        self,
        folder: WatchFolder,
        command_line: Sequence[str],
        environ: Mapping[str, str],
        options: WatchOptions,
        report: Report,
        output: JobOutput | None,
        screen: LiveScreen | None = None,
    ) -> None:
        self.folder, self.options, self.report = folder, options, report
        self.losses = LiveLosses(folder.copies, folder.data.digests, LogWatch(options=options.losses))
        self.notes = tuple(output.notes) if output else ()
        self.host = os.uname().nodename
        find_pid = {"find_pid": host_pid} if options.within else {}
        self.observer = Observer(folder, self.host, options.patience, timeout_of=self.losses.timeout_of, **find_pid)
        self.source = strip_control_chars(" ".join(command_line), 200)
        self.began = self.last_line = time.monotonic()
        self.ended = False
        """Whether the job was ended for what was found."""
        self.reported: dict[int, int] = {}
        """By index of the training: the exit code of its report."""
        self.announced: set[str] = set()
        self.metrics = LiveMetrics(options.metrics)
        self.pace = LivePace(command_line, environ)
        self.resume = LiveResume(folder.data.digests, environ, self.source, self.host)
        self.command = _start(folder, command_line, environ, options, output)
        if options.data:
            self.resume.start()
        self.command.before_end = self._before_end
        self.live = LiveRanks(screen, filled("doctor watch: {0}", self.source))
        if screen:
            self.command.before_resize = screen.resize

    def run(self) -> int:
        try:
            return self._run()
        finally:
            for training in self.observer.trainings:
                training.close()
            self.metrics.write(self.observer.trainings[-1:], self.reported, running=False)

    def _run(self) -> int:
        code = self.command.run(self.look)
        self.look()
        limit = time.monotonic() + (ORPHAN_SECONDS if self.command.interrupted in ENDING else math.inf)
        while self._others_live() and not self.ended and not self.look() and time.monotonic() < limit:
            time.sleep(LOOK)
        settled = time.monotonic() + SETTLE_SECONDS
        while (code or self._ranks_failed()) and not self.ended and self._unexplained() and time.monotonic() < settled:
            time.sleep(LOOK)
            self.look()
        self.losses.finish(time.monotonic())
        self.resume.finish()
        self._tell_resume()
        self._tell_losses(None)
        last = len(self.observer.trainings) - 1
        for index, training in enumerate(self.observer.trainings):
            if index not in self.reported:
                training.is_cut = bool(code) or self.command.interrupted in ENDING
                self._finish(index, training, is_last=index == last)
            elif index == last and training.verdict():
                warn(training.progress_line())
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
            warn(verdict_line(verdict))
            self.options.tell(verdict_line(verdict), not is_warning(verdict))
        return self.options.exit_on_fault and not all(map(is_warning, verdicts))

    def _tell_resume(self) -> None:
        """One line for each thing that the checkpoint's run had and this one begins without."""
        report = self.resume.new_report()
        for line in resume_lines(report) if report else ():
            self._warn_once(line)

    def _unexplained(self) -> bool:
        """Whether ranks ended, and no failure is known yet: the rules wait a while for the cause."""
        return self.observer.judges and any(
            training.failure is None and training.decides for training in self.observer.trainings[-1:]
        )

    def _ranks_failed(self) -> bool:
        latest = self.observer.trainings[-1:]
        return any(snap.dead not in ("", "exit status 0") for last in latest for snap in last.watch.snapshots.values())

    def _others_live(self) -> bool:
        """Whether ranks are left that other processes of the launch have started, on this host or on one it leads."""
        return any(
            (training.began and not training.over)
            or (training.post is not None and training.post.anyone_lives and training.failure is None)
            for training in self.observer.trainings[-1:]
        )

    def look(self) -> bool:
        if self.command.interrupted in ENDING:
            self.observer.judges = False  # how ranks end from now on is no fault
        self.observer.look()
        end = False
        for index, training in enumerate(self.observer.trainings):
            if index in self.reported:
                continue
            if training.failure is not None:
                end = self._report_failure(index, training, training.failure) or end
            elif training.follower is not None:
                end = self._hear_leader(index, training) or end
            elif training.likely is not None:
                self.report(self._outcome(training, training.likely))
                self.reported[index] = 0  # the job ends with its own exit code: this is no verdict
                training.announce(self._verdict(0, training.verdict()))
            if sentence := training.long_wait():
                warn(sentence)
        self._tell_resume()
        now = time.monotonic()
        if self._tell_losses(now) and not self.ended:
            end = self.ended = True
            ranks = [process.pid for one in self.observer.trainings for process in one.processes.values()]
            self.command.end(pid for pid in ranks if pid)
        if now - self.last_line > MINUTE:
            self._tell_progress(now)
        self.metrics.write_each_interval(self.observer.trainings[-1:], self.reported)
        self.live.draw(self.observer.trainings[-1:], self.losses.verdicts)
        return end

    def _tell_progress(self, now: float) -> None:
        self.last_line = now
        for training in self.observer.trainings[-1:]:
            warn(training.progress_line())
            for line in self.pace.look(training, now - self.began):
                warn(line)
                self.options.tell(line, False)
        if not self.observer.trainings and self.losses.watch.losses:
            warn(loss_headline(self.losses.watch, self.losses.watch.verdicts(now, is_over=False)))

    def _before_end(self) -> None:
        for training in self.observer.trainings[-1:]:
            training.end_from_outside()

    def _hear_leader(self, index: int, training: Training) -> bool:
        """What the leading host says, or that there is none. Returns whether the job is to be ended."""
        follower = training.follower
        if follower is None:
            return False
        verdict = follower.verdict
        if verdict is not None and verdict.code:
            self.reported[index] = verdict.code
            warn(filled("{0}; the report is on {1}", verdict.headline, verdict.place))
            return self._end(training, hang=verdict.hang)
        if follower.leaderless and verdict is None:
            self._warn_once(filled("{0} reports for itself: {1}", self.host, follower.reason()))
        return False

    def _warn_once(self, text: str) -> None:
        if text not in self.announced and len(self.announced) < MOST_WARNINGS:
            self.announced.add(text)
            warn(text)

    def _report_failure(self, index: int, training: Training, failure: Failure) -> bool:
        hang = failure.kind not in ENDS
        if not hang or self.options.on_hang != "report":
            failure = with_stacks(failure, training.stacks())
        outcome = self._outcome(training, failure)
        self.announced.update(data_headlines(outcome.data, training.hosts))
        self.reported[index] = self.report(outcome)
        training.announce(self._verdict(self.reported[index], training.verdict(), hang=hang))
        return self._end(training, hang=hang)

    def _end(self, training: Training, *, hang: bool) -> bool:
        """Ends this host's part of the job, where its own options ask for that."""
        end = (hang and self.options.on_hang == "end") or self.options.exit_on_fault
        if end:
            self.ended = True
            self.command.end(process.pid for process in training.processes.values() if not process.ended)
        return end

    def _verdict(self, code: int, headline: str, *, hang: bool = False) -> FleetVerdict:
        return FleetVerdict(code, headline[:900], f"{self.host}: {self.options.place}"[:900], hang)

    def _finish(self, index: int, training: Training, is_last: bool) -> None:
        """A training without a failure: its slow ranks, and what is wrong with its data and its loss."""
        if self._await_verdict(index, training):
            return
        self.pace.finish(training)
        outcome = self._outcome(training, None)
        losses = self.losses.verdicts() if is_last else []
        decides = training.decides
        resumed = bool(self.resume.report and is_lost(self.resume.report))
        slowed = bool(training.pace_report and training.pace_report.slow)
        faults = training.slow_headlines(stragglers_by_part(training.comparable_work() if decides else {}))
        faults += data_headlines(outcome.data, training.hosts)
        faults += [filled("{0}: {1}", CHECK_OF[verdict.kind], verdict_text(verdict)) for verdict in losses]
        faults += [filled("{0}: a part of the checkpoint was lost", RESUME_CHECK)] * resumed
        faults += [filled("{0}: steps take longer than in earlier runs", PACE_CHECK)] * slowed
        was_reported = any(self.reported.values())  # of an earlier start: its report is not to be written over
        # The digests are those of all groups that the ranks formed, one after another.
        if set(faults) - self.announced or (self.options.always_report and not was_reported and decides):
            code = self.report(outcome)
            # The job that was cut ends with its own code: this is no verdict.
            self.reported[index] = 0 if code == Exit.UNKNOWN and training.is_cut else code
        self.announced.update(faults)
        warn(joined("; ", (training.progress_line(), *(faults or [self._no_fault(training)]))))
        training.announce(self._verdict(self.reported.get(index, 0), joined("; ", faults) or training.no_fault()))

    def _no_fault(self, training: Training) -> str:
        text = training.no_fault()
        if not training.decides and training.follower is not None:
            verdict = training.follower.verdict
            text = verdict.headline if verdict else "the leading host did not say what it has found"
        if training.decides and (busy := training.busy_sentence()):
            text = filled("{0}. {1}", text.removesuffix("."), busy)
        return text

    def _await_verdict(self, index: int, training: Training) -> bool:
        """Where another host decides: whether it has found a fault. What is wrong with the data, each host finds."""
        follower, limit = training.follower, time.monotonic() + PARTING_SECONDS
        while follower is not None and follower.connected and not self.ended and time.monotonic() < limit:
            if follower.verdict is not None or index in self.reported:
                break
            time.sleep(LOOK)
            self.look()
        if follower is not None and index not in self.reported:
            self._hear_leader(index, training)
        return index in self.reported

    def _finish_without_ranks(self) -> None:
        """Reports a program that was seen by its output alone."""
        watch = self.losses.watch
        if not watch.losses:
            return warn(NO_RANK)
        verdicts = self.losses.verdicts()
        warn(f"{NO_RANK}. {loss_headline(watch, verdicts)}")
        if verdicts or (self.options.always_report and watch.decided):
            seconds = time.monotonic() - self.began
            unseen = output_only_run(self.source, seconds, (*self.notes, *watch.notes))
            self.reported[0] = self.report(WatchOutcome(self._with_losses(unseen, {}), LOSS_CHECKS, None))
        return None

    def _with_losses(
        self, run: Run, hosts: dict[int, str], data: DataReport | None = None, pace: PaceComparison | None = None
    ) -> Run:
        watch = self.losses.watch
        result = WatchResult(
            curves=watch.curves(),
            verdicts=tuple(self.losses.verdicts()),
            digests=self.folder.data.saved() if data else {},
            hosts=hosts,
            resumed=self.resume.report,
            pace=pace,
        )
        return msgspec.structs.replace(run, watch=msgspec.to_builtins(result, str_keys=True))

    def _outcome(self, training: Training, failure: Failure | None) -> WatchOutcome:
        watch = training.watch
        work = training.comparable_work()
        notes = (*training.sentences(), *self.notes, *self.losses.watch.notes)
        unseen = training.unseen_sentence()
        if unseen and (failure is None or failure.kind != "never-joined"):
            notes += (unseen,)
        data = self.folder.data.report() if any(self.folder.data.digests.glob("*.probe")) else None
        if data is not None and training.post is not None:
            notes += (filled("Digests of data were compared between the ranks of {0} alone.", self.host),)
        notes += resume_notes(self.resume.report) if self.resume.report else ()
        pace = training.pace_report
        notes += pace_notes(pace) if pace else ()
        saved_run, checks = watched_run(
            self.source,
            training.host_names(),
            watch.world,
            watch.backend,
            watch.library,
            failure,
            work,
            max(watch.steps.values(), default=0),
            time.monotonic() - training.began,
            not training.unjudged(),
            notes + (notes_of(data) if data else ()),
        )
        wrong = {CHECK_OF[verdict.kind] for verdict in self.losses.verdicts()}
        checks += tuple(name for name in LOSS_CHECKS if name in wrong or (failure is None and self.losses.watch.losses))
        checks += ((RESUME_CHECK,) if self.resume.report else ()) + ((PACE_CHECK,) if pace and pace.runs else ())
        hosts = dict(sorted(training.hosts.items()))
        return WatchOutcome(self._with_losses(saved_run, hosts, data, pace), checks, data)
