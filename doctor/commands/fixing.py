"""The deeds of `doctor fix`: plan, apply, undo, list."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from doctor.cli import Refused, write
from doctor.commands.chosen import catalogue, playbooks
from doctor.commands.hosts import Ways, ssh_options
from doctor.commands.waived import refuse_settings, settled
from doctor.fix import show, store
from doctor.fix.course import Case, Planned, apply, make, strayed
from doctor.fix.crowd import each
from doctor.fix.how import How
from doctor.fix.journal import Journal
from doctor.fix.naming import Unknown, wanted
from doctor.fix.plan import Plan
from doctor.fix.undo import Taken, Undoing, by_host
from doctor.report.words import clean, count
from doctor.transport import Transport
from doctor.transport.choice import open_transport

if TYPE_CHECKING:
    from doctor.commands.fix import Deed, Shown
    from doctor.record import Run
    from doctor.transport.options import Options as SshOptions

WIDTH = 64


def fresh(how: How, run: Run | None, deed: Deed, ways: Ways, shown: Shown) -> int:
    """Plans, and applies if that is asked for. Returns the exit code. Raises: Refused."""
    case = _case(how, ways)
    planned = _planned(case, run)
    place = _kept(lambda: store.save(planned.plan, os.environ))
    if not (shown.as_json and deed.apply):
        _show(planned.plan, shown)
    if not deed.apply or not planned.plan.to_do:
        return code_of(planned.plan)
    if not deed.yes:
        _ask(f"Apply this to {len(planned.plan.to_do)} hosts?")
        planned = _as_before(planned.plan, _planned(case, None))
    elif run is not None:
        planned = _as_before(planned.plan, _planned(case, None))
    return _apply(case, planned, place, deed, shown)


def saved(name: str, deed: Deed, ways: Ways, shown: Shown) -> int:
    """Shows a saved plan, or applies it. Returns the exit code. Raises: Refused."""
    place = _kept(lambda: store.find(name, os.environ))
    plan, journal = _kept(lambda: store.load(place)), Journal(place)
    if not deed.apply:
        _show(plan, shown)
        return 0
    if journal.undos():
        raise Refused(f"{name} was applied already; expected a new plan, or doctor fix --undo {name}", 10)
    if not plan.to_do:
        raise Refused(f"{name} has nothing to apply", 10)
    if not deed.yes:
        _show(plan, shown)
        _ask(f"Apply this to {len(plan.to_do)} hosts?")
    ways = _ways(plan.how, ways)
    case = _case(plan.how, ways)
    return _apply(case, _as_before(plan, _planned(case, None)), place, deed, shown)


def undo(deed: Deed, ways: Ways, shown: Shown) -> int:
    """Takes back what was applied. Returns the exit code: 10 when something could not be. Raises: Refused."""
    place = _kept(lambda: store.find(deed.undo, os.environ))
    plan, journal = _kept(lambda: store.load(place)), Journal(place)
    undos = by_host(journal.undos())
    if not undos:
        return _tell_undone([], plan, shown)
    if not deed.yes:
        for host, steps in undos.items():
            write("\n".join(f"{host}: {clean(one.say)}" for one in reversed(steps)))
        _ask(f"Take these steps back on {len(undos)} hosts?")
    taken: list[Taken] = []
    journal.began("undo")
    ways = _ways(plan.how, ways)
    with _reached(plan.how, ways.transport, ssh_options(ways)) as transport:
        undoing = Undoing(transport, journal, deed.force)
        for _, some in each(list(undos.items()), lambda item: undoing.host(*item), WIDTH, undoing.stop):
            taken += some
            if not shown.as_json:
                write(show.taken_text(some))
    code = _tell_undone(taken, plan, shown)
    journal.finished(code)
    return code


def _tell_undone(taken: list[Taken], plan: Plan, shown: Shown) -> int:
    failed = [one for one in taken if not one.ok]
    if shown.as_json:
        rows = [{"host": one.undo.host, "step": one.undo.say, "undone": one.ok, "said": one.said} for one in taken]
        _json({"schema": "doctor.undo/1", "id": plan.id, "steps": rows})
    elif not taken:
        write(f"Nothing to take back: no step of {plan.id} is in force.")
    elif failed:
        write(f"NOT UNDONE: {len(failed)} of {len(taken)} steps are still in force; doctor fix --undo {plan.id} again")
    else:
        write(f"UNDONE: {count(len(taken), 'step')} on {count(len(by_host([t.undo for t in taken])), 'host')}")
    return 10 if failed else 0


def list_plans(shown: Shown) -> int:
    """Every saved plan, oldest first."""
    rows = []
    for name in _kept(lambda: store.all_ids(os.environ)):
        place = _kept(lambda name=name: store.find(name, os.environ))  # type: ignore[misc]
        try:
            plan = store.load(place)
        except store.NoPlan as error:
            rows.append({"id": name, "state": str(error)})
            continue
        rows.append({"id": name, "hosts": len(plan.to_do), "state": _state(Journal(place)), "of": plan.source})
    if shown.as_json:
        _json({"schema": "doctor.plans/1", "plans": rows})
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


def code_of(plan: Plan) -> int:
    """0 when all that was found is planned; 10 when something is not; 12 when only something unknown is left."""
    planned = {(one.host, treated.check) for one in plan.to_do for treated in one.treated}
    found = {(one.host, treated.check) for one in plan.plans for treated in one.treated}
    found |= {(one.host, one.check) for one in plan.left if one.kind in ("none", "hands", "explicit", "unfit")}
    if found - planned:
        return 10
    return 12 if any(one.kind == "unknown" for one in plan.left) else 0


def _case(how: How, ways: Ways) -> Case:
    """Raises: Refused."""
    from doctor.examine import Options
    from doctor.inventory import Inventory

    folders, config = [Path(one) for one in how.checks], Path(how.config) if how.config else None
    refuse_settings(config, folders)
    known = catalogue(folders)
    books = playbooks([Path(one) for one in how.playbooks], folders)
    try:
        checks = wanted(how.names, known, books)
    except Unknown as error:
        raise Refused(str(error), 2) from None
    options = Options(
        transport=ways.transport,
        ssh=ssh_options(ways),
        sudo=how.sudo,
        within=ways.within,
        timeout=how.timeout,
        launch=how.launch,
    )
    inventory = Inventory(how.hosts, how.source, how.slots, how.local)
    return Case(inventory, tuple(checks), tuple(books), options, how, lambda report: settled(report, config, known))


def _ways(how: How, given: Ways) -> Ways:
    """The ways of the plan, but for what the command line says."""
    usual = Ways()._asdict()
    said = {name: value for name, value in given._asdict().items() if value != usual[name]}
    return Ways(**{**usual, **how.ways, **said})


@contextmanager
def _reached(how: How, name: str, ssh: SshOptions) -> Iterator[Transport]:
    transport = open_transport(how.local, name, ssh, how.hosts)
    try:
        yield transport
    finally:
        transport.close()


def _planned(case: Case, run: Run | None) -> Planned:
    """Looks at the hosts. Raises: SystemExit, when that was interrupted."""
    if run is None:
        from doctor.report.progress import Progress

        progress = Progress(len(case.inventory.hosts), sys.stderr)
        try:
            seen = case.examined(progress=progress.step)
        finally:
            progress.close()
        if seen.stopped is not None:
            raise seen.stopped
        run = seen.run
    with _reached(case.how, case.options.transport, case.options.ssh) as transport:
        return make(case, run, transport)


def _as_before(plan: Plan, now: Planned) -> Planned:
    """The same plan, with what it takes to apply it. Raises: Refused, when a host is no longer as it was planned."""
    astray = strayed(plan, now.plan)
    if astray:
        lines = [f"{clean(host, 100)}: {clean(why)}" for host, why in list(astray.items())[:8]]
        more = f"; {len(astray) - 8} more" if len(astray) > 8 else ""
        raise Refused(f"no longer as planned: {'; '.join(lines)}{more}; nothing was changed, expected a new plan", 10)
    planned = {one.host for one in plan.to_do}
    return Planned(plan, now.run, {host: work for host, work in now.works.items() if host in planned})


def _apply(case: Case, planned: Planned, place: Path, deed: Deed, shown: Shown) -> int:
    journal = Journal(place)
    journal.began("apply")

    def tell(one: Any) -> None:
        if not shown.as_json:
            write(show.told(one))

    with _reached(case.how, case.options.transport, case.options.ssh) as transport:
        result = apply(case, planned, transport, journal, deed.force, deed.batch, tell)
    journal.finished(result.code)
    if shown.as_json:
        _json({"schema": "doctor.fixed/1", "code": result.code, **msgspec.to_builtins(result)})
    else:
        write(show.result_text(result, planned.plan))
    return result.code


def _show(plan: Plan, shown: Shown) -> None:
    if shown.as_json:
        return write(msgspec.json.format(msgspec.json.encode(plan), indent=2).decode())
    from doctor.report.look import choose

    return write(show.plan_text(plan, choose(sys.stdout, shown.color, os.environ).colour, shown.verbose))


def _json(document: dict[str, Any]) -> None:
    write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _ask(question: str) -> None:
    """Raises: Refused, unless the answer is yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("nothing was changed", 10)


def _kept(work: Callable[[], Any]) -> Any:
    """What lies in the folder of plans. Raises: Refused."""
    try:
        return work()
    except store.NoPlan as error:
        raise Refused(str(error)) from None
