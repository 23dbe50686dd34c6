"""From the hosts to a plan: what was found, what treats it, and what the steps would meet. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone

import msgspec

from doctor import __version__
from doctor.collect.fanout import Progress
from doctor.engine.check import Check
from doctor.engine.record import Run
from doctor.engine.result import Report
from doctor.environment.inventory import Inventory
from doctor.fix.apply import Work
from doctor.fix.context import How
from doctor.fix.inspect_host import Hands, busy, look
from doctor.fix.parallel import each
from doctor.fix.plan import SCHEMA, Book, HostPlan, Look, Plan, host_plan
from doctor.fix.remote_client import Lost
from doctor.fix.select import Choice, Treatment, acts, choose
from doctor.fix.store import new_id
from doctor.remedy.playbook import Playbook
from doctor.session.examine import Examination, Options, examine, replay
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
