"""Plans as text, for terminals and logs; hosts with the same steps form one group. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence

from doctor.engine.grouping import lists_by_key, sets_by_key
from doctor.engine.language import localized, localized_filled, phrase
from doctor.engine.output_encoding import display_width
from doctor.fix.file_edits import NOT_THERE
from doctor.fix.plan import FixPlan, HostPlan, PlaybookSummary, StepPreview
from doctor.fix.select import Untreated
from doctor.fix.survival import NOT_KNOWN
from doctor.report.layout.advice import mark_personal_words
from doctor.report.layout.formatting import MARK, bracketed, clean, count_noun, laid_out, translated
from doctor.report.layout.host_names import Fleet

_LONG_DATA = re.compile(r"[A-Za-z0-9+/=]{81,}")
COLOURS = {"+": "32", "-": "31", "@": "36"}
MAX_DIFF_LINES = 40
"""Lines of one diff that are shown; the saved plan has them all."""


def plan_text(plan: FixPlan, colour: bool = False, verbose: bool = False, width: int = 0) -> str:
    """What would be done where, and what will not. Prose is wrapped at ``width`` columns; 0 does not."""
    return laid_out("\n".join(_PlanRenderer(plan, colour, verbose).lines()), width or sys.maxsize) + "\n"


class _PlanRenderer:
    def __init__(self, plan: FixPlan, colour: bool, verbose: bool) -> None:
        self.plan, self.colour, self.verbose = plan, colour, verbose
        self.fleet = Fleet(plan.hosts)
        self.playbooks = {playbook.name: playbook for playbook in plan.playbooks}

    def lines(self) -> Iterator[str]:
        yield self.bold(phrase("plan {id}: {source}", id=self.plan.id, source=translated(self.plan.source)))
        for hosts, group in self.groups():
            yield ""
            yield self.bold(f"{self.fleet.where(hosts)}{_root(group[0])}")
            body = list(self.body(group[0]))
            if len(group) > 1 and any(hosts[0] in line for line in body):
                yield "  " + phrase("as for {host}, each with its own name:", host=clean(hosts[0], 100))
            yield from body
        yield from self.untouched()
        yield from self.closing()

    def groups(self) -> list[tuple[list[str], list[HostPlan]]]:
        """Hosts that get the same, most first."""
        same: dict[tuple[str, ...], list[HostPlan]] = {}
        for host_plan in self.plan.host_plans:
            if host_plan.has_actions:
                bare = [line.replace(host_plan.host, "\0") for line in (_root(host_plan), *self.body(host_plan))]
                same.setdefault(tuple(bare), []).append(host_plan)
        groups = [([member.host for member in members], members) for members in same.values()]
        return sorted(groups, key=lambda group: -len(group[0]))

    def body(self, host_plan: HostPlan) -> Iterator[str]:
        for name in dict.fromkeys(step.playbook for step in host_plan.steps):
            if name in host_plan.left_out:
                continue
            playbook = self.playbooks[name]
            yield f"  {name}{localized(': ')}{translated(playbook.title)}"
            yield f"    {MARK}{_terms(playbook, host_plan.survives.get(name))}"
            for treated in host_plan.treated:
                if treated.playbook == name:
                    message = translated(treated.message)
                    yield f"    {MARK}" + phrase("for {check}: {message}", check=treated.check, message=message)
            if playbook.note:
                yield f"    {MARK}" + phrase("note: {text}", text=clean(_note(playbook.note), 2000))
            steps = [step for step in host_plan.steps if step.playbook == name]
            for number, step in enumerate(steps, 1):
                yield from self.step(number, step)

    def step(self, number: int, step: StepPreview) -> Iterator[str]:
        by_hand = localized("by hand: ") if step.kind == "hands" else ""
        skipped = phrase(" (skipped: {reason})", reason=localized_filled(step.skip)) if step.skip else ""
        yield f"    {MARK}{number}. {by_hand}{localized_filled(step.description)}{skipped}"
        if step.skip and not self.verbose:
            return
        if step.note:
            yield f"       {MARK}{localized_filled(step.note)}"
        for label, command in (("$", step.run), (localized("undo:"), step.undo)):
            for at, line in enumerate(command.splitlines()):
                yield f"       {label if not at else ' ' * display_width(label)} {self.short(line)}"
        diff_lines = step.diff if self.verbose else step.diff[:MAX_DIFF_LINES]
        yield from (f"       {self.painted(_diff_line(line))}" for line in diff_lines)
        if len(diff_lines) < len(step.diff):
            yield "       " + phrase("({lines})", lines=count_noun(len(step.diff) - len(diff_lines), "more line"))

    def short(self, line: str) -> str:
        """Without the middle of data that no reader reads, as the bytes of a file in base64."""
        if self.verbose:
            return line
        return _LONG_DATA.sub(lambda data: f"{data[0][:20]}...{data[0][-8:]}", line)

    def painted(self, line: str) -> str:
        code = COLOURS.get(line[:1], "")
        return f"\x1b[{code}m{line}\x1b[0m" if self.colour and code else line

    def bold(self, line: str) -> str:
        return f"\x1b[1m{line}\x1b[0m" if self.colour else line

    def untouched(self) -> Iterator[str]:
        busy = [host_plan for host_plan in self.plan.plans_to_apply if host_plan.busy]
        if busy:
            yield from ("", self.bold(localized("in use, not changed without --force")))
            yield from self.lines_by_hosts(
                (host_plan.host, localized("; ").join(map(localized_filled, host_plan.busy[:3]))) for host_plan in busy
            )
        lines = [(host_plan.host, text) for host_plan in self.plan.host_plans for text in _failure_texts(host_plan)]
        lines += [
            (untreated.host, phrase("{playbook}: nothing to do: {reason}", **_named(untreated)))
            for untreated in _idle_playbooks(self.plan.host_plans)
        ]
        lines += [
            (untreated.host, f"{untreated.check}{localized(': ')}{_reason_text(untreated)}")
            for untreated in self.plan.untreated
            if untreated.kind not in ("hands", "unknown")
        ]
        if lines:
            yield from ("", self.bold(localized("not changed")))
            yield from self.lines_by_hosts(lines)
        yield from self.manual_steps()
        yield from self.unknown()

    def manual_steps(self) -> Iterator[str]:
        manual = [untreated for untreated in self.plan.untreated if untreated.kind == "hands"]
        if manual:
            yield from ("", self.bold(localized("by hand")))
        same: dict[tuple[str, ...], list[Untreated]] = {}
        for entry in manual:
            texts = [text.replace(entry.host, "\0") if entry.host else text for text in entry.manual_steps]
            same.setdefault((entry.check, entry.reason, entry.who, *texts), []).append(entry)
        for (check, title, who, *_), members in same.items():
            steps = members[0].manual_steps
            where = self.fleet.where(self.fleet.ordered(member.host for member in members)) or localized("the job")
            first = members[0].host
            example = (
                phrase("; as for {host}", host=clean(first, 100))
                if len(members) > 1 and any(first in text for text in steps)
                else ""
            )
            colon = localized(": ")
            yield f"  {MARK}{where}{colon}{check}{colon}{translated(title)}{bracketed(localized(who) + example)}"
            for number, text in enumerate(steps, 1):
                yield f"    {MARK}{number}. {mark_personal_words(translated(text))}"

    def unknown(self) -> Iterator[str]:
        unknown = (each for each in self.plan.untreated if each.kind == "unknown")
        same = sets_by_key(((each.host, each.reason), each.check) for each in unknown)
        if same:
            yield from ("", self.bold(localized("unknown, therefore not changed")))
            yield from self.lines_by_hosts(
                (host, f"{count_noun(len(names), 'check')}{localized(': ')}{localized_filled(why)}")
                for (host, why), names in same.items()
            )

    def lines_by_hosts(self, lines: Iterable[tuple[str, str]]) -> Iterator[str]:
        same = lists_by_key((text, host) for host, text in lines)
        for text, hosts in same.items():
            where = self.fleet.where(self.fleet.ordered(hosts)) or localized("the job")
            yield f"  {MARK}{where}{localized(': ')}{clean(text)}"

    def closing(self) -> Iterator[str]:
        to_do = self.plan.plans_to_apply
        yield ""
        if not to_do:
            yield localized("Nothing to apply: no finding has a playbook that applies here.")
            return
        interrupts = sorted(
            {playbook.risk for playbook in self.plan.playbooks if playbook.risk in ("interrupts-jobs", "reboot")}
        )
        if interrupts:
            effects = localized(" and ").join(localized(_RISKS[risk]) for risk in interrupts)
            yield phrase("Warning: this plan {effects}.", effects=effects)
        hosts = count_noun(len(to_do), "host")
        yield MARK + phrase("Nothing has changed yet. To apply it to {hosts}:", hosts=hosts)
        yield f"  {self.command}"

    @property
    def command(self) -> str:
        return f"doctor fix --apply {self.plan.id}"


_RISKS = {"interrupts-jobs": "interrupts jobs", "reboot": "needs a reboot"}


def _diff_line(line: str) -> str:
    is_header = line.startswith(("--- ", "+++ ")) and line.endswith(NOT_THERE)
    return line.removesuffix(NOT_THERE) + localized(NOT_THERE) if is_header else line


def _root(host_plan: HostPlan) -> str:
    return localized({"login": ", as root", "sudo": ", as root through sudo -n"}.get(host_plan.root, ""))


def _note(text: str) -> str:
    """A playbook's note in one line, each of its paragraphs in the language of this process."""
    paragraphs = (localized(part) for part in text.strip().split("\n\n"))
    return " ".join(" ".join(paragraphs).split())


def _named(untreated: Untreated) -> dict[str, str]:
    return {"playbook": untreated.playbook, "reason": localized_filled(untreated.reason)}


def _terms(playbook: PlaybookSummary, lost: str | None) -> str:
    """``lost``: why a reboot takes the changes back; empty where it does not, None where the host was not read."""
    risk = localized("no risk") if playbook.risk == "none" else phrase("risk: {risk}", risk=localized(playbook.risk))
    terms = [localized(playbook.who), risk, *(["root"] if playbook.root else [])]
    if lost is not None:
        terms.append(_lasts(lost))
    return localized("; ").join(terms)


def _lasts(lost: str) -> str:
    if not lost:
        return localized("survives a reboot")
    reason = translated(lost.removeprefix(NOT_KNOWN))
    if lost.startswith(NOT_KNOWN):
        return phrase("whether it survives a reboot is not known: {reason}", reason=reason)
    return phrase("lost after a reboot: {reason}", reason=reason)


def _failure_texts(host_plan: HostPlan) -> Iterator[str]:
    """Why the host, or some playbooks on it, cannot be treated, each behind the names of their checks."""
    everything = {treated.playbook: host_plan.failure for treated in host_plan.treated if host_plan.failure}
    reasons = {**everything, **{name: why for name, why in host_plan.left_out.items() if why}}
    treated = (each for each in host_plan.treated if each.playbook in reasons)
    for why, checks in sets_by_key((reasons[each.playbook], each.check) for each in treated).items():
        yield f"{', '.join(sorted(checks))}{localized(': ')}{localized_filled(why)}"


def _reason_text(untreated: Untreated) -> str:
    reason = localized_filled(untreated.reason)
    return f"{untreated.playbook}{localized(': ')}{reason}" if untreated.kind == "unfit" else reason


def _idle_playbooks(plans: Sequence[HostPlan]) -> Iterator[Untreated]:
    """Playbooks without a step that is left to make."""
    for host_plan in plans:
        for name in (
            dict.fromkeys(step.playbook for step in host_plan.steps if step.playbook not in host_plan.left_out)
            if not host_plan.failure and not host_plan.has_actions
            else ()
        ):
            why = next(
                (step.skip for step in host_plan.steps if step.playbook == name and step.skip), "no automatic fix"
            )
            yield Untreated(host_plan.host, "", why, "none", name)
