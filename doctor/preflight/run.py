"""One preflight, from its first moment to its one line."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.errors import CommandError
from doctor.engine.exit_code import Exit, exit_code
from doctor.engine.result import Outcome, Reason, Report
from doctor.preflight import report as telling
from doctor.preflight.deadline import Deadline, Heartbeat
from doctor.preflight.gather import NotReady, examine_or_follow, skips_all
from doctor.preflight.options import PreflightOptions
from doctor.session.output_files import EventStreams, requested_targets

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.record import HostRecord
    from doctor.environment.inventory import Inventory
    from doctor.environment.job_context import JobContext
    from doctor.preflight.host_leader import Leader
    from doctor.preflight.spares import SpareSelection
    from doctor.session.examine import Examination, ExamineOptions

REPORT_RESERVE_SECONDS = 1.0
"""Seconds of the budget that are kept to judge and to report, and a part for each host beside them."""
RESERVE_SECONDS_PER_HOST = 0.008
TABLE_WAIT_SHARE = 0.5
"""Part of the budget that an unfinished rank table is waited for."""


class Preflight:
    """What is known so far. At every moment it can be brought to an end, and says what is known then."""

    def __init__(self, options: PreflightOptions, environ: Mapping[str, str], start_time: float) -> None:
        self.preflight_options, self.environ, self.start_time = options, environ, start_time
        self.end = start_time + options.budget
        self.tier = options.tier
        self.catalog: list[Check] = []
        self.selected_checks: list[Check] = []
        self.excluded_checks: list[str] = []
        self.inventory: Inventory | None = None
        self.context: JobContext | None = None
        self.leader: Leader | None = None
        """Those for whom this process looks, too."""
        self.records: dict[str, HostRecord] = {}
        self.notes: list[str] = []
        self.skipped: tuple[str, ...] = ()
        """What DOCTOR_SKIP leaves out."""
        self.written: set[str] = set()
        self.cause = ""
        """Why nothing was judged, in a word."""
        self.format_targets = requested_targets(options.formats)
        self.events = EventStreams()
        self.code: int | None = None
        self.line_input: tuple[Report, int, SpareSelection | None] | None = None
        """What the line is to say, once that is settled."""
        self.line = ""
        self._print_lock = threading.Lock()
        self.heartbeat = Heartbeat(None if options.quiet else sys.stderr, start_time)

    def run(self) -> int:
        """Looks, judges, tells. Returns the exit code; whatever happens, there is one line and a whole report."""
        deadline = Deadline(self.end, self.finish_at_deadline)
        try:
            return self._examine_and_report()
        except CommandError as refusal:
            return self._finish_unevaluated(str(refusal), refusal.exit_code, "bad-input")
        except NotReady as why:
            return self._finish_unevaluated(str(why), Exit.UNKNOWN, why.cause)
        except (KeyboardInterrupt, SystemExit) as stop:
            return self._finish_interrupted(stop)
        except Exception as error:  # noqa: BLE001 - the rim: the line and the report are told of our own bugs, too
            return self._finish_after_bug(error)
        finally:
            self.heartbeat.close()
            deadline.cancel()

    def remaining_seconds(self) -> float:
        """Seconds of the budget."""
        return self.end - time.monotonic()

    # -- looking

    def _examine_and_report(self) -> int:
        if skips_all(self.environ):
            self.skipped = ("all",)
            self.notes.append("DOCTOR_SKIP=all: nothing was looked at")
            return self._finish(self.all_unknown_report("DOCTOR_SKIP=all"), None, Exit.HEALTHY)
        examination = examine_or_follow(self)
        if isinstance(examination, int):  # another process of this host has looked
            return examination
        return self._evaluate_and_report(examination)

    def _finish_interrupted(self, stop: BaseException) -> int:
        """A signal: what had been read by then is judged."""
        if self.code is not None:
            return self._print_status_line()
        from doctor.session.examine import examine_partial

        fleet = self.inventory
        if fleet is None or not self.selected_checks:
            self.cause = "interrupted"
            report = self.all_unknown_report("interrupted before any host was looked at")
            return self._finish(report, None, _signal_code(stop))
        rank_table = self.preflight_options.hosts.rank_table or ""
        why = "the run was interrupted before it answered"
        examination = examine_partial(
            fleet,
            self.records,
            self.selected_checks,
            self.examine_options(),
            self.environ,
            why,
            stop,
            rank_table=rank_table,
        )
        return self._evaluate_and_report(examination)

    def examine_options(self) -> ExamineOptions:
        """How hosts are looked at, in the time that is left."""
        from doctor.session.examine import ExamineOptions
        from doctor.smoke.plan import SmokeOptions

        options, count = self.preflight_options, len(self.inventory.hosts) if self.inventory else 0
        reserve = min(self.remaining_seconds() / 4, REPORT_RESERVE_SECONDS + RESERVE_SECONDS_PER_HOST * count)
        budget = max(0.1, self.remaining_seconds() - reserve)
        return ExamineOptions(
            transport=options.transport,
            ssh=options.ssh,
            sudo=options.sudo,
            within=options.within,
            timeout=min(60.0, budget),
            budget=budget,
            launch=options.launch,
            smoke=SmokeOptions(**options.job) if self.tier == "smoke" else None,
        )

    # -- telling

    def _evaluate_and_report(self, examination: Examination) -> int:
        """Judgement, spares, files, the line."""
        options = self.preflight_options
        report = self.apply_policy(examination.report)
        verdict_code = exit_code(report, strict=options.strict, on_unknown=options.on_unknown, fail_on=options.fail_on)
        if examination.stopped is not None:
            verdict_code = _signal_code(examination.stopped)
        selection = (
            self._choose(examination, report) if options.need or options.write_nodes or options.write_bad else None
        )
        if selection is not None and options.need and examination.stopped is None:
            verdict_code = selection.code
            report = msgspec.structs.replace(report, notes=(*report.notes, *_need_notes(selection)))
        if selection is not None:
            unwritten = telling.write_node_files(selection, options)
            if unwritten and verdict_code in (
                Exit.HEALTHY,
                Exit.WARNINGS,
            ):  # whoever starts by the lists would start by old ones
                verdict_code = Exit.UNKNOWN
                report = msgspec.structs.replace(report, notes=(*report.notes, *unwritten))
        return self._finish(report, examination, int(verdict_code), selection)

    def apply_policy(self, report: Report) -> Report:
        """With waivers and skips applied, and the notes that are ours. Raises: CommandError."""
        from doctor.session.policy import apply_policy

        report = msgspec.structs.replace(report, notes=(*self.notes, *report.notes))
        return apply_policy(
            report, Path(self.preflight_options.config) if self.preflight_options.config else None, self.catalog
        )

    def _choose(self, examination: Examination, report: Report) -> SpareSelection:
        from doctor.preflight.spares import select_hosts
        from doctor.session.examine import replay

        options = self.preflight_options
        judge: Callable[..., Report] = lambda run: self.apply_policy(replay(run, self.selected_checks))  # noqa: E731
        return select_hosts(
            examination.run,
            report,
            judge,
            options.need,
            fail_on=options.fail_on,
            on_unknown=options.on_unknown,
            strict=options.strict,
            writes_table=options.node_format == "ranktable" and bool(options.write_nodes),
        )

    def _finish(
        self,
        report: Report,
        examination: Examination | None,
        verdict_code: int,
        selection: SpareSelection | None = None,
    ) -> int:
        self.code = self.preflight_options.exit_code_policy.code(verdict_code)
        self.heartbeat.close()
        if self.preflight_options.redact:
            from doctor.session.redact import with_pseudonyms

            report = with_pseudonyms(report, [record.visit.name for record in self.records.values()])
        self.line_input = report, verdict_code, selection
        telling.write_reports(self, report, examination, verdict_code)
        self._print_status_line()
        if not self.preflight_options.quiet:
            telling.print_advice(self, report, verdict_code)
        if self.leader is not None:
            with self.leader as leader:
                leader.announce(self.code, self.line, self.end if verdict_code < 128 else time.monotonic())
        return self.code

    def _print_status_line(self) -> int:
        """The line of what is settled, if it was not said yet. Returns the exit code."""
        assert self.code is not None
        if self.line_input and not self.line:
            report, verdict_code, selection = self.line_input
            self._print_once(telling.line(self, report, verdict_code, self.code, selection))
        return self.code

    def _print_once(self, line: str) -> None:
        """Once, from whatever thread comes first."""
        from doctor.session.console import write

        with self._print_lock:
            if self.line:
                return
            self.line = line
            write(line)
            telling.termination_log(line, self.environ)

    def _finish_unevaluated(self, why: str, code: int, cause: str) -> int:
        """Nothing can be judged: bad input, or a platform that is not ready."""
        self.cause = cause
        print(f"doctor: {why}", file=sys.stderr)
        self.notes.append(why)
        self.selected_checks = []
        return self._finish(self.all_unknown_report(why), None, code)

    def _finish_after_bug(self, error: Exception) -> int:
        """A bug of ours."""
        from doctor.session.console import report_own_bug

        code = report_own_bug(error)
        self.cause, self.selected_checks = "doctor-bug", []
        self.notes.append(f"a bug of doctor itself ended the run: {type(error).__name__}")
        return self._finish(self.all_unknown_report("a bug of doctor itself ended the run"), None, code)

    def all_unknown_report(self, why: str) -> Report:
        """A report in which every check is unknown on every host that we have heard of."""
        hosts: Sequence[str] = self.inventory.hosts if self.inventory else ()
        gaps = {host: Reason(why) for host in hosts or ("",)}
        outcomes = tuple(
            Outcome(check.name, check.severity, check.area, check.claim, unknown=dict(gaps))
            for check in self.selected_checks
        )
        source = self.inventory.source if self.inventory else "no hosts"
        seconds = round(time.monotonic() - self.start_time, 3)
        return Report(source, tuple(hosts), outcomes, "", seconds, tuple(self.notes) or (why,))

    def finish_at_deadline(self) -> int:
        """The budget has ended and something hangs. In a thread of its own; the process ends after it."""
        if self.code is None:
            self.cause, self.selected_checks = "budget-ended", []
            report = self.all_unknown_report(f"the budget of {self.preflight_options.budget:g} s ended")
            return self._finish(report, None, Exit.UNKNOWN)
        return self._print_status_line()


def _need_notes(selection: SpareSelection) -> list[str]:
    """What became of the search for enough hosts."""
    if selection.code != Exit.HEALTHY and selection.obstacles:
        return [f"--need {selection.need}: {line}" for line in selection.obstacles]
    out = "; ".join(f"{host} ({', '.join(checks)})" for host, checks in selection.excluded.items())
    spare = f", {len(selection.spares)} healthy spares" if selection.spares else ""
    outcome = "met" if selection.code == Exit.HEALTHY else "not met"
    return [f"--need {selection.need}: {outcome}{spare}{'; left out: ' if out else ''}{out}"]


def _signal_code(stop: BaseException) -> int:
    return stop.code if isinstance(stop, SystemExit) and isinstance(stop.code, int) else Exit.INTERRUPTED


def process_start_time() -> float:
    """The monotonic clock when this process was started."""
    from doctor.preflight.deadline import process_age

    return time.monotonic() - process_age()


def run_preflight(options: PreflightOptions) -> int:
    """Runs one preflight of this process and its environment."""
    return Preflight(options, os.environ, process_start_time()).run()
