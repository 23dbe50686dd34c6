"""``DOCTOR_SKIP``: checks that one job or one shell leaves out, and the trace that this leaves. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

from doctor.config.file import BadSettings, nearest
from doctor.engine.result import Outcome, Report
from doctor.hosts.nodeset import quote

__all__ = ["ALL", "REASON", "VARIABLE", "BadSettings", "Skips", "leave_out", "skipped"]

VARIABLE = "DOCTOR_SKIP"
ALL = "all"
REASON = f"{VARIABLE} names it"


class Skips(msgspec.Struct, frozen=True):
    """What is left out."""

    all: bool = False
    names: frozenset[str] = frozenset()
    text: str = ""
    """In words, for a report's line; empty when nothing is left out."""


def skipped(environ: Mapping[str, str], known: Collection[str]) -> Skips:
    """What DOCTOR_SKIP names: checks among ``known``, parted by commas or white space, or ``all``.

    Raises: BadSettings for a name that is not known. A slip of the pen would else leave in what was to be left out, and
    nobody would see it before the check fails.
    """
    words = [word for word in re.split(r"[,\s]+", environ.get(VARIABLE, "")) if word]
    if ALL in words:
        return Skips(all=True, text=f"{VARIABLE}={ALL}")
    for word in words:
        if word not in known:
            raise BadSettings(f"{VARIABLE}: no check is named {quote(word)}{_hint(word, known)}")
    return Skips(names=frozenset(words), text=f"{VARIABLE}={','.join(sorted(set(words)))}" if words else "")


def _hint(word: str, known: Collection[str]) -> str:
    return nearest(word, (*known, ALL)) or "; `doctor list` names them all; those of --checks DIR are known with it"


def leave_out(report: Report, skips: Skips) -> Report:
    """``report`` as if the checks had not been called; a note names them."""
    out = [one.check for one in report.outcomes if skips.all or one.check in skips.names]
    if not out:
        return report
    outcomes = tuple(_left_out(one) if one.check in set(out) else one for one in report.outcomes)
    said = "no check was judged" if skips.all else f"not judged: {', '.join(out)}"
    return msgspec.structs.replace(report, outcomes=outcomes, notes=(*report.notes, f"{VARIABLE}: {said}"))


def _left_out(outcome: Outcome) -> Outcome:
    return Outcome(outcome.check, outcome.severity, outcome.area, outcome.claim, skipped={"": REASON})
