"""One preflight, from its first moment to its one line: gather, decide, report."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from doctor.engine.errors import CommandError
from doctor.engine.exit_code import Exit
from doctor.preflight.deadline import Deadline, Heartbeat, TimeBudget, process_age
from doctor.preflight.decide import (
    PreflightVerdict,
    decide,
    decide_unevaluated,
    signal_exit_code,
    with_redacted_report,
    with_unwritten_lists,
)
from doctor.preflight.gather import NotReady, gather, gather_partial, skips_all
from doctor.preflight.gathered import Gathered, GatherProgress
from doctor.preflight.options import PreflightOptions
from doctor.preflight.report import PreflightReporter, print_advice, write_node_files

if TYPE_CHECKING:
    from doctor.engine.check import Check


def run_preflight(options: PreflightOptions) -> int:
    """Runs one preflight of this process and its environment. Returns the exit code."""
    start_time = time.monotonic() - process_age()
    return PreflightRun(options, os.environ, TimeBudget(start_time, options.budget)).run()


class PreflightRun:
    """Ends with exactly one line and a complete report, at whatever moment, and for whatever reason, it ends.

    The deadline's thread may end it while the main thread gathers, decides or reports: it finds what is known so far
    in ``progress``, and the verdict, once there is one, in ``verdict``.
    """

    def __init__(self, options: PreflightOptions, environ: Mapping[str, str], budget: TimeBudget) -> None:
        self.options, self.environ, self.budget = options, environ, budget
        self.reporter = PreflightReporter(options, environ, budget)
        self.verdict: PreflightVerdict | None = None
        """Set as a whole, before anything of it is reported."""
        heartbeat = Heartbeat(None if options.quiet else sys.stderr, budget.start_time)
        self.progress = GatherProgress(Gathered(tier=options.tier), heartbeat)

    def run(self) -> int:
        """Gathers, decides, reports. Returns the exit code."""
        deadline = Deadline(self.budget.end, self.finish_at_deadline)
        try:
            return self._gather_and_report()
        except CommandError as error:
            return self._finish_not_ready(str(error), error.exit_code, "bad-input")
        except NotReady as why:
            return self._finish_not_ready(str(why), Exit.UNKNOWN, why.cause)
        except (KeyboardInterrupt, SystemExit) as stop:
            return self._finish_interrupted(stop)
        except Exception as error:  # noqa: BLE001 - the rim: the line and the report are told of our own bugs, too
            return self._finish_after_bug(error)
        finally:
            self.progress.heartbeat.close()
            deadline.cancel()

    def finish_at_deadline(self) -> int:
        """The budget has ended and something hangs. In a thread of its own; the process ends after it."""
        if self.verdict is None:
            why = f"the budget of {self.options.budget:g} s ended"
            return self._report(self._unevaluated(why, Exit.UNKNOWN, "budget-ended"))
        return self._print_line(self.verdict)

    def _gather_and_report(self) -> int:
        if skips_all(self.environ):
            self.progress.update(skipped=("all",))
            self.progress.add_notes("DOCTOR_SKIP=all: nothing was checked")
            return self._report(self._unevaluated("DOCTOR_SKIP=all", Exit.HEALTHY, ""))
        gathered = gather(self.options, self.environ, self.budget, self.progress)
        if not isinstance(gathered, Gathered):  # another process of this host has looked
            return gathered.code
        return self._decide_and_report(gathered)

    def _decide_and_report(self, gathered: Gathered) -> int:
        verdict = decide(gathered, self.options)
        if verdict.selection is not None:
            unwritten = write_node_files(verdict.selection, self.options)
            verdict = with_unwritten_lists(verdict, self.options, unwritten)
        return self._report(verdict)

    def _report(self, verdict: PreflightVerdict) -> int:
        """Files, the line, advice, and the same verdict for the other processes of this host. Returns the exit code."""
        self.progress.heartbeat.close()
        if self.options.redact:
            verdict = with_redacted_report(verdict, self.progress.aliases())
        self.verdict = verdict
        self.reporter.write_files(verdict, self.progress.events)
        self.reporter.print_line(verdict)
        if not self.options.quiet:
            print_advice(verdict)
        if self.progress.leader is not None:
            until = self.budget.end if verdict.code < 128 else time.monotonic()
            with self.progress.leader as leader:
                leader.announce(verdict.exit_code, self.reporter.line, until)
        return verdict.exit_code

    def _print_line(self, verdict: PreflightVerdict) -> int:
        """Only the line: there is no time for more. Returns the exit code."""
        self.reporter.print_line(verdict)
        return verdict.exit_code

    def _finish_not_ready(self, why: str, code: int, cause: str) -> int:
        """Nothing can be evaluated: bad input, or a platform that is not ready."""
        print(f"doctor: {why}", file=sys.stderr)
        self.progress.add_notes(why)
        return self._report(self._unevaluated(why, code, cause))

    def _finish_interrupted(self, stop: BaseException) -> int:
        """A signal: what had been read by then is evaluated."""
        if self.verdict is not None:
            return self._print_line(self.verdict)
        gathered = gather_partial(self.options, self.environ, self.budget, self.progress, stop)
        if gathered is not None:
            return self._decide_and_report(gathered)
        why, checks = "interrupted before any host was checked", self.progress.gathered.selected_checks
        return self._report(self._unevaluated(why, signal_exit_code(stop), "interrupted", checks))

    def _finish_after_bug(self, error: Exception) -> int:
        from doctor.session.console import report_own_bug

        code = report_own_bug(error)
        self.progress.add_notes(f"a bug of doctor itself ended the run: {type(error).__name__}")
        return self._report(self._unevaluated("a bug of doctor itself ended the run", code, "doctor-bug"))

    def _unevaluated(self, why: str, code: int, cause: str, checks: Sequence[Check] = ()) -> PreflightVerdict:
        seconds = self.budget.elapsed_seconds()
        return decide_unevaluated(self.progress.gathered, self.options, why, code, cause, seconds, checks)
