"""A failed check as text: finding, hosts, observed, expected, why, fix, and blocked checks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.language import localized, localized_filled, phrase
from doctor.engine.output_encoding import display_width
from doctor.engine.result import CONTAINER, IN_CONTAINER, Finding, Severity
from doctor.engine.shell_quote import placeholder_names
from doctor.engine.texts import filled
from doctor.report.layout.advice import (
    COMMAND,
    case_labels,
    changes_host,
    command_notes,
    drain_note,
    fill_advice,
    for_cases,
    hands_notes,
    mark_personal_words,
    mark_unknown,
    marks,
    standalone_placeholders,
)
from doctor.report.layout.finding_table import LABEL
from doctor.report.layout.fold import CheckFailure, FollowingFailure
from doctor.report.layout.formatting import clean, count_noun, sentences, unwrap_lines
from doctor.report.layout.group_findings import FindingGroup, alike, of_host, without_host_name
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.page_model import MAX_MESSAGE_CHARS, DetailLevel, ReportEntry, ReportPart, label_lines

if TYPE_CHECKING:
    from doctor.engine.check import Check

OF_THE_CAUSE = "{remedy}"
"""The first paragraph of a page's fix that is followed by the remedies of all causes: a finding has its own."""
OBSERVED_EXPECTED = ("observed", "expected")
PROOF = ("means", "codes", "confidence", "evidence", "now")
"""Values that say what a finding means, how sure that is, what proves it, and what the checks of the cause find now."""
MAX_COMMAND_CHARS = 4000
_OF_ALL_HOSTS = re.compile(r"`doctor (?:check|net|smoke)(?=`| --)")
"""A command of doctor without hosts: in a report it is for those of the run."""
_LOGIN = re.compile(r"(?:(?<=`)|(?<=\| ))ssh(?= (?:-v )?\{(?:host|source)\})")
"""A login by hand from where doctor runs."""
_VALUE = re.compile(r"\{(\w+)\} ?")
"""With the space behind it, which an empty one does not need."""
_TYPED_ELSEWHERE = ("`doctor ", "`export ", "`unset ")
MAX_WHY_WIDTHS = 320, 220
"""Columns of a short why up to which the second sentence is added, and each further one; the first has any length."""
MAX_DRAINED = 8
"""Hosts that a report offers to keep jobs off; with more, it is no fault of single hosts."""
MAX_OWN_COMMANDS = 8
"""Hosts whose own commands a fix prints; with more, those of the first."""
MAX_BLOCKED = 3
"""Checks that a finding kept from a host, by name, without ``-v``."""


def failure_entry(
    failure: CheckFailure,
    check: Check | None,
    scope: DetailLevel,
    fleet: Fleet,
    when: str = "",
    above: dict[str, str] | None = None,
) -> ReportEntry:
    """The entry of one failed check; without its ``check`` there is no why and no fix.

    ``when``: since when its findings are there, as `doctor.report.layout.finding_table` puts it.
    ``above``: the corrected lines that the page has, each with what to print in its place; those of this entry join.
    """
    findings = [group.finding for group in failure.groups]
    builder = _FailureEntryBuilder(failure, partial(fix_template, check), scope, fleet, above)
    entry = builder.entry(why_text(check, findings))
    return msgspec.structs.replace(entry, details=((LABEL, when), *entry.details)) if when else entry


def why_text(check: Check | None, findings: Sequence[Finding]) -> str:
    """Why a finding matters: of the check's page, for its cases; without a page the finding's own ``why``."""
    if check:
        return _for_findings(check.section("Why it matters"), findings, labelled=True)
    return "\n\n".join(own_lines(findings[0], "why")) if findings else ""


def proof_lines(finding: Finding) -> Iterator[tuple[str, str]]:
    """How sure a finding is, and what proves it, each line with its label; not what the message itself holds."""
    for label in PROOF:
        if f"{{{label}}}" not in finding.template:
            yield from ((label, line) for line in own_lines(finding, label))


def own_lines(finding: Finding, name: str) -> list[str]:
    """A value of a finding that is one text or a list of them, as lines; an indented one is a command."""
    value = finding.values.get(name)
    texts = [str(text) for text in (value if isinstance(value, (list, tuple)) else [value] if value else ())]
    as_written = [(text[:2] if text.startswith("  ") else "", clean(text, MAX_COMMAND_CHARS)) for text in texts]
    translated = localized_filled if name == "evidence" else _in_this_language
    return [f"{indent}{translated(text)}" for indent, text in as_written]


def _in_this_language(text: str) -> str:
    """The text, or else each of its parts between semicolons."""
    sentence = localized_filled(text)
    return sentence if sentence != text else localized("; ").join(map(localized_filled, text.split("; ")))


def fix_template(check: Check | None, findings: Sequence[Finding]) -> str:
    """What to do on a host, in a container, or on each where some hosts of the findings are containers.

    Of a list of cases, those of the findings: their value ``case`` is the label of an item, or several. Without a page,
    the finding's own ``remedy``.
    """
    if not check:
        return OF_THE_CAUSE if any(finding.values.get("remedy") for finding in findings) else ""
    engines = {finding.values.get(CONTAINER) for finding in findings}
    fix, inside = (_for_findings(check.section(title), findings) for title in ("What to do", IN_CONTAINER))
    if not inside or not any(engines):
        return fix
    inside = inside.replace("`docker ", "`podman ") if "podman" in engines else inside
    return inside if all(engines) else f"{fix}\n\n{inside}"


def _for_findings(page: str, findings: Sequence[Finding], *, labelled: bool = False) -> str:
    """A section of a page in this language, without the items of its list that are for other cases."""
    named = [finding.values.get("case") or finding.values.get("accelerator") or () for finding in findings]
    cases = {str(case) for names in named for case in ((names,) if isinstance(names, str) else names)}
    return for_cases(localized(page), case_labels(page), cases, labelled=labelled)


def filled_fix(
    fix: str, finding: Finding, hosts: Sequence[str], fleet: Fleet, shortened_by: str = "", place: str = ""
) -> list[str]:
    """The template of a fix with the values of a finding, as lines; it is for the first of its ``hosts``.

    ``place``: the hosts that the sentences name in place of that one.
    ``shortened_by``: the check whose page has the remedies of causes that are not the finding's; empty: all of them.
    """
    edits = own_lines(finding, "corrected")
    if edits and shortened_by:
        return edits
    if fix == OF_THE_CAUSE:
        return [*edits, *own_lines(finding, "remedy")]
    filled_values = {name: value for name, value in finding.values.items() if value is not None}
    values = fleet.command_values(filled_values, MAX_COMMAND_CHARS)
    texts = fleet.localized_values(filled_values, MAX_COMMAND_CHARS)
    of_run = {"host": clean(hosts[0], 100)} if hosts else {}
    of_run |= {"all_hosts": fleet.nodeset(fleet.hosts)} if fleet.hosts and "{all_hosts}" in fix else {}
    of_text = {**of_run, "host": place or of_run.get("host") or localized("its host")}
    values, texts = {**of_run, **values}, {**of_text, **texts}
    on_all = re.compile(r"(doctor smoke )?\{all_hosts\}")
    reached = lambda call: " ".join([call[0], *fleet.connection, *(fleet.smoke if call[1] else ())])  # noqa: E731
    blocks = [on_all.sub(reached, block) for block in _marked_blocks(fix, _unknown_values(finding, fleet))]
    blocks = [_LOGIN.sub(lambda call: call[0] + fleet.login, block) for block in blocks]
    blocks = [_VALUE.sub(lambda value: value[0] if texts.get(value[1], "-") else "", block) for block in blocks]
    if blocks[:1] == [OF_THE_CAUSE] and len(blocks) > 1:
        if not texts.get("remedy"):
            blocks = blocks[1:]
        elif shortened_by:
            blocks = [f"{OF_THE_CAUSE} {phrase('(more: doctor explain {name})', name=shortened_by)}"]
    run = [shlex.quote(fleet.nodeset(fleet.hosts)), *fleet.connection] if len(fleet.hosts) > 1 else []
    lines = (fill_advice(block, values, texts) for block in blocks)
    filled_lines = (
        _OF_ALL_HOSTS.sub(lambda call: " ".join([call[0], *run, *(fleet.smoke if "smoke" in call[0] else ())]), line)
        for line in lines
        if line.strip()
    )
    return [*edits, *filled_lines]


@lru_cache(64)
def _marked_blocks(fix: str, unknown: tuple[str, ...]) -> tuple[str, ...]:
    """The template of a fix as lines, with what only the reader knows marked."""
    return tuple(unwrap_lines(mark_unknown(mark_personal_words(fix), unknown)))


def _unknown_values(finding: Finding, fleet: Fleet) -> tuple[str, ...]:
    unknown = tuple(name for name, value in finding.values.items() if value is None or value == "")
    return unknown if fleet.hosts else (*unknown, "all_hosts")


def with_place(lines: Sequence[str], place: str, hosts: Sequence[str]) -> list[str]:
    """A fix that begins with a command, with the hosts on which it is typed; not where its first sentence names one.

    Any of them: a finding of several hosts may have commands that each say where they are typed.

    What is typed where doctor runs, or in the job's script, stays as it is.

    >>> with_place(["`ls /tmp`, then `df`."], "n[1-2]", ["n1", "n2"])
    ['On n[1-2]: `ls /tmp`, then `df`.']
    >>> with_place(["`ls` on n2 shows it."], "n[1-2]", ["n1", "n2"]), with_place(["`doctor net`"], "n1", ["n1"])
    (['`ls` on n2 shows it.'], ['`doctor net`'])
    """
    if not place or not lines or not lines[0].startswith("`") or lines[0].startswith(_TYPED_ELSEWHERE):
        return list(lines)
    first = sentences(lines[0])[0]
    if place in first or any(
        host in first and re.search(rf"(?<![\w-]){re.escape(host)}(?![\w-])", first) for host in hosts
    ):
        return list(lines)
    return [phrase("On {hosts}: {commands}", hosts=place, commands=lines[0]), *lines[1:]]


def first_sentences(lines: Sequence[str]) -> str:
    """The first sentences: one alone is often the rule, and the next one what breaking it does."""
    parts = sentences(lines[0]) if lines else []
    text = "".join(parts[:1])
    for number, part in enumerate(parts[1:]):
        longer = text + part if text.endswith("。") else f"{text} {part}"
        if display_width(longer) > MAX_WHY_WIDTHS[number > 0]:
            break
        text = longer
    return text


class _FailureEntryBuilder:
    def __init__(
        self,
        failure: CheckFailure,
        template: Callable[[Sequence[Finding]], str],
        scope: DetailLevel,
        fleet: Fleet,
        above: dict[str, str] | None,
    ) -> None:
        """``template``: the fix of some findings, as `fix_template` has it."""
        self.failure, self.template, self.scope, self.fleet = failure, template, scope, fleet
        self.fix = template([group.finding for group in failure.groups])
        self.above = {} if above is None else above
        self.groups = alike(failure.groups, fleet, OBSERVED_EXPECTED) if scope.shortens else failure.groups
        self.own_hosts = fleet.ordered(host for group in failure.groups for host in group.hosts)
        self.listed_groups = self.groups[: scope.max_groups]
        self.fix_placeholders = placeholder_names(self.fix)
        several = len(self.listed_groups) > 1
        self.separate_fixes = several and (
            (scope.lists_every_check and bool(self.fix_placeholders))
            or self.values_differ(standalone_placeholders(self.fix))
            or (self.values_differ({"case"}) and self.values_differ(self.fix_placeholders))
        )
        """Each group has its own fix: with ``-v``, or when whole sentences of it differ, or values of unlike cases."""
        first = self.groups[0].finding.values
        self.shared_labels = {
            label
            for label in OBSERVED_EXPECTED
            if label in first and all(group.finding.values.get(label) == first[label] for group in self.groups)
        }
        """Which of ``observed_expected`` and ``expected`` are the same in all groups."""

    def values_differ(self, names: set[str]) -> bool:
        """One of these values is not the same in all groups."""
        if not names:
            return False
        first, *others = (without_host_name(group.example) for group in self.failure.groups)
        return any(values.get(name) != first.get(name) for values in others for name in names)

    def entry(self, why: str) -> ReportEntry:
        failure, scope = self.failure, self.scope
        details = self.observed_expected(self.groups[0], self.shared_labels)
        if scope.joins and len(details) == 2:
            observed, expected = details[0][1].rstrip(".。"), details[1][1]
            details = [("observed", phrase("{observed}; expected {expected}", observed=observed, expected=expected))]
        why_lines = unwrap_lines(why)
        if scope.shortens:
            why_lines = [text] if (text := first_sentences(why_lines)) else []
        details += label_lines("why", why_lines)
        if not self.separate_fixes:
            several = self.values_differ(self.fix_placeholders | {"corrected"})
            fix = self.fix_lines(failure.groups[0], self.own_hosts, several)
            details += [*self.blocked(), *fix] if scope.shortens else [*fix, *self.blocked()]
        else:
            details += self.blocked()
        if not scope.shortens:
            details.append(("more", filled("doctor explain {0}", failure.outcome.check)))
        return ReportEntry(
            "FAIL" if failure.is_error else "warn",
            failure.outcome.check,
            (*map(self.part, self.listed_groups), *self.unlisted_groups(self.groups[len(self.listed_groups) :])),
            self.fleet.where(self.own_hosts, failure.outcome.evaluated_hosts, failure.outcome.skipped),
            tuple(details),
            unfilled=marks("\n".join(_marked_blocks(self.fix, _unknown_values(failure.groups[0].example, self.fleet)))),
            following=tuple(line for other in failure.following for line in self.following(other)),
            hosts=self.fleet.fold(self.own_hosts) if self.own_hosts else "",
        )

    def following(self, other: FollowingFailure) -> list[tuple[str, str]]:
        """What another check found because of this one: its name and hosts, and what it says."""
        groups = alike(other.groups, self.fleet, ()) if self.scope.shortens else other.groups
        label = self.name_on(other.check, other.hosts)
        if not self.scope.shortens:
            listed = groups[: self.scope.max_groups]
            return [(self.name_on(other.check, group.hosts), self.text_of(group)) for group in listed]
        rest = count_noun(sum(group.count for group in groups[1:]), "more finding")
        return [(label, self.text_of(groups[0]) + (localized("; ") + rest if len(groups) > 1 else ""))]

    def name_on(self, check: str, hosts: Sequence[str]) -> str:
        """A check and the hosts of its findings."""
        return phrase("{name} on {where}", name=check, where=self.fleet.fold(hosts)) if hosts else check

    def text_of(self, group: FindingGroup) -> str:
        text = self.fleet.message(group.finding, MAX_MESSAGE_CHARS)
        if group.is_example:
            text += phrase(" (likewise on {others})", others=_others(len(group.hosts)))
        return text

    def part(self, group: FindingGroup) -> ReportPart:
        message = self.text_of(group)
        if group.finding.is_warning and self.failure.outcome.found_severity is Severity.ERROR:
            message += localized(" (a warning)")
        details = self.observed_expected(group, set(OBSERVED_EXPECTED) - self.shared_labels)
        for label, lines in groupby(proof_lines(group.finding), itemgetter(0)):
            details += label_lines(label, (line for _, line in lines))
        details += self.fix_lines(group, group.hosts, False) if self.separate_fixes else []
        outcome = self.failure.outcome
        where = self.fleet.where(group.hosts, outcome.evaluated_hosts, outcome.skipped)
        return ReportPart(message, self.fleet.fold(group.hosts) if group.hosts else "", where, tuple(details))

    def unlisted_groups(self, groups: Sequence[FindingGroup]) -> list[ReportPart]:
        """That there are more groups than are shown."""
        if not groups:
            return []
        hosts = self.fleet.ordered(host for group in groups for host in group.hosts)
        where = phrase(" on {hosts}", hosts=self.fleet.fold(hosts)) if hosts else ""
        count, hint = sum(group.count for group in groups), self.scope.rest_hint
        return [ReportPart(phrase("... and {count} more{where} ({hint})", count=count, where=where, hint=hint))]

    def observed_expected(self, group: FindingGroup, labels: set[str]) -> list[tuple[str, str]]:
        """``observed_expected`` and ``expected``, unless the message itself holds them."""
        finding = group.finding
        held = [
            label
            for label in OBSERVED_EXPECTED
            if finding.values.get(label) not in (None, "") and f"{{{label}}}" not in finding.template
        ]
        values: dict[str, object] = {label: finding.values[label] for label in held if label in labels}
        message = self.fleet.message(finding, MAX_MESSAGE_CHARS)
        texts = self.fleet.localized_values(values).items()
        is_expected = f"; expected {finding.values.get('expected')}" in finding.template
        return [
            (label, text) for label, text in texts if (not is_expected if label == "expected" else text not in message)
        ]

    def fix_lines(self, group: FindingGroup, hosts: Sequence[str], differ: bool) -> list[tuple[str, str]]:
        """What to do on all ``hosts``; where a command or a value is another one for each, on the first of them."""
        fix = self.template([group.finding]) if self.separate_fixes else self.fix
        is_shared = len(hosts) > 1 and not differ and "{host}" not in "".join(COMMAND.findall(fix))
        page = self.failure.outcome.check if self.scope.shortens else ""
        place = self.fleet.fold(hosts) if is_shared else ""
        first = clean(group.hosts[0], 100) if group.hosts else ""
        lines = filled_fix(fix, group.example, group.hosts, self.fleet, page, place)
        lines = with_place(lines, place or first, [clean(host, 100) for host in hosts] if is_shared else [first])
        # One finding about several hosts whose remedy names one of them by another value is for that one alone.
        is_whole = is_shared or (group.count == 1 and not differ and "{host}" not in fix)
        if first and len(hosts) > 1 and not is_whole and (differ or any(first in line for line in lines)):
            others = _others(len(hosts))
            note = phrase("This is for {first}; likewise for {others}.", first=first, others=others)
            for line in self.commands_of_others([host for host in hosts if host != group.hosts[0]], lines) or [note]:
                lines = self.with_note(lines, line)
        elif differ or (group.finding is not group.example and self.fix_placeholders):
            note = localized("This is for the first finding; likewise for the rest.")
            edits = self.other_edits(group)
            for line in [note] if edits is None else [edit for edit in edits if edit not in lines]:
                lines = self.with_note(lines, line)
        lines = list(dict.fromkeys(self.above.get(line, line) for line in lines))
        reference = phrase("The corrected line under {name} mends this, too.", name=self.failure.outcome.check)
        self.above.update(dict.fromkeys(own_lines(group.example, "corrected"), reference))
        text = " ".join(lines)
        on_hosts = self.own_hosts if is_shared else group.hosts
        drained = [clean(host, 100) for host in on_hosts] if len(on_hosts) <= MAX_DRAINED else []
        for note in (*command_notes(text), *hands_notes(text, drained), *drain_note(text, drained)):
            lines = self.with_note(lines, note)
        return label_lines("fix", lines) if fix else []

    def commands_of_others(self, hosts: Sequence[str], lines: Sequence[str]) -> list[str]:
        """What is typed on each further host; empty where one has no command that changes it, or for many."""
        if len(hosts) >= MAX_OWN_COMMANDS:
            return []
        of_first = COMMAND.findall(" ".join(lines))
        notes = []
        for host in hosts:
            groups = [group for group in self.failure.groups if host in group.hosts]
            if len(groups) != 1 or groups[0].count != len(groups[0].hosts):
                return []
            texts = filled_fix(
                self.fix, of_host(groups[0].example, host), [host], self.fleet, self.failure.outcome.check
            )
            commands = COMMAND.findall(" ".join(texts))
            other = [command for command in commands if command not in of_first] or commands
            changing = [command for command in other if changes_host(command)]
            if not changing:
                return []
            notes.append(phrase("On {hosts}: {commands}.", hosts=clean(host, 100), commands=", ".join(changing)))
        return notes

    def other_edits(self, group: FindingGroup) -> list[str] | None:
        """The corrected lines of all other findings, each once; None where one has none."""
        others = [own_lines(other.example, "corrected") for other in self.failure.groups if other is not group]
        edits = list(dict.fromkeys(line for other in others for line in other))
        return edits if others and all(others) and len(edits) < MAX_OWN_COMMANDS else None

    def with_note(self, lines: list[str], note: str) -> list[str]:
        """The note on a line of its own; where lines are few, in the last one."""
        if self.scope.shortens and lines and not lines[-1].startswith("  "):
            gap = "" if lines[-1].endswith(("。", "）")) else " "
            return [*lines[:-1], f"{lines[-1]}{gap}{note}"]
        return [*lines, note]

    def blocked(self) -> list[tuple[str, str]]:
        failure = self.failure
        if not failure.consequences:
            return []
        place = "this host" if len(failure.hosts) == 1 else "these hosts" if failure.hosts else "their subject"
        checks = count_noun(len(failure.consequences), "other check")
        text = phrase("{checks} could not examine {place}", checks=checks, place=localized(place))
        listed = failure.consequences[: None if self.scope.names_checks else MAX_BLOCKED]
        if more := len(failure.consequences) - len(listed):
            listed = (*listed[:-1], listed[-1] + phrase(" and {count} more", count=more))
        return [("blocked", f"{text}{localized(': ')}{', '.join(listed)}")]


def _others(hosts: int) -> str:
    return localized("the other host") if hosts == 2 else phrase("the other {count} hosts", count=hosts - 1)
