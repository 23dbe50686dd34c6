"""Puts a report into entries of words, the same for every text format."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.grouping import lists_by_key
from doctor.engine.language import localized, phrase, without_loose_spaces
from doctor.engine.result import Outcome, Report
from doctor.report.layout.fold import Area, FoldedReport, Gap, WaivedGroup, fold
from doctor.report.layout.formatting import bracketed, clean, count_noun, translated
from doctor.report.layout.page_model import (
    MAX_MESSAGE_CHARS,
    DetailLevel,
    Details,
    ReportEntry,
    ReportPart,
    ReportSection,
    label_lines,
)
from doctor.report.layout.summary_lines import SummaryLines, summary_lines
from doctor.report.layout.tally import coverage

if TYPE_CHECKING:
    from doctor.engine.check import Check

MAX_CLAIM_CHECKS = 8
"""Up to this number of checks, each healthy one is shown with its claim; beyond it, they are counted by area."""
MAX_NAMED_CHECKS = 3
"""Up to so many checks are named where more are counted."""


NET_MAP_WIDTH = 70
"""Characters."""


class ReportPage(msgspec.Struct, frozen=True):
    """A complete report as text parts."""

    sections: tuple[ReportSection, ...]
    summary: SummaryLines
    smoke: Details = ()
    """The smoke run, if one was made, or the program that was watched."""
    net: tuple[str, ...] = ()
    """The network test as a map, a line for each source, where an attempt failed."""
    watched: bool = False

    @property
    def smoke_title(self) -> str:
        return "watched program" if self.watched else "smoke run"


def build_page(
    report: Report,
    checks: Mapping[str, Check],
    scope: DetailLevel,
    code: int | None = None,
    fixable: Collection[str] = (),
) -> ReportPage:
    """The report in words; ``code`` is the exit code that it comes with."""
    folded = fold(report, scope.max_chars)
    builder = _PageBuilder(checks, scope, folded, report)
    findings = builder.findings()
    unfilled = [mark for entry in findings for mark in entry.unfilled]
    sections = [
        ReportSection("findings", findings),
        ReportSection("unknown", builder.gaps("unknown", folded.unknown, scope.max_reasons or scope.max_groups)),
        *builder.healthy_sections(folded.areas),
        ReportSection("waived", tuple(map(builder.waived, folded.waived))),
        ReportSection("not checked", builder.skipped(folded, report.outcomes, coverage(report, folded.counts).reason)),
    ]
    return ReportPage(
        tuple(section for section in sections if section.entries),
        summary_lines(report, folded, code, fixable, unfilled),
        _training_lines(report, scope.lists_every_check) if report.smoke or report.losses else (),
        _net_map(report),
        bool(report.losses) or (report.smoke is not None and report.smoke.watched),
    )


def _training_lines(report: Report, full: bool) -> Details:
    """The smoke run, and the losses of a watched program."""
    from doctor.report.layout.loss_section import loss_lines
    from doctor.report.layout.smoke_section import smoke_lines

    findings = [finding for outcome in report.outcomes for finding in outcome.findings]
    shown = {str(text) for finding in findings for text in finding.values.get("evidence") or ()}
    smoke = smoke_lines(report.smoke, full, shown) if report.smoke else ()
    return smoke + (loss_lines(report.losses, report.outcomes, full) if report.losses else ())


def _net_map(report: Report) -> tuple[str, ...]:
    if report.net is None:
        return ()
    from doctor.net.heat_map import heat_map
    from doctor.net.summary import is_worth_a_map, matrix_of

    if not is_worth_a_map(report.net):
        return ()
    return tuple(heat_map(matrix_of(report.net, report.hosts), NET_MAP_WIDTH))


class _PageBuilder:
    def __init__(self, checks: Mapping[str, Check], scope: DetailLevel, folded: FoldedReport, report: Report) -> None:
        self.checks, self.scope, self.folded, self.fleet = checks, scope, folded, folded.fleet
        self.ages, self.started = report.ages, report.started
        self.shows_claims = scope.lists_every_check or folded.counts.checks <= MAX_CLAIM_CHECKS

    def findings(self) -> tuple[ReportEntry, ...]:
        """What failed, what stops the job first; then the checks that crashed."""
        return (
            *(self.failures() if self.folded.failures else ()),
            *(entry for area in self.folded.areas for outcome in area.crashed for entry in self.crash(outcome)),
        )

    def failures(self) -> Iterator[ReportEntry]:
        """What failed, and since when, where an earlier run tells."""
        from doctor.report.layout.failures import failure_entry
        from doctor.report.layout.finding_table import age_line

        above: dict[str, str] = {}
        for failure in self.folded.failures:
            name, hosts = failure.outcome.check, [host for group in failure.groups for host in group.hosts]
            when = age_line(name, hosts, self.ages, self.fleet, self.started) if self.ages else ""
            yield failure_entry(failure, self.checks.get(name), self.scope, self.fleet, when, above)

    def healthy_sections(self, areas: Sequence[Area]) -> list[ReportSection]:
        """One section an area; one line for all where there is more to read."""
        if self.scope.shortens and not self.shows_claims and (self.folded.failures or self.folded.unknown):
            healthy = [outcome for area in areas for outcome in area.healthy]
            if not healthy:
                return []
            text = phrase(
                "{checks} passed {where}", checks=count_noun(len(healthy), "check"), where=self.host_coverage(healthy)
            )
            return [ReportSection("", (ReportEntry("ok", "", (ReportPart(text),)),))]
        return [ReportSection(area.name if self.shows_claims else "", tuple(self.healthy(area))) for area in areas]

    def share(self, area: Area) -> str:
        number = len(area.healthy)
        return str(area.total) if number == area.total else phrase("{count} of {total}", count=number, total=area.total)

    def skipped(self, folded: FoldedReport, outcomes: Sequence[Outcome], limits: str) -> tuple[ReportEntry, ...]:
        """What does not apply, by reason; in one line where other checks were evaluated, with what they all lack."""
        evaluated = {outcome.check for outcome in outcomes if outcome.complete or outcome.findings or outcome.crashed}
        if not self.scope.shortens or len(folded.skipped) < 2 or not evaluated:
            return self.gaps("skip", folded.skipped, self.scope.max_skip_reasons)
        names = {name for gap in folded.skipped for name in gap.checks}
        nowhere, partly = len(names - evaluated), len(names & evaluated)
        nowhere_checks, partly_checks = count_noun(nowhere, "check"), count_noun(partly, "check")
        does_not = phrase("{checks} does not apply" if nowhere == 1 else "{checks} do not apply", checks=nowhere_checks)
        texts = [does_not] if nowhere else []
        texts += [phrase("{checks} only for some hosts", checks=partly if nowhere else partly_checks)] if partly else []
        text = localized(", ").join(texts) + limits + bracketed(self.scope.rest_hint)
        return (ReportEntry("skip", "", (ReportPart(text),)),)

    def healthy(self, area: Area) -> list[ReportEntry]:
        if self.shows_claims:
            return [self.claim(outcome) for outcome in area.healthy]
        if not area.healthy:
            return []
        checks = phrase("{count} check" if area.total == 1 else "{count} checks", count=self.share(area))
        text = without_loose_spaces(f"{checks} {self.host_coverage(area.healthy)}")
        return [ReportEntry("ok", area.name, (ReportPart(text),))]

    def claim(self, outcome: Outcome) -> ReportEntry:
        text = f"{clean(localized(outcome.claim))}{bracketed(self.fleet.coverage(outcome.evaluated_hosts))}"
        return ReportEntry("ok", outcome.check, (ReportPart(text),), is_claim=True)

    def host_coverage(self, outcomes: Sequence[Outcome]) -> str:
        """On how many hosts: the least and the most of any check."""
        counts = sorted(len(outcome.evaluated_hosts) for outcome in outcomes if outcome.evaluated_hosts)
        without = len(outcomes) - len(counts)
        if not counts:
            return localized("of the job itself, no host checked")
        hosts = count_noun(len(self.fleet.hosts), "host")
        text = phrase("on {hosts}", hosts=hosts)
        if counts[-1] != len(self.fleet.hosts):
            text = phrase("on {count} of {hosts}", count=counts[-1], hosts=hosts)
        if counts[0] < counts[-1]:
            text = phrase("{text}, some of them on {count} only", text=text, count=counts[0])
        named = without and self.shows_claims
        return phrase("{text}; {count} of them look at the job alone", text=text, count=without) if named else text

    def crash(self, outcome: Outcome) -> list[ReportEntry]:
        hosts = lists_by_key(((trace, bool(host)), host) for host, trace in outcome.crashed.items())
        return [self.crash_of(outcome, trace, named) for (trace, _), named in hosts.items()]

    def crash_of(self, outcome: Outcome, trace: str, hosts: Sequence[str]) -> ReportEntry:
        lines = [_indented(line) for line in trace.splitlines()[-40:] if clean(line)] or [localized("no traceback")]
        details = [("note", localized("the check crashed, which says nothing about the cluster: please report it"))]
        details += label_lines("trace", lines) if self.scope.lists_every_check else []
        where = self.fleet.where(self.fleet.ordered(hosts))
        return ReportEntry("crash", outcome.check, (ReportPart(lines[-1].strip()),), where, tuple(details))

    def waived(self, waived: WaivedGroup) -> ReportEntry:
        reason = clean(phrase("{reason} (until {day})", reason=waived.reason, day=waived.until), MAX_MESSAGE_CHARS)
        messages = [
            self.fleet.message(group.finding, MAX_MESSAGE_CHARS) for group in waived.groups[: self.scope.max_groups]
        ]
        details = tuple(label_lines("found", messages)) if self.scope.lists_every_check else ()
        return ReportEntry("waived", waived.check, (ReportPart(reason),), self.fleet.where(waived.hosts), details)

    def gaps(self, word: str, gaps: Sequence[Gap], most: int) -> tuple[ReportEntry, ...]:
        entries = [self.gap(word, gap) for gap in gaps[:most]]
        remaining = len(gaps) - len(entries)
        if remaining:
            reasons = count_noun(remaining, "more reason")
            text = phrase("... and {reasons} ({hint})", reasons=reasons, hint=self.scope.rest_hint)
            entries.append(ReportEntry(word, "", (ReportPart(text),)))
        return tuple(entries)

    def gap(self, word: str, gap: Gap) -> ReportEntry:
        counted = len(gap.checks) > MAX_NAMED_CHECKS
        name = count_noun(len(gap.checks), "check") if counted else ", ".join(gap.checks)
        details = (("checks", ", ".join(gap.checks)),) if counted and self.scope.names_checks else ()
        reason = translated(gap.reason) or localized("no reason given")
        return ReportEntry(word, name, (ReportPart(reason),), self.fleet.where(gap.hosts), details)


def _indented(line: str) -> str:
    return " " * min(len(line) - len(line.lstrip(" ")), 16) + clean(line)
