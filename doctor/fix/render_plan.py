"""Plans in words, for terminals and logs alike; hosts that get the same are one group. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from doctor.fix.plan import Book, HostPlan, Plan, Show
from doctor.fix.select import Left
from doctor.report.layout.formatting import clean, count
from doctor.report.layout.host_names import Fleet

_DATA = re.compile(r"[A-Za-z0-9+/=]{81,}")
COLOURS = {"+": "32", "-": "31", "@": "36"}
MOST = 40
"""Lines of one diff that are shown; the saved plan has them all."""


def plan_text(plan: Plan, colour: bool = False, verbose: bool = False) -> str:
    """What would be done where, and what will not."""
    return "\n".join(_Sheet(plan, colour, verbose).lines()) + "\n"


class _Sheet:
    def __init__(self, plan: Plan, colour: bool, verbose: bool) -> None:
        self.plan, self.colour, self.verbose = plan, colour, verbose
        self.fleet = Fleet(plan.hosts)
        self.books = {one.name: one for one in plan.books}

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
        for one in self.plan.plans:
            if one.acts:
                bare = [line.replace(one.host, "\0") for line in (_root(one), *self.body(one))]
                same.setdefault(tuple(bare), []).append(one)
        groups = [([one.host for one in members], members) for members in same.values()]
        return sorted(groups, key=lambda one: -len(one[0]))

    def body(self, one: HostPlan) -> Iterator[str]:
        for name in dict.fromkeys(step.playbook for step in one.steps):
            book = self.books[name]
            yield f"  {name}: {clean(book.title)}"
            yield f"    {_terms(book)}"
            for treated in one.treated:
                if treated.playbook == name:
                    yield f"    for {treated.check}: {clean(treated.message)}"
            if book.note:
                yield f"    note: {clean(' '.join(book.note.split()), 2000)}"
            steps = [step for step in one.steps if step.playbook == name]
            for number, step in enumerate(steps, 1):
                yield from self.step(number, step)

    def step(self, number: int, step: Show) -> Iterator[str]:
        by_hand = "by hand: " if step.kind == "hands" else ""
        yield f"    {number}. {by_hand}{step.say}{f' (left out: {step.skip})' if step.skip else ''}"
        if step.skip and not self.verbose:
            return
        if step.note:
            yield f"       {step.note}"
        for label, command in (("$", step.run), ("undo:", step.undo)):
            for at, line in enumerate(command.splitlines()):
                yield f"       {label if not at else ' ' * len(label)} {self.short(line)}"
        shown = step.diff if self.verbose else step.diff[:MOST]
        yield from (f"       {self.painted(line)}" for line in shown)
        if len(shown) < len(step.diff):
            yield f"       ({len(step.diff) - len(shown)} more lines)"

    def short(self, line: str) -> str:
        """Without the middle of data that no reader reads, as the bytes of a file in base64."""
        if self.verbose:
            return line
        return _DATA.sub(lambda data: f"{data[0][:20]}...{data[0][-8:]}", line)

    def painted(self, line: str) -> str:
        code = COLOURS.get(line[:1], "")
        return f"\x1b[{code}m{line}\x1b[0m" if self.colour and code else line

    def bold(self, line: str) -> str:
        return f"\x1b[1m{line}\x1b[0m" if self.colour else line

    def untouched(self) -> Iterator[str]:
        busy = [one for one in self.plan.to_do if one.busy]
        if busy:
            yield from ("", self.bold("in use, and not touched without --force"))
            yield from self.folded((one.host, "; ".join(one.busy[:3])) for one in busy)
        lines = [(one.host, _trouble(one)) for one in self.plan.plans if one.trouble]
        lines += [(one.host, f"{one.playbook}: nothing to do: {one.why}") for one in _idle(self.plan.plans)]
        lines += [
            (one.host, f"{one.check}: {_why(one)}") for one in self.plan.left if one.kind not in ("hands", "unknown")
        ]
        if lines:
            yield from ("", self.bold("not touched"))
            yield from self.folded(lines)
        yield from self.by_hand()
        yield from self.unknown()

    def by_hand(self) -> Iterator[str]:
        hands = [one for one in self.plan.left if one.kind == "hands"]
        if hands:
            yield from ("", self.bold("by hand"))
        same: dict[tuple[str, ...], list[Left]] = {}
        for one in hands:
            said = [say.replace(one.host, "\0") if one.host else say for say in one.says]
            same.setdefault((one.check, one.why, one.who, *said), []).append(one)
        for (check, title, who, *_), members in same.items():
            says = members[0].says
            where = self.fleet.where(self.fleet.ordered(one.host for one in members)) or "the job"
            first = members[0].host
            example = f"; as for {clean(first, 100)}" if len(members) > 1 and any(first in say for say in says) else ""
            yield f"  {where}: {check}: {clean(title)} ({who}{example})"
            yield from (f"    {number}. {clean(say)}" for number, say in enumerate(says, 1))

    def unknown(self) -> Iterator[str]:
        same: dict[tuple[str, str], set[str]] = {}
        for one in self.plan.left:
            if one.kind == "unknown":
                same.setdefault((one.host, one.why), set()).add(one.check)
        if same:
            yield from ("", self.bold("unknown, and so not touched"))
            yield from self.folded(
                (host, f"{count(len(names), 'check')}: {why}") for (host, why), names in same.items()
            )

    def folded(self, lines: Iterable[tuple[str, str]]) -> Iterator[str]:
        same: dict[str, list[str]] = {}
        for host, text in lines:
            same.setdefault(text, []).append(host)
        for text, hosts in same.items():
            yield f"  {self.fleet.where(self.fleet.ordered(hosts)) or 'the job'}: {clean(text)}"

    def closing(self) -> Iterator[str]:
        to_do = self.plan.to_do
        yield ""
        if not to_do:
            yield "Nothing to apply: nothing was found that a playbook mends here."
            return
        interrupts = sorted({book.risk for book in self.plan.books if book.risk in ("interrupts-jobs", "reboot")})
        if interrupts:
            yield f"Mind: this plan {' and '.join(_RISKS[risk] for risk in interrupts)}."
        yield f"Nothing has changed yet. To apply it to {count(len(to_do), 'host')}: doctor fix --apply {self.plan.id}"


_RISKS = {"interrupts-jobs": "interrupts jobs", "reboot": "needs a reboot"}


def _root(one: HostPlan) -> str:
    return {"login": ", as root", "sudo": ", as root through sudo -n"}.get(one.root, "")


def _terms(book: Book) -> str:
    lasts = "survives a reboot" if book.persistent else "is gone after a reboot"
    risk = "no risk" if book.risk == "none" else f"risk: {book.risk}"
    return f"{book.who}; {risk}; {'root; ' if book.root else ''}{lasts}"


def _trouble(one: HostPlan) -> str:
    names = ", ".join(sorted({treated.check for treated in one.treated}))
    return f"{names}: {one.trouble}"


def _why(one: Left) -> str:
    return f"{one.playbook}: {one.why}" if one.kind == "unfit" else one.why


def _idle(plans: Sequence[HostPlan]) -> Iterator[Left]:
    """Playbooks of which no step is left to make."""
    for one in plans:
        for name in dict.fromkeys(step.playbook for step in one.steps) if not one.trouble and not one.acts else ():
            why = next((step.skip for step in one.steps if step.playbook == name and step.skip), "nothing for software")
            yield Left(one.host, "", why, "none", name)
