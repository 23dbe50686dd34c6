"""A failed check in words: what was found and where, saw, want, why, fix, and what it hides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from doctor.engine.shell_quote import places
from doctor.report.layout.advice import advise, whole_places
from doctor.report.layout.fold import Failure
from doctor.report.layout.formatting import blocks, clean, count
from doctor.report.layout.group_findings import Group, unhosted
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.page_model import Entry, Part, Scope, labelled

if TYPE_CHECKING:
    from doctor.engine.check import Check

BOTH = ("saw", "want")
LONGEST_MESSAGE = 2000
LONGEST_COMMAND = 4000


def failing(failure: Failure, check: Check | None, scope: Scope, fleet: Fleet) -> Entry:
    """The entry of one failed check; without its ``check`` there is no why and no fix."""
    fix = check.section("What to do") if check else ""
    return _Failing(failure, fix, scope, fleet).entry(check.section("Why it matters") if check else "")


class _Failing:
    def __init__(self, failure: Failure, fix: str, scope: Scope, fleet: Fleet) -> None:
        self.failure, self.fix, self.scope, self.fleet = failure, fix, scope, fleet
        self.shown = failure.groups[: scope.most]
        self.named = places(fix)
        several = len(self.shown) > 1
        self.apart = several and ((scope.each and bool(self.named)) or self.differ(whole_places(fix)))
        """Each group has its own fix: with ``-v``, or when whole sentences of it differ."""
        first = failure.groups[0].finding.values
        self.shared = {
            label
            for label in BOTH
            if label in first and all(one.finding.values.get(label) == first[label] for one in failure.groups)
        }
        """Which of ``saw`` and ``want`` are the same in all groups."""

    def differ(self, names: set[str]) -> bool:
        """One of these values is not the same in all groups."""
        if not names:
            return False
        first, *others = (unhosted(group.example) for group in self.failure.groups)
        return any(one.get(name) != first.get(name) for one in others for name in names)

    def entry(self, why: str) -> Entry:
        failure = self.failure
        details = self.saw(failure.groups[0], self.shared)
        details += labelled("why", blocks(why))
        if not self.apart:
            details += self.remedy(failure.groups[0], len(failure.hosts), self.differ(self.named))
        details += self.hides()
        details.append(("more", f"doctor explain {failure.outcome.check}"))
        return Entry(
            "FAIL" if failure.is_error else "warn",
            failure.outcome.check,
            (*map(self.part, self.shown), *self.rest(failure.groups[len(self.shown) :])),
            self.fleet.where(failure.hosts, failure.outcome.looked),
            tuple(details),
        )

    def part(self, group: Group) -> Part:
        message = self.fleet.message(group.finding, LONGEST_MESSAGE)
        details = self.saw(group, set(BOTH) - self.shared)
        details += self.remedy(group, len(group.hosts), False) if self.apart else []
        where = self.fleet.where(group.hosts, self.failure.outcome.looked)
        return Part(message, self.fleet.fold(group.hosts) if group.hosts else "", where, tuple(details))

    def rest(self, groups: Sequence[Group]) -> list[Part]:
        """That there are more groups than are shown."""
        if not groups:
            return []
        hosts = self.fleet.ordered(host for group in groups for host in group.hosts)
        where = f" on {self.fleet.fold(hosts)}" if hosts else ""
        return [Part(f"... and {sum(group.count for group in groups)} more{where} ({self.scope.all_of_it})")]

    def saw(self, group: Group, labels: set[str]) -> list[tuple[str, str]]:
        """``saw`` and ``want``, unless the message itself holds them."""
        finding = group.finding
        held = [label for label in BOTH if label in finding.values and f"{{{label}}}" not in finding.template]
        values: dict[str, Any] = {label: finding.values[label] for label in held if label in labels}
        return list(self.fleet.words(values).items())

    def filled(self, group: Group) -> list[str]:
        words = self.fleet.words(group.example.values, LONGEST_COMMAND)
        if group.hosts:
            words.setdefault("host", clean(group.hosts[0], 100))
        return [line for line in (advise(block, words) for block in blocks(self.fix)) if line.strip()]

    def remedy(self, group: Group, hosts: int, differ: bool) -> list[tuple[str, str]]:
        """What to do about a group's first finding; and that it goes likewise for the others, of ``hosts`` in all."""
        lines = self.filled(group)
        first = clean(group.hosts[0], 100) if group.hosts else ""
        if first and hosts > 1 and (differ or any(first in line for line in lines)):
            others = "the other host" if hosts == 2 else f"the other {hosts - 1} hosts"
            lines.append(f"That is for {first}; likewise for {others}.")
        elif differ or (group.finding is not group.example and self.named):
            lines.append("That is for the first finding; likewise for the others.")
        return labelled("fix", lines) if self.fix else []

    def hides(self) -> list[tuple[str, str]]:
        failure = self.failure
        if not failure.hides:
            return []
        there = "this host" if len(failure.hosts) == 1 else "these hosts" if failure.hosts else "what they judge"
        said = f"{count(len(failure.hides), 'other check')} could not look at {there}"
        return [("hides", f"{said}: {', '.join(failure.hides)}" if self.scope.names else said)]
