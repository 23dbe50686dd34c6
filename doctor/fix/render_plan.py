"""Plans as text, for terminals and logs; hosts with the same steps form one group. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from doctor.fix.plan import FixPlan, HostPlan, PlaybookSummary, StepPreview
from doctor.fix.select import Untreated
from doctor.report.layout.formatting import clean, count_noun
from doctor.report.layout.host_names import Fleet

_LONG_DATA = re.compile(r"[A-Za-z0-9+/=]{81,}")
COLOURS = {"+": "32", "-": "31", "@": "36"}
MAX_DIFF_LINES = 40
"""Lines of one diff that are shown; the saved plan has them all."""


def plan_text(plan: FixPlan, colour: bool = False, verbose: bool = False) -> str:
    """What would be done where, and what will not."""
    return "\n".join(_PlanRenderer(plan, colour, verbose).lines()) + "\n"


class _PlanRenderer:
    def __init__(self, plan: FixPlan, colour: bool, verbose: bool) -> None:
        self.plan, self.colour, self.verbose = plan, colour, verbose
        self.fleet = Fleet(plan.hosts)
        self.playbooks = {playbook.name: playbook for playbook in plan.playbooks}

    def lines(self) -> Iterator[str]:
        yield self.bold(f"plan {self.plan.id}: {clean(self.plan.source)}")
        for hosts, group in self.groups():
            yield ""
            yield self.bold(f"{self.fleet.where(hosts)}{_root(group[0])}")
            body = list(self.body(group[0]))
            if len(group) > 1 and any(hosts[0] in line for line in body):
                yield f"  as for {clean(hosts[0], 100)}, each with its own name:"
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
            playbook = self.playbooks[name]
            yield f"  {name}: {clean(playbook.title)}"
            yield f"    {_terms(playbook, host_plan.survives.get(name))}"
            for treated in host_plan.treated:
                if treated.playbook == name:
                    yield f"    for {treated.check}: {clean(treated.message)}"
            if playbook.note:
                yield f"    note: {clean(' '.join(playbook.note.split()), 2000)}"
            steps = [step for step in host_plan.steps if step.playbook == name]
            for number, step in enumerate(steps, 1):
                yield from self.step(number, step)

    def step(self, number: int, step: StepPreview) -> Iterator[str]:
        by_hand = "by hand: " if step.kind == "hands" else ""
        yield f"    {number}. {by_hand}{step.description}{f' (skipped: {step.skip})' if step.skip else ''}"
        if step.skip and not self.verbose:
            return
        if step.note:
            yield f"       {step.note}"
        for label, command in (("$", step.run), ("undo:", step.undo)):
            for at, line in enumerate(command.splitlines()):
                yield f"       {label if not at else ' ' * len(label)} {self.short(line)}"
        diff_lines = step.diff if self.verbose else step.diff[:MAX_DIFF_LINES]
        yield from (f"       {self.painted(line)}" for line in diff_lines)
        if len(diff_lines) < len(step.diff):
            yield f"       ({count_noun(len(step.diff) - len(diff_lines), 'more line')})"

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
            yield from ("", self.bold("in use, not changed without --force"))
            yield from self.lines_by_hosts((host_plan.host, "; ".join(host_plan.busy[:3])) for host_plan in busy)
        lines = [(host_plan.host, _failure_text(host_plan)) for host_plan in self.plan.host_plans if host_plan.failure]
        lines += [
            (untreated.host, f"{untreated.playbook}: nothing to do: {untreated.reason}")
            for untreated in _idle_playbooks(self.plan.host_plans)
        ]
        lines += [
            (untreated.host, f"{untreated.check}: {_reason_text(untreated)}")
            for untreated in self.plan.untreated
            if untreated.kind not in ("hands", "unknown")
        ]
        if lines:
            yield from ("", self.bold("not changed"))
            yield from self.lines_by_hosts(lines)
        yield from self.manual_steps()
        yield from self.unknown()

    def manual_steps(self) -> Iterator[str]:
        manual = [untreated for untreated in self.plan.untreated if untreated.kind == "hands"]
        if manual:
            yield from ("", self.bold("by hand"))
        same: dict[tuple[str, ...], list[Untreated]] = {}
        for entry in manual:
            texts = [text.replace(entry.host, "\0") if entry.host else text for text in entry.manual_steps]
            same.setdefault((entry.check, entry.reason, entry.who, *texts), []).append(entry)
        for (check, title, who, *_), members in same.items():
            steps = members[0].manual_steps
            where = self.fleet.where(self.fleet.ordered(member.host for member in members)) or "the job"
            first = members[0].host
            example = (
                f"; as for {clean(first, 100)}" if len(members) > 1 and any(first in text for text in steps) else ""
            )
            yield f"  {where}: {check}: {clean(title)} ({who}{example})"
            yield from (f"    {number}. {clean(text)}" for number, text in enumerate(steps, 1))

    def unknown(self) -> Iterator[str]:
        same: dict[tuple[str, str], set[str]] = {}
        for untreated in self.plan.untreated:
            if untreated.kind == "unknown":
                same.setdefault((untreated.host, untreated.reason), set()).add(untreated.check)
        if same:
            yield from ("", self.bold("unknown, therefore not changed"))
            yield from self.lines_by_hosts(
                (host, f"{count_noun(len(names), 'check')}: {why}") for (host, why), names in same.items()
            )

    def lines_by_hosts(self, lines: Iterable[tuple[str, str]]) -> Iterator[str]:
        same: dict[str, list[str]] = {}
        for host, text in lines:
            same.setdefault(text, []).append(host)
        for text, hosts in same.items():
            yield f"  {self.fleet.where(self.fleet.ordered(hosts)) or 'the job'}: {clean(text)}"

    def closing(self) -> Iterator[str]:
        to_do = self.plan.plans_to_apply
        yield ""
        if not to_do:
            yield "Nothing to apply: no finding has a playbook that applies here."
            return
        interrupts = sorted(
            {playbook.risk for playbook in self.plan.playbooks if playbook.risk in ("interrupts-jobs", "reboot")}
        )
        if interrupts:
            yield f"Warning: this plan {' and '.join(_RISKS[risk] for risk in interrupts)}."
        hosts = count_noun(len(to_do), "host")
        yield f"Nothing has changed yet. To apply it to {hosts}: doctor fix --apply {self.plan.id}"


_RISKS = {"interrupts-jobs": "interrupts jobs", "reboot": "needs a reboot"}


def _root(host_plan: HostPlan) -> str:
    return {"login": ", as root", "sudo": ", as root through sudo -n"}.get(host_plan.root, "")


def _terms(playbook: PlaybookSummary, lost: str | None) -> str:
    """``lost``: why a reboot takes the changes back; empty where it does not, None where the host was not read."""
    risk = "no risk" if playbook.risk == "none" else f"risk: {playbook.risk}"
    terms = [playbook.who, risk, *(["root"] if playbook.root else [])]
    if lost is not None:
        terms.append(f"lost after a reboot: {clean(lost)}" if lost else "survives a reboot")
    return "; ".join(terms)


def _failure_text(host_plan: HostPlan) -> str:
    names = ", ".join(sorted({treated.check for treated in host_plan.treated}))
    return f"{names}: {host_plan.failure}"


def _reason_text(untreated: Untreated) -> str:
    return f"{untreated.playbook}: {untreated.reason}" if untreated.kind == "unfit" else untreated.reason


def _idle_playbooks(plans: Sequence[HostPlan]) -> Iterator[Untreated]:
    """Playbooks of which no step is left to make."""
    for host_plan in plans:
        for name in (
            dict.fromkeys(step.playbook for step in host_plan.steps)
            if not host_plan.failure and not host_plan.has_actions
            else ()
        ):
            why = next(
                (step.skip for step in host_plan.steps if step.playbook == name and step.skip), "no automatic fix"
            )
            yield Untreated(host_plan.host, "", why, "none", name)
