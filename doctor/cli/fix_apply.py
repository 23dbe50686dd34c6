"""`doctor fix`: plans, shows, applies."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from doctor.cli.fix_plans import ask, holding, kept, reached, ways_of, write_json
from doctor.cli.host_options import Ways, ssh_options
from doctor.cli.selection import catalogue, playbooks
from doctor.engine.errors import CommandError, UsageError
from doctor.fix import render_plan, render_progress, store
from doctor.fix.build_plan import Case, Planned, make, strayed
from doctor.fix.context import How
from doctor.fix.journal import Journal
from doctor.fix.plan import Plan
from doctor.fix.resolve_names import Unknown, wanted
from doctor.fix.rollout import apply
from doctor.report.layout.formatting import clean, count
from doctor.session.console import write
from doctor.session.policy import refuse_settings, settled

if TYPE_CHECKING:
    from doctor.cli.fix import Deed, Shown
    from doctor.engine.record import Run

WIDTH = 64


def fresh(how: How, run: Run | None, deed: Deed, ways: Ways, shown: Shown) -> int:
    """Plans, and applies if that is asked for. Returns the exit code. Raises: CommandError."""
    case = _case(how, ways)
    planned = _planned(case, run)
    place = kept(lambda: store.save(planned.plan, os.environ))
    if not (shown.as_json and deed.apply):
        _show(planned.plan, shown)
    if not deed.apply or not planned.plan.to_do:
        return planned.plan.code
    if not deed.yes:
        ask(f"Apply this to {count(len(planned.plan.to_do), 'host')}?")
        planned = _as_before(planned.plan, _planned(case, None))
    elif run is not None:
        planned = _as_before(planned.plan, _planned(case, None))
    return _apply(case, planned, place, deed, shown)


def saved(name: str, deed: Deed, ways: Ways, shown: Shown) -> int:
    """Shows a saved plan, or applies it. Returns the exit code. Raises: CommandError."""
    place = kept(lambda: store.find(name, os.environ))
    plan = kept(lambda: store.load(place))
    if not deed.apply:
        _show(plan, shown)
        return 0
    _refuse_applied(plan, Journal(place))
    if not plan.to_do:
        raise CommandError(f"{name} has nothing to apply", 10)
    if not deed.yes:
        _show(plan, shown)
        ask(f"Apply this to {count(len(plan.to_do), 'host')}?")
    ways = ways_of(plan.how, ways)
    case = _case(plan.how, ways)
    return _apply(case, _as_before(plan, _planned(case, None)), place, deed, shown)


def _case(how: How, ways: Ways) -> Case:
    """Raises: CommandError."""
    from doctor.environment.inventory import Inventory
    from doctor.session.examine import Options

    folders, config = [Path(one) for one in how.checks], Path(how.config) if how.config else None
    refuse_settings(config, folders)
    known = catalogue(folders)
    books = playbooks([Path(one) for one in how.playbooks], folders)
    try:
        checks = wanted(how.names, known, books)
    except Unknown as error:
        raise UsageError(str(error)) from None
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


def _planned(case: Case, run: Run | None) -> Planned:
    """Looks at the hosts. Raises: SystemExit, when that was interrupted."""
    if run is None:
        from doctor.report.layout.progress_line import Progress

        progress = Progress(len(case.inventory.hosts), sys.stderr)
        try:
            seen = case.examined(progress=progress.step)
        finally:
            progress.close()
        if seen.stopped is not None:
            raise seen.stopped
        run = seen.run
    with reached(case.how, case.options.transport, case.options.ssh) as transport:
        return make(case, run, transport)


def _as_before(plan: Plan, now: Planned) -> Planned:
    """The same plan, with what it takes to apply it. Raises: CommandError when a host has changed since."""
    astray = strayed(plan, now.plan)
    if astray:
        lines = [f"{clean(host, 100)}: {clean(why)}" for host, why in list(astray.items())[:8]]
        more = f"; {len(astray) - 8} more" if len(astray) > 8 else ""
        raise CommandError(
            f"no longer as planned: {'; '.join(lines)}{more}; nothing was changed, expected a new plan", 10
        )
    planned = {one.host for one in plan.to_do}
    return Planned(plan, now.run, {host: work for host, work in now.works.items() if host in planned})


def _apply(case: Case, planned: Planned, place: Path, deed: Deed, shown: Shown) -> int:
    with holding(place):
        return _applied(case, planned, Journal(place), deed, shown)


def _applied(case: Case, planned: Planned, journal: Journal, deed: Deed, shown: Shown) -> int:
    _refuse_applied(planned.plan, journal)
    kept(lambda: journal.began("apply"))

    def tell(one: Any) -> None:
        if not shown.as_json:
            write(render_progress.told(one))

    with reached(case.how, case.options.transport, case.options.ssh) as transport:
        result = apply(case, planned, transport, journal, deed.force, deed.batch, tell)
    # What the plan leaves alone is not mended by what it does.
    code = result.code or planned.plan.code
    journal.finished(code)
    if shown.as_json:
        write_json({"schema": "doctor.fixed/1", "code": code, **msgspec.to_builtins(result)})
    else:
        write(render_progress.result_text(result, planned.plan))
    return code


def _refuse_applied(plan: Plan, journal: Journal) -> None:
    """Raises: CommandError."""
    if journal.undos():
        raise CommandError(f"{plan.id} was applied already; expected a new plan, or doctor fix --undo {plan.id}", 10)


def _show(plan: Plan, shown: Shown) -> None:
    if shown.as_json:
        return write(msgspec.json.format(msgspec.json.encode(plan), indent=2).decode())
    from doctor.report.layout.terminal import choose

    return write(render_plan.plan_text(plan, choose(sys.stdout, shown.color, os.environ).colour, shown.verbose))
