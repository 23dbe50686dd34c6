"""`doctor fix --undo` and ``--list``: what was applied, and how it is taken back."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from doctor.cli.fix_plans import ask, holding, kept, reached, ways_of, write_json
from doctor.cli.host_options import Ways, ssh_options
from doctor.fix import render_progress, store
from doctor.fix.journal import Journal
from doctor.fix.parallel import Halt, each
from doctor.fix.plan import Plan
from doctor.fix.undo import Taken, Undoing, by_host
from doctor.report.layout.formatting import clean, count
from doctor.session.console import write

if TYPE_CHECKING:
    from doctor.cli.fix import Deed, Shown

WIDTH = 64


def undo(deed: Deed, ways: Ways, shown: Shown) -> int:
    """Takes back what was applied. Returns the exit code: 10 when something could not be. Raises: CommandError."""
    place = kept(lambda: store.find(deed.undo, os.environ))
    plan = kept(lambda: store.load(place))
    with holding(place):
        return _undone(plan, Journal(place), deed, ways, shown)


def _undone(plan: Plan, journal: Journal, deed: Deed, ways: Ways, shown: Shown) -> int:
    undos = by_host(journal.undos())
    if not undos:
        return _tell_undone([], 0, plan, shown)
    if not deed.yes:
        for host, steps in undos.items():
            write("\n".join(f"{host}: {clean(one.say)}" for one in reversed(steps)))
        ask(f"Take these steps back on {count(len(undos), 'host')}?")
    taken: list[Taken] = []
    with suppress(OSError):  # a full disk here is no reason to leave hosts as they are
        journal.began("undo")
    ways = ways_of(plan.how, ways)
    with reached(plan.how, ways.transport, ssh_options(ways)) as transport, Halt() as halt:
        undoing = Undoing(transport, journal, deed.force, halt.event)
        for _, some in each(list(undos.items()), lambda item: undoing.host(*item), WIDTH, halt.event):
            taken += some
            if not shown.as_json:
                write(render_progress.taken_text(some))
    code = _tell_undone(taken, len(journal.undos()), plan, shown)
    code = halt.code or code
    journal.finished(code)
    return code


def _tell_undone(taken: list[Taken], left: int, plan: Plan, shown: Shown) -> int:
    if shown.as_json:
        rows = [{"host": one.undo.host, "step": one.undo.say, "undone": one.ok, "said": one.said} for one in taken]
        write_json({"schema": "doctor.undo/1", "id": plan.id, "steps": rows})
    elif not taken:
        write(f"Nothing to take back: no step of {plan.id} is in force.")
    elif left:
        write(f"NOT UNDONE: {count(left, 'step')} still in force; doctor fix --undo {plan.id} again")
    else:
        write(f"UNDONE: {count(len(taken), 'step')} on {count(len(by_host([t.undo for t in taken])), 'host')}")
    return 10 if left else 0


def list_plans(shown: Shown) -> int:
    """Every saved plan, oldest first."""
    rows = []
    for name in kept(lambda: store.all_ids(os.environ)):
        place = kept(lambda name=name: store.find(name, os.environ))  # type: ignore[misc]
        try:
            plan = store.load(place)
        except store.NoPlan as error:
            rows.append({"id": name, "state": str(error)})
            continue
        rows.append({"id": name, "hosts": len(plan.to_do), "state": _state(Journal(place)), "of": plan.source})
    if shown.as_json:
        write_json({"schema": "doctor.plans/1", "plans": rows})
    else:
        lines = [f"{one['id']}  {count(int(one.get('hosts', 0)), 'host')}: {one['state']}" for one in rows]
        write("\n".join(lines) or "No plan is saved.")
    return 0


def _state(journal: Journal) -> str:
    entries = journal.entries()
    if not any(one.kind == "step" for one in entries):
        return "planned"
    in_force = len(journal.undos())
    if not in_force:
        return "undone"
    steps = count(in_force, "step")
    finished = [one for one in entries if one.kind in ("began", "finished")][-1].kind == "finished"
    return f"applied, {steps} in force" if finished else f"broken off, {steps} in force or begun"
