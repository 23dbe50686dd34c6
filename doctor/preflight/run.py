"""One preflight, from its first moment to its one line: gather, decide, report."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from doctor.engine import interrupts
from doctor.engine.check import Check
from doctor.engine.errors import CommandError
from doctor.engine.exit_code import Exit, signal_exit_code
from doctor.engine.language import localized_filled
from doctor.engine.streams import forgive_unwritten, print_stderr
from doctor.engine.texts import filled
from doctor.environment.inventory import Inventory
from doctor.preflight import early_end
from doctor.preflight.deadline import Deadline, Heartbeat, TimeBudget
from doctor.preflight.decide import (
    PreflightVerdict,
    decide,
    decide_unevaluated,
    needs_selection,
    with_redacted_report,
    with_selection,
    with_unwritten_lists,
)
from doctor.preflight.gather import gather, gather_partial, local_host_name, skips_all
from doctor.preflight.gathered import Gathered, GatherProgress, NotReady
from doctor.preflight.options import PreflightOptions
from doctor.preflight.report import PreflightReporter, print_advice, write_node_files

if TYPE_CHECKING:
    from doctor.engine.result import Report
    from doctor.report.diff.values import RunValues

AGES_SECONDS = 0.3
"""Seconds for which reading earlier runs, before a report file is written, may be blocked."""
MOST_AGES_SECONDS = 1.0
"""Seconds for it in all."""
RESERVE_SECONDS = 2.0
"""Where less of the budget remains before the report, earlier runs are not read."""
KEEP_SECONDS = 1.0
"""Seconds for which writing the record may be blocked; in all it has half of what remains of the budget."""


class RunKeeper:
    """Of one preflight; it keeps the verdict that it is given, before names are replaced by pseudonyms."""

    def __init__(self, verdict: PreflightVerdict, options: PreflightOptions, environ: Mapping[str, str]) -> None:
        self.verdict, self.options, self.environ = verdict, options, environ

    @property
    def is_kept(self) -> bool:
        """One process evaluates the fleet; those that check their own hosts beside it would keep the same again."""
        context = self.verdict.gathered.context
        evaluates_fleet = context is None or context.started == "prolog" or context.leads_fleet
        return self.options.keeps_history and evaluates_fleet

    def with_ages(self, verdict: PreflightVerdict, budget: TimeBudget) -> PreflightVerdict:
        """``verdict`` with the ages of its findings, where a file will hold them and there is time to read them."""
        has_file = self.options.report or self.options.formats
        if not has_file or not self.is_kept or budget.report_seconds() < RESERVE_SECONDS:
            return verdict
        report = self._remember(AGES_SECONDS, MOST_AGES_SECONDS, tells_ages=True, keeps=False)
        return msgspec.structs.replace(verdict, report=msgspec.structs.replace(verdict.report, ages=report.ages))

    def keep(self, budget: TimeBudget) -> None:
        most_seconds = budget.remaining_seconds() / 2
        if self.is_kept and most_seconds > 0:
            self._remember(KEEP_SECONDS, most_seconds, tells_ages=False, keeps=True)

    def _remember(self, seconds: float, most_seconds: float, *, tells_ages: bool, keeps: bool) -> Report:
        from doctor.session.run_history import HistoryOptions, remember

        code = self.verdict.code
        options = HistoryOptions("preflight", self.options.config, seconds, most_seconds, self.options.quiet, code)
        return remember(
            self.verdict.report,
            self.verdict.gathered.catalog,
            options,
            tells_ages=tells_ages,
            keeps=keeps,
            values=self._settings() if keeps else None,
            environ=self.environ,
        )

    def _settings(self) -> RunValues | None:
        """The settings of the hosts, where this preflight was to read all of them."""
        examination = self.verdict.gathered.examination
        if examination is None:
            return None
        from doctor.session.finish import read_settings

        return read_settings(examination, self.verdict.report)


def run_preflight(options: PreflightOptions) -> int:
    """Runs one preflight of this process and its environment. Returns the exit code."""
    return PreflightRun(options, os.environ, TimeBudget.of_this_process(options.total_seconds)).run()


class PreflightRun:
    """Ends with exactly one line and a complete report, at any moment and for any reason.

    The deadline's thread may end it while the main thread gathers, decides or reports: it finds what is known so far
    in ``progress``, and the verdict, once there is one, in ``verdict``.
    """

    def __init__(self, options: PreflightOptions, environ: Mapping[str, str], budget: TimeBudget) -> None:
        self.options, self.environ, self.budget = options, environ, budget
        self.reporter = PreflightReporter(options, environ, budget)
        self.verdict: PreflightVerdict | None = None
        """Set as a whole, before anything of it is reported; while lists of hosts are still to be written, not
        healthy."""
        heartbeat = Heartbeat(None if options.quiet else sys.stderr, budget.start_time)
        self.progress = GatherProgress(
            Gathered(tier=options.tier, evaluation_end=budget.evaluation_end), heartbeat, self.reporter.remove_old_files
        )

    def run(self) -> int:
        """Gathers, decides, reports. Returns the exit code."""
        deadline = Deadline(self.budget.report_end, self.finish_at_deadline, self.budget.end, self.finish_without_files)
        try:
            # Only here: until a signal's exception is caught, the handler that prints the line by itself stays.
            interrupts.raise_on_stop()
            if early_end.early_end is not None:
                early_end.early_end.run_begins(self.budget.end)
            self._run(self._gather_and_report)
        except (KeyboardInterrupt, SystemExit) as stop:
            self._run(partial(self._finish_interrupted, stop))
        finally:
            self.progress.heartbeat.close()
            deadline.cancel()
        self._wait_for_connections()
        if not self.options.exit_code_policy.code(Exit.NOTHING):
            forgive_unwritten()
        return self.reporter.exit_code

    def finish_at_deadline(self) -> int:
        """The budget has ended and something hangs. In a thread of its own; the process ends after it."""
        self._report(self.verdict or self._budget_ended(), until=0.0)
        return self.reporter.exit_code

    def finish_without_files(self) -> int:
        """The report hangs as well."""
        self.reporter.print_line(self.verdict or self._budget_ended())
        return self.reporter.exit_code

    def _run(self, phase: Callable[[], None]) -> None:
        """Runs a phase, and reports the error that ends it. Raises: SystemExit for a signal."""
        try:
            phase()
        except CommandError as error:
            self._finish_not_ready(str(error), error.exit_code, "bad-input")
        except NotReady as why:
            self._finish_not_ready(str(why), Exit.UNKNOWN, why.cause)
        except Exception as error:  # noqa: BLE001 - the line and the report show our own bugs, too
            self._finish_after_bug(error)

    def _gather_and_report(self) -> None:
        if skips_all(self.environ):
            self.progress.update(skipped=("all",))
            self.progress.add_notes("DOCTOR_SKIP=all: nothing was checked")
            self._report(self._unevaluated("DOCTOR_SKIP=all", Exit.HEALTHY, ""))
            return
        gathered = gather(self.options, self.environ, self.budget, self.progress)
        if isinstance(gathered, Gathered):
            self._decide_and_report(gathered)
        elif self.options.gang:  # another pod has run the checks
            self.progress.heartbeat.close()
            self.reporter.print_line_of(gathered)
        else:  # another process of this host has run the checks and printed its line
            early_end.claim_line()
            self.reporter.exit_code = gathered.code

    def _decide_and_report(self, gathered: Gathered) -> None:
        verdict = decide(gathered, self.options)
        if needs_selection(self.options):
            pending = ["the lists of hosts were not written in time"]
            self._publish(with_unwritten_lists(verdict, self.options, pending))
            verdict = with_selection(verdict, self.options)
            assert verdict.selection is not None
            self._publish(with_unwritten_lists(verdict, self.options, pending))
            unwritten = write_node_files(verdict.selection, self.options)
            verdict = with_unwritten_lists(verdict, self.options, unwritten)
        keeper = RunKeeper(verdict, self.options, self.environ)
        self._report(keeper.with_ages(verdict, self.budget))
        keeper.keep(self.budget)

    def _publish(self, verdict: PreflightVerdict) -> PreflightVerdict:
        """From now on this verdict stands, for any end of the process."""
        if self.options.redact:
            verdict = with_redacted_report(verdict, self.progress.aliases())
        self.verdict = verdict
        return verdict

    def _report(self, verdict: PreflightVerdict, until: float = float("inf")) -> None:
        """Files, the line, advice, and the same verdict for the other processes of this host, not beyond ``until``."""
        self.progress.heartbeat.close()
        if verdict is not self.verdict:
            verdict = self._publish(verdict)
        self.reporter.write_files(verdict, self.progress.events)
        interrupts.ignore()
        self.reporter.print_line(verdict)
        if not self.options.quiet:
            print_advice(verdict)
        if self.progress.leader is not None:
            until = min(until, self.budget.end if verdict.code < 128 else time.monotonic())
            with self.progress.leader as leader:
                leader.announce(verdict.exit_code, self.reporter.line, until)

    def _finish_not_ready(self, why: str, code: int, cause: str) -> None:
        """Nothing can be evaluated: bad input, or a platform that is not ready."""
        print_stderr(filled("doctor: {0}", localized_filled(why)))
        self.progress.add_notes(why)
        self._report(self._unevaluated(why, code, cause))

    def _finish_interrupted(self, stop: BaseException) -> None:
        """A signal, before the line was printed: what had been read by then is evaluated."""
        gathered = gather_partial(self.options, self.environ, self.budget, self.progress, stop)
        if gathered is not None:
            self._decide_and_report(gathered)
            return
        why, checks = "interrupted before any host was checked", self.progress.gathered.selected_checks
        self._report(self._unevaluated(why, signal_exit_code(stop), "interrupted", checks))

    def _finish_after_bug(self, error: Exception) -> None:
        from doctor.session.console import report_own_bug

        code = report_own_bug(error)
        self.progress.add_notes(filled("a bug of doctor itself ended the run: {0}", type(error).__name__))
        verdict = self._unevaluated("a bug of doctor itself ended the run", code, "doctor-bug")
        try:
            self._report(verdict)
        except Exception:  # noqa: BLE001 - the bug may be in the report, and was reported; the line is due all the same
            self.reporter.print_line(verdict)

    def _budget_ended(self) -> PreflightVerdict:
        """The verdict where none was reached in time: what was evaluated stands in the report."""
        why, examination = (
            filled("the budget of {0} s ended", f"{self.options.total_seconds:g}"),
            self.progress.gathered.examination,
        )
        pending = self.progress.pending
        verdict = self._unevaluated(str(pending or why), Exit.UNKNOWN, pending.cause if pending else "budget-ended")
        if examination is not None:
            verdict = msgspec.structs.replace(verdict, report=examination.report)
        return verdict

    def _unevaluated(self, why: str, code: int, cause: str, checks: Sequence[Check] = ()) -> PreflightVerdict:
        seconds, gathered = self.budget.elapsed_seconds(), self.progress.gathered
        if gathered.inventory is None and code not in (Exit.HEALTHY, Exit.NOTHING):
            gathered = msgspec.structs.replace(gathered, inventory=self._listed_hosts())
        return decide_unevaluated(gathered, self.options, why, code, cause, seconds, checks)

    def _listed_hosts(self) -> Inventory:
        """The hosts that the line is about where the run did not come to choose them: of the list, or this one."""
        guard, named = early_end.early_end, self.options.hosts
        hosts = guard.hosts if guard else early_end.listed_hosts(named.nodes or named.hosts, "", self.environ)
        if hosts and self.options.scope != "local":
            return Inventory(hosts, filled("{0} hosts", len(hosts)))
        return Inventory((local_host_name(self.environ),), "this host alone", local=self.options.scope == "local")

    def _wait_for_connections(self) -> None:
        """What still runs on hosts is ended in the time that remains."""
        examination = self.progress.gathered.examination
        if examination is not None and examination.closing is not None:
            examination.closing.join(max(0.0, self.budget.end - time.monotonic()))
