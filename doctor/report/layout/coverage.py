"""How much of the catalogue applied to a run, and what kept the rest from applying. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from doctor.engine.areas import AREAS
from doctor.engine.language import localized, phrase
from doctor.engine.result import Outcome, Report
from doctor.report.layout.tally import Counts

_DEVICE_CHECKS = ("npu-missing", "gpu-driver-not-loaded")
"""They apply to every host that has a device of their kind, and to no other."""


class AreaCoverage(msgspec.Struct, frozen=True):
    """The checks of one area."""

    area: str
    applied: int
    checks: int


class Coverage(msgspec.Struct, frozen=True):
    """What a run covered."""

    applied: int
    """Checks that applied to at least one host, or to the job itself, whatever came of them."""
    checks: int
    limits: tuple[str, ...]
    """What kept many of the others from applying, in words: one host, no accelerator."""
    areas: tuple[AreaCoverage, ...]

    @property
    def text(self) -> str:
        """``18 of 124 checks apply: one host, no accelerator``, or empty where all apply."""
        return self.share + self.reason if self.applied < self.checks else ""

    @property
    def share(self) -> str:
        """``18 of 124 checks apply``."""
        return phrase(
            "{count} of {total} checks applies" if self.applied == 1 else "{count} of {total} checks apply",
            count=self.applied,
            total=self.checks,
        )

    @property
    def reason(self) -> str:
        """``: one host, no accelerator``, or empty."""
        return localized(": ") + localized(", ").join(map(localized, self.limits)) if self.limits else ""


def coverage(report: Report, counts: Counts) -> Coverage:
    """What the run covered; ``counts`` are those of the report."""
    areas = [area for area in AREAS if any(outcome.area == area for outcome in report.outcomes)]
    return Coverage(
        counts.checks - counts.skipped,
        counts.checks,
        tuple(_limits(report)),
        tuple(_area_coverage(area, [outcome for outcome in report.outcomes if outcome.area == area]) for area in areas),
    )


def _area_coverage(area: str, outcomes: list[Outcome]) -> AreaCoverage:
    return AreaCoverage(area, sum(map(_applied, outcomes)), len(outcomes))


def _applied(outcome: Outcome) -> bool:
    return bool(outcome.findings or outcome.crashed or outcome.unknown or outcome.waived or outcome.complete)


def _limits(report: Report) -> Iterator[str]:
    if len(report.hosts) == 1:
        yield "one host"
    by_name = {outcome.check: outcome for outcome in report.outcomes}
    if report.hosts and all(name in by_name and not _applied(by_name[name]) for name in _DEVICE_CHECKS):
        yield "no accelerator"
