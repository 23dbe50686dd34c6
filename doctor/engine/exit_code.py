"""The verdict of a run: one word, and one exit code. Pure."""

from __future__ import annotations

import enum
from typing import Literal

from doctor.engine.result import Report, Severity, Status

OnUnknown = Literal["fail", "warn", "ok"]
FailOn = Literal["error", "warning"]


class Exit(enum.IntEnum):
    """Every exit code of the program. 1 is no verdict: Python and the shell use it for accidents."""

    HEALTHY = 0
    """Everything that applies was checked, and no error was found. There may be warnings, without ``--strict``."""
    USAGE = 2
    """The command line cannot be understood."""
    FAILED = 10
    """An error was found; with ``--fail-on warning``, a warning."""
    WARNINGS = 11
    """``--strict``: no error, and a warning; or something unknown that ``--on-unknown warn`` makes a warning."""
    UNKNOWN = 12
    """No error was found, and something could not be checked, or a check crashed."""
    BUG = 70
    """A bug of this program, not of the cluster."""
    NOTHING = 78
    """No check applies or there is no host, so nothing was checked; or input cannot be read, or output written."""
    INTERRUPTED = 130
    TERMINATED = 143


class Verdict(enum.Enum):
    """The run in one word."""

    HEALTHY = "healthy"
    FAILED = "failed"
    WARNINGS = "warnings"
    UNKNOWN = "unknown"
    NOTHING = "nothing"


def verdict(report: Report, code: int | None = None) -> Verdict:
    """The word for the run, with any options; ``code`` is the exit code, which options can make stricter.

    An error outweighs what is unknown (it is certain), and what is unknown outweighs a warning (it may be an error).
    What is unknown of a check that never finds more than a warning counts as a warning: it may be one, and no more.
    What is unknown only because of a root cause that was found counts like all the rest. What is waived is neither
    error nor warning; what is unknown cannot be waived. What is unknown of such checks only because this user may not
    look is no warning, unless the exit code says so: on many systems that is every user's machine. Where hosts were to
    be judged and there was none, an error of the job's settings alone is a verdict.
    """
    outcomes = report.outcomes
    failed = {outcome.found_severity for outcome in outcomes if outcome.status is Status.FAILED}
    if Severity.ERROR in failed or code == Exit.FAILED:
        return Verdict.FAILED
    if report.lacks_hosts:
        return Verdict.NOTHING
    if any(outcome.crashed or (outcome.unknown and outcome.severity is Severity.ERROR) for outcome in outcomes) or (
        report.hosts_unknown or (report.smoke and report.smoke.ended != "complete")
    ):
        return Verdict.UNKNOWN
    if code == Exit.UNKNOWN:
        return Verdict.UNKNOWN
    if not any(outcome.complete for outcome in outcomes) and any(outcome.unknown for outcome in outcomes):
        return Verdict.UNKNOWN
    if failed or code == Exit.WARNINGS:
        return Verdict.WARNINGS
    if any(outcome.unknown for outcome in outcomes) and not report.checks_for_root:
        return Verdict.WARNINGS
    return Verdict.HEALTHY if any(outcome.complete and not outcome.implied for outcome in outcomes) else Verdict.NOTHING


def exit_code(
    report: Report, *, strict: bool = False, on_unknown: OnUnknown = "fail", fail_on: FailOn = "error"
) -> int:
    """The exit code of a run that came to its end.

    - 10 when an error was found; with ``fail_on="warning"`` also when a warning was.
    - 12 when something is unknown and nothing failed. ``on_unknown="warn"`` counts it as a warning, ``"ok"`` as
      nothing, and both forgive gaps alone: when no host at all could be checked, when a check crashed, or when
      the job may have hosts that are not known, it stays 12.
    - 11 when there are warnings and ``strict`` is set, else 0: warnings alone are healthy.
    - 78 when every check that was chosen was skipped, or hosts were to be judged and there was none.
      ``on_unknown="ok"`` makes it 0 where no host was to be checked, as in `doctor lint` of a script that no rule is
      about.
    """
    word = verdict(report)
    if word is Verdict.FAILED:
        return Exit.FAILED
    warned = any(outcome.status is Status.FAILED for outcome in report.outcomes)
    unknown = any(outcome.unknown for outcome in report.outcomes)
    if warned and fail_on == "warning":
        return Exit.FAILED
    if word in (Verdict.WARNINGS, Verdict.HEALTHY) and unknown and fail_on == "warning" and on_unknown == "fail":
        return Exit.UNKNOWN
    if word is Verdict.NOTHING:
        forgiven = on_unknown == "ok" and not report.hosts and report.outcomes and not report.lacks_hosts
        return Exit.HEALTHY if forgiven else Exit.NOTHING
    if word is Verdict.UNKNOWN:
        if on_unknown == "fail" or not _is_partial(report):
            return Exit.UNKNOWN
        warned = warned or on_unknown == "warn"
    warned = warned or (unknown and on_unknown != "ok")
    return Exit.WARNINGS if warned and strict else Exit.HEALTHY


def signal_exit_code(stop: BaseException) -> int:
    """128 + the number of the signal that ``stop`` was raised for."""
    return stop.code if isinstance(stop, SystemExit) and isinstance(stop.code, int) else Exit.INTERRUPTED


def let_job_run(word: str, code: int | None) -> bool:
    """Whether a run that was kept with this verdict and exit code let a job go on: its exit code was 0, by the options
    that it was given. Of a run without one (None), the verdict tells what it was without options.
    """
    if code is not None:
        return code == Exit.HEALTHY
    return word in (Verdict.HEALTHY.value, Verdict.WARNINGS.value)


def _is_partial(report: Report) -> bool:
    """What is unknown is a gap in what was seen: no check crashed, and some host, or intent alone, was looked at."""
    if report.hosts_unknown or any(outcome.crashed for outcome in report.outcomes):
        return False
    return any(outcome.evaluated_hosts or (outcome.complete and not report.hosts) for outcome in report.outcomes)
