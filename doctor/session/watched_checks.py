"""Checks of the smoke run that also report what is wrong with the loss of a watched program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doctor.engine import check as declaration
from doctor.engine.check import Check
from doctor.engine.loss_rules import LOSS_CHECKS, loss_findings
from doctor.engine.result import Finding
from doctor.engine.watch_summary import WatchResult


def for_watched(checks: Sequence[Check]) -> list[Check]:
    """The checks, those of the loss as ones of the watched program: names, pages and severities stay."""
    return [_of_watched(check) if check.name in LOSS_CHECKS and check.area == "smoke" else check for check in checks]


def _of_watched(check: Check) -> Check:
    def judge_loss(watch: WatchResult) -> Iterator[Finding]:
        yield from loss_findings(watch, check.name)

    judge_loss.__name__, judge_loss.__doc__ = check.name.replace("-", "_"), check.doc
    return Check(declaration.check(severity=check.severity, area=check.area)(judge_loss), check.path)
