"""From the hosts to a plan, and from a plan to hosts that are proven to be mended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone

import msgspec

from doctor import __version__
from doctor.declaration import Check
from doctor.examine import Examination, Options, examine, replay
from doctor.fix.apply import Applying, Done, Work
from doctor.fix.crowd import each
from doctor.fix.hand import Lost
from doctor.fix.how import How
from doctor.fix.journal import Journal
from doctor.fix.look import Hands, busy, look
from doctor.fix.plan import SCHEMA, Book, HostPlan, Look, Plan, host_plan
from doctor.fix.proof import Proof, prove
from doctor.fix.steps import Choice, Treatment, acts, choose
from doctor.fix.store import new_id
from doctor.gather import Progress
from doctor.inventory import Inventory
from doctor.model import Report
from doctor.playbook import Playbook
from doctor.record import Run
from doctor.transport import Transport

WIDTH = 64
"""Hosts that are looked at, at once."""


class Case(msgspec.Struct, frozen=True):
    """All that a plan is made from, but for the hosts' own answers."""

    inventory: Inventory
    checks: tuple[Check, ...]
    playbooks: tuple[Playbook, ...]
    options: Options
    how: How
    settle: Callable[[Report], Report]
    """Sets apart what is waived."""

    def examined(
        self, hosts: Sequence[str] = (), checks: Sequence[Check] = (), progress: Progress = lambda host, record: None
    ) -> Examination:
        """Visits the hosts: all of them, or some, which are told of all."""
        fleet = self.inventory
        if hosts:
            fleet = msgspec.structs.replace(fleet, hosts=tuple(hosts), fleet=fleet.fleet or fleet.hosts)
        return examine(
            fleet,
            checks or self.checks,
            self.options,
            self.how.environ,
            rank_table=self.how.rank_table,
            progress=progress,
        )

    def judged(self, run: Run, checks: Sequence[Check]) -> Report:
        return self.settle(replay(run, checks))


class Planned(msgspec.Struct, frozen=True):
    """A plan, and what it takes to apply it: the run it is made of, and every host's work."""

    plan: Plan
    run: Run
    works: dict[str, Work]


def make(case: Case, run: Run, transport: Transport, with_busy: bool = True) -> Planned:
    """Looks at every host that a playbook is for, and plans. Changes nothing."""
    report = case.judged(run, case.checks)
    choice = choose(report, case.playbooks, case.how.names)
    hosts = [host for host in case.inventory.hosts if host in choice.by_host]

    def one(host: str) -> Work:
        return _work(host, choice.by_host[host], transport, with_busy)

    works = dict(each(hosts, one, WIDTH))
    return Planned(_plan(case, choice, {host: works[host] for host in hosts}, run), run, works)


def _work(host: str, treatments: Sequence[Treatment], transport: Transport, with_busy: bool) -> Work:
    steps, hands = acts(treatments, host), Hands(transport, host)
    try:
        seen = look(hands, steps)
        if with_busy and not all(act.ready.hands for act in steps):
            seen = msgspec.structs.replace(seen, busy=busy(hands.most()))
    except Lost as why:
        seen = Look(trouble=str(why))
    finally:
        hands.close()
    return Work(host_plan(host, treatments, steps, seen), tuple(treatments), tuple(steps))


def _plan(case: Case, choice: Choice, works: Mapping[str, Work], run: Run) -> Plan:
    used = {one.playbook.name: one.playbook for work in works.values() for one in work.treatments}
    return Plan(
        SCHEMA,
        new_id(),
        datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        __version__,
        case.inventory.source,
        case.inventory.hosts,
        case.how.names,
        tuple(Book.of(used[name]) for name in sorted(used)),
        tuple(work.planned for work in works.values()),
        choice.left,
        run.notes,
        case.how,
    )


def strayed(saved: Plan, now: Plan) -> dict[str, str]:
    """Hosts that are no longer as they were planned, and what is so."""
    present = {one.host: one for one in now.plans}
    found = {}
    for old in saved.to_do:
        new = present.get(old.host)
        if new is None:
            found[old.host] = "the checks no longer find what was planned for"
        elif new.trouble:
            found[old.host] = new.trouble
        elif new.digest != old.digest:
            found[old.host] = _what_differs(old, new)
    return found


def _what_differs(old: HostPlan, new: HostPlan) -> str:
    if {(one.check, one.playbook) for one in old.treated} != {(one.check, one.playbook) for one in new.treated}:
        return "the checks find something else than was planned for"
    changed = next((a.say for a, b in zip(old.steps, new.steps, strict=False) if a != b), "")
    return (
        f"what “{changed}” would meet is another by now" if changed else "what the steps would meet is another by now"
    )


class Result(msgspec.Struct, frozen=True):
    """What became of an applied plan."""

    id: str
    done: tuple[Done, ...]
    proofs: tuple[Proof, ...]
    not_begun: tuple[str, ...]
    stopped: int = 0
    """The exit code of the interrupt that ended it."""

    @property
    def code(self) -> int:
        """0 when all that was planned is proven, 12 when what is not is unknown, else 10."""
        if self.stopped:
            return self.stopped
        if self.not_begun or any(one.state != "applied" for one in self.done):
            unknown = any(one.state == "unknown" for one in self.proofs)
            red = any(one.state == "red" for one in self.proofs) or any(one.state != "applied" for one in self.done)
            return 12 if unknown and not red else 10
        states = {one.state for one in self.proofs}
        return 10 if states & {"red", "waits"} else 12 if "unknown" in states else 0


Tell = Callable[[Done | Proof], None]


def apply(
    case: Case, planned: Planned, transport: Transport, journal: Journal, force: bool, batch: int, tell: Tell
) -> Result:
    """The canary, then the others in batches, each proven before the next; ends at the first that is not."""
    return _Course(case, planned, Applying(transport, journal, force), batch, tell).go()


class _Course:
    def __init__(self, case: Case, planned: Planned, applying: Applying, batch: int, tell: Tell) -> None:
        self.case, self.planned, self.applying, self.batch, self.tell = case, planned, applying, batch, tell
        self.hosts = [one.host for one in planned.plan.to_do]
        self.left = list(self.hosts)
        self.run = planned.run
        self.done: list[Done] = []
        self.proofs: dict[tuple[str, str], Proof] = {}
        self.stopped = 0

    def go(self) -> Result:
        while self.left and self._goes_on():
            size = self.batch if any(one.state == "applied" for one in self.done) else 1
            hosts, self.left = self.left[:size], self.left[size:]
            try:
                mended = self._apply(hosts)
                if mended:
                    self._prove(mended)
            except (KeyboardInterrupt, SystemExit) as stop:
                self.stopped = stop.code if isinstance(stop, SystemExit) and isinstance(stop.code, int) else 130
        if not self.stopped and any(one.state == "waits" for one in self.proofs.values()):
            self._prove([host for host, _ in self.proofs], last=True)
        plan = self.planned.plan
        return Result(plan.id, tuple(self.done), tuple(self.proofs.values()), tuple(self.left), self.stopped)

    def _goes_on(self) -> bool:
        if self.stopped or any(one.state in ("refused", "stopped") for one in self.done):
            return False
        return all(one.state in ("green", "waits") for one in self.proofs.values())

    def _apply(self, hosts: Sequence[str]) -> list[str]:
        works = [self.planned.works[host] for host in hosts]
        mended = []
        for _, done in each(works, self.applying.host, len(works), self.applying.stop):
            self.done.append(done)
            self.tell(done)
            if done.state == "applied":
                mended.append(done.host)
        return mended

    def _prove(self, hosts: Sequence[str], last: bool = False) -> None:
        """Runs the checks of these hosts again, beside what the others said."""
        names = {host: {one.check for one in self.planned.works[host].treatments} for host in dict.fromkeys(hosts)}
        checks = [one for one in self.case.checks if any(one.name in wanted for wanted in names.values())]
        # What hosts see of each other is asked of all of them.
        whole = any(fact.needs for one in checks for fact in one.facts)
        seen = self.case.examined(() if whole else list(names), checks)
        if seen.stopped is not None:
            raise seen.stopped
        records = {
            host: msgspec.structs.replace(record, outputs={**self.run.hosts[host].outputs, **record.outputs})
            if not record.visit.trouble
            else record
            for host, record in seen.run.hosts.items()
        }
        self.run = msgspec.structs.replace(self.run, hosts={**self.run.hosts, **records})
        mended = [one.host for one in self.done if one.state == "applied"]
        waiting = [] if last else self.hosts
        for proof in prove(self.case.judged(self.run, checks), names, mended, waiting):
            self.proofs[proof.host, proof.check] = proof
            self.applying.journal.proof(proof.host, f"{proof.check}: {proof.state} {proof.why}".strip())
            self.tell(proof)
