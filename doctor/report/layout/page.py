"""Puts a report into entries of words, the same for every text format."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.result import Outcome, Report
from doctor.report.layout.failures import LONGEST_MESSAGE, failing
from doctor.report.layout.fold import Area, Exemption, Folded, Gap, fold
from doctor.report.layout.formatting import clean, count
from doctor.report.layout.page_model import Details, Entry, Part, Scope, Section, labelled
from doctor.report.layout.smoke_section import told
from doctor.report.layout.summary_lines import Closing, closing

if TYPE_CHECKING:
    from doctor.engine.check import Check

FEW = 8
"""Up to so many checks, each healthy one is told by its claim; beyond, they are counted by area."""
NAMED = 3
"""Up to so many checks are named where more are counted."""


class Page(msgspec.Struct, frozen=True):
    """A whole report in words."""

    sections: tuple[Section, ...]
    closing: Closing
    smoke: Details = ()
    """The smoke run, if one was made."""


def compose(
    report: Report,
    checks: Mapping[str, Check],
    scope: Scope,
    code: int | None = None,
    mendable: Collection[str] = (),
) -> Page:
    """The report in words; ``code`` is the exit code that it comes with."""
    folded = fold(report, scope.longest)
    speaker = _Speaker(checks, scope, folded)
    sections = [speaker.area(area) for area in folded.areas]
    sections.append(Section("waived", tuple(map(speaker.waived, folded.waived))))
    sections.append(Section("not known", speaker.gaps("unknown", folded.unknown, scope.most)))
    sections.append(Section("not looked at", speaker.gaps("skip", folded.skipped, scope.skips)))
    smoke = told(report.smoke, scope.each) if report.smoke else ()
    return Page(tuple(one for one in sections if one.entries), closing(report, folded, code, mendable), smoke)


class _Speaker:
    def __init__(self, checks: Mapping[str, Check], scope: Scope, folded: Folded) -> None:
        self.checks, self.scope, self.fleet = checks, scope, folded.fleet
        self.claims = scope.each or folded.counts.checks <= FEW

    def area(self, area: Area) -> Section:
        entries = [failing(one, self.checks.get(one.outcome.check), self.scope, self.fleet) for one in area.failures]
        entries += [entry for one in area.crashed for entry in self.crash(one)]
        title = area.name if entries or self.claims else ""
        return Section(title, (*entries, *self.healthy(area)))

    def healthy(self, area: Area) -> list[Entry]:
        if self.claims:
            return [self.claim(one) for one in area.healthy]
        if not area.healthy:
            return []
        number, total = len(area.healthy), count(area.total, "check")
        share = total if number == area.total else f"{number} of {total}"
        return [Entry("ok", area.name, (Part(f"{share} {self.looked(area.healthy)}"),))]

    def claim(self, outcome: Outcome) -> Entry:
        text = f"{clean(outcome.claim)} ({self.fleet.looked(outcome.looked)})"
        return Entry("ok", outcome.check, (Part(text),), claim=True)

    def looked(self, outcomes: Sequence[Outcome]) -> str:
        """On how many hosts: the least and the most of any check."""
        counts = sorted(len(one.looked) for one in outcomes if one.looked)
        without = len(outcomes) - len(counts)
        if not counts:
            return "of the job itself, no host looked at"
        hosts = count(len(self.fleet.hosts), "host")
        span = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
        words = f"on {hosts}" if counts[0] == len(self.fleet.hosts) else f"on {span} of {hosts}"
        return f"{words}, {without} of the job itself" if without else words

    def crash(self, outcome: Outcome) -> list[Entry]:
        hosts: dict[tuple[str, bool], list[str]] = {}
        for host, trace in outcome.crashed.items():
            hosts.setdefault((trace, bool(host)), []).append(host)
        return [self.crash_of(outcome, trace, named) for (trace, _), named in hosts.items()]

    def crash_of(self, outcome: Outcome, trace: str, hosts: Sequence[str]) -> Entry:
        lines = [_indented(line) for line in trace.splitlines()[-40:] if clean(line)] or ["no traceback"]
        details = [("note", "the check itself broke, which tells nothing of the cluster: please report it")]
        details += labelled("trace", lines) if self.scope.each else []
        where = self.fleet.where(self.fleet.ordered(hosts))
        return Entry("crash", outcome.check, (Part(lines[-1].strip()),), where, tuple(details))

    def waived(self, waived: Exemption) -> Entry:
        told = clean(f"{waived.reason} (until {waived.until})", LONGEST_MESSAGE)
        found = [self.fleet.message(group.finding, LONGEST_MESSAGE) for group in waived.groups[: self.scope.most]]
        details = tuple(labelled("found", found)) if self.scope.each else ()
        return Entry("waived", waived.check, (Part(told),), self.fleet.where(waived.hosts), details)

    def gaps(self, word: str, gaps: Sequence[Gap], most: int) -> tuple[Entry, ...]:
        shown = [self.gap(word, gap) for gap in gaps[:most]]
        left = len(gaps) - len(shown)
        if left:
            shown.append(Entry(word, "", (Part(f"... and {count(left, 'more reason')} ({self.scope.all_of_it})"),)))
        return tuple(shown)

    def gap(self, word: str, gap: Gap) -> Entry:
        counted = len(gap.checks) > NAMED
        name = count(len(gap.checks), "check") if counted else ", ".join(gap.checks)
        details = (("checks", ", ".join(gap.checks)),) if counted and self.scope.names else ()
        return Entry(word, name, (Part(clean(gap.reason) or "no reason given"),), self.fleet.where(gap.hosts), details)


def _indented(line: str) -> str:
    return " " * min(len(line) - len(line.lstrip(" ")), 16) + clean(line)
