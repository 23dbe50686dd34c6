"""``DOCTOR_SKIP``: checks that one job or one shell leaves out, and the trace that this leaves. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

from doctor.config.file import ConfigError
from doctor.engine.errors import did_you_mean
from doctor.engine.result import Outcome, Report
from doctor.engine.sanitize import quote
from doctor.engine.texts import filled

__all__ = ["ALL", "REASON", "VARIABLE", "ConfigError", "Skips", "apply_skips", "read_skips"]

VARIABLE = "DOCTOR_SKIP"
ALL = "all"
REASON = filled("{0} names it", VARIABLE)


class Skips(msgspec.Struct, frozen=True):
    """The checks to skip."""

    all: bool = False
    names: frozenset[str] = frozenset()
    text: str = ""
    """Text for the report; empty when no check is skipped."""


def read_skips(environ: Mapping[str, str], known_checks: Collection[str]) -> Skips:
    """What DOCTOR_SKIP names: checks among ``known_checks``, parted by commas or white space, or ``all``.

    Raises: BadSettings for an unknown name. Otherwise a typo would keep a check active, unnoticed until it
    fails.
    """
    names = [word for word in re.split(r"[,\s]+", environ.get(VARIABLE, "")) if word]
    if ALL in names:
        return Skips(all=True, text=f"{VARIABLE}={ALL}")
    for word in names:
        if word not in known_checks:
            raise ConfigError(filled("{0}: no check is named {1}{2}", VARIABLE, quote(word), _hint(word, known_checks)))
    return Skips(names=frozenset(names), text=f"{VARIABLE}={','.join(sorted(set(names)))}" if names else "")


def _hint(word: str, known_checks: Collection[str]) -> str:
    return did_you_mean(word, (*known_checks, ALL)) or "; `doctor list` lists all checks; site checks need --checks DIR"


def apply_skips(report: Report, skips: Skips) -> Report:
    """``report`` as if the checks had not been called; a note names them."""
    skipped_checks = [outcome.check for outcome in report.outcomes if skips.all or outcome.check in skips.names]
    if not skipped_checks:
        return report
    outcomes = tuple(
        Outcome(outcome.check, outcome.severity, outcome.area, outcome.claim, skipped={"": REASON})
        if outcome.check in set(skipped_checks)
        # Whoever leaves out what was selected is content with what comes with every selection: the hosts answer.
        else msgspec.structs.replace(outcome, implied=False)
        for outcome in report.outcomes
    )
    note = "all checks were skipped" if skips.all else filled("skipped: {0}", ", ".join(skipped_checks))
    return msgspec.structs.replace(report, outcomes=outcomes, notes=(*report.notes, filled("{0}: {1}", VARIABLE, note)))
