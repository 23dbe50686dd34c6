"""`doctor fix`: plans, shows, applies."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from doctor.cli.fix_plans import (
    DisplayOptions,
    FixAction,
    confirm,
    connection_of_plan,
    hold_plan_lock,
    inventory_of_plan,
    require_answer,
    with_store_errors,
    write_json,
)
from doctor.cli.host_options import ConnectionOptions, VisitOptions, examine_options
from doctor.engine.errors import CommandError, InputError, UsageError
from doctor.engine.language import phrase
from doctor.engine.record import Run
from doctor.engine.streams import write_stdout
from doctor.engine.texts import filled, joined
from doctor.fix import render_plan, render_progress, store
from doctor.fix.build_plan import FixContext, PlannedFix, changed_hosts, make_plan
from doctor.fix.documents import FixedDocument
from doctor.fix.journal import Journal
from doctor.fix.plan import FixPlan, PlanContext
from doctor.fix.rollout import apply
from doctor.fix.select import UnknownName, checks_to_run
from doctor.hosts.nodeset import InventoryError, canonical_host, expand_nodeset
from doctor.report.layout.formatting import clean, count_noun
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.progress_line import ProgressLine
from doctor.report.layout.terminal import detect_terminal, terminal_columns
from doctor.session.connection import connected
from doctor.session.policy import apply_policy, validate_settings
from doctor.session.select_checks import load_catalog, load_playbook_catalog


def plan_and_apply(
    context: PlanContext, run: Run | None, action: FixAction, connection: ConnectionOptions, display: DisplayOptions
) -> int:
    """Makes a plan and, with --apply, applies it. Returns the exit code. Raises: CommandError."""
    fix_context = _make_fix_context(context, connection)
    if action.apply:
        require_answer(action.yes)
    planned = _make_plan(fix_context, run)
    plan_folder = with_store_errors(lambda: store.save(planned.plan, os.environ))
    if not (display.as_json and action.apply):
        _show_plan(planned.plan, display)
    if not action.apply or not planned.plan.plans_to_apply:
        return planned.plan.code
    if not action.yes:
        confirm(phrase("Apply this to {hosts}?", hosts=count_noun(len(planned.plan.plans_to_apply), "host")))
        planned = _require_unchanged(planned.plan, _make_plan(fix_context, None))
    elif run is not None:
        planned = _require_unchanged(planned.plan, _make_plan(fix_context, None))
    return _apply_locked(fix_context, planned, plan_folder, action, display)


class SavedPlan(NamedTuple):
    """A plan by its id, and the hosts that are left out of it now, as a node set."""

    name: str
    exclude: str | None = None


def show_or_apply_saved(
    saved: SavedPlan, action: FixAction, connection: ConnectionOptions, display: DisplayOptions
) -> int:
    """Shows a saved plan, or applies it. Returns the exit code. Raises: CommandError."""
    plan_folder = with_store_errors(lambda: store.find(saved.name, os.environ))
    plan = with_store_errors(lambda: store.load(plan_folder))
    if not action.apply:
        if saved.exclude is not None:
            raise UsageError("--exclude is for --apply; a saved plan is shown as it is")
        _show_plan(plan, display)
        return 0
    plan, excluded = _without(plan, saved.exclude)
    require_answer(action.yes)
    _require_not_applied(plan, Journal(plan_folder))
    if not plan.plans_to_apply:
        rest = " on the hosts that are left" if excluded else ""
        raise CommandError(filled("{0} has no step to apply{1}", saved.name, rest), 10)
    if not action.yes:
        _show_plan(plan, display)
        confirm(phrase("Apply this to {hosts}?", hosts=count_noun(len(plan.plans_to_apply), "host")))
    connection = connection_of_plan(plan.context, connection)
    fix_context = _make_fix_context(plan.context, connection)
    planned = _require_unchanged(plan, _make_plan(fix_context, None))
    return _apply_locked(fix_context, planned, plan_folder, action, display, excluded)


def _without(plan: FixPlan, exclude: str | None) -> tuple[FixPlan, tuple[str, ...]]:
    """A plan without some of its hosts, and which these are. Raises: CommandError for one that it does not have."""
    if exclude is None:
        return plan, ()
    try:
        excluded = {canonical_host(host) for host in expand_nodeset(exclude, "--exclude", groups=True)}
    except InventoryError as error:
        raise InputError(str(error)) from None
    unknown = sorted(excluded - set(map(canonical_host, plan.hosts)))
    if unknown:
        raise UsageError(
            filled("--exclude {0}: {1} is no host of {2}", f"{clean(exclude, 100)!r}", clean(unknown[0], 100), plan.id)
        )
    remaining_plans = tuple(
        host_plan for host_plan in plan.host_plans if canonical_host(host_plan.host) not in excluded
    )
    omitted = tuple(host_plan.host for host_plan in plan.plans_to_apply if canonical_host(host_plan.host) in excluded)
    return msgspec.structs.replace(plan, host_plans=remaining_plans), omitted


def _make_fix_context(context: PlanContext, connection: ConnectionOptions) -> FixContext:
    """Raises: CommandError."""
    folders, config = [Path(folder) for folder in context.checks], Path(context.config) if context.config else None
    validate_settings(config, folders)
    catalog = load_catalog(folders)
    available_playbooks = load_playbook_catalog([Path(folder) for folder in context.playbooks], folders)
    try:
        checks = checks_to_run(context.names, catalog, available_playbooks)
    except UnknownName as error:
        raise UsageError(str(error)) from None
    visit = VisitOptions(context.sudo, context.timeout)
    options = examine_options(connection, visit, context.launch, connection.within)
    return FixContext(
        inventory_of_plan(context),
        tuple(checks),
        tuple(available_playbooks),
        options,
        context,
        lambda report: apply_policy(report, config, catalog),
        tuple(checks_to_run((), catalog, available_playbooks)),
    )


def _make_plan(fix_context: FixContext, run: Run | None) -> PlannedFix:
    """Checks the hosts and plans. Raises: SystemExit, when interrupted."""
    if run is None:
        with closing(ProgressLine(len(fix_context.inventory.hosts), sys.stderr)) as progress:
            examination = fix_context.examine_hosts(progress=progress.step)
        if examination.stopped is not None:
            raise examination.stopped
        run = examination.run
    with connected(fix_context.inventory, fix_context.options.transport, fix_context.options.ssh) as transport:
        return make_plan(fix_context, run, transport)


def _require_unchanged(plan: FixPlan, now: PlannedFix) -> PlannedFix:
    """The same plan, with the data to apply it. Raises: CommandError when a host has changed since."""
    differences = changed_hosts(plan, now)
    if differences:
        lines = [filled("{0}: {1}", clean(host, 100), clean(why)) for host, why in list(differences.items())[:8]]
        more = filled("; {0} more", len(differences) - 8) if len(differences) > 8 else ""
        some = len(differences) < len(plan.plans_to_apply)
        option = (
            filled(", or --exclude {0} for the other hosts", Fleet(plan.hosts).fold(list(differences))) if some else ""
        )
        raise CommandError(
            filled(
                "hosts changed since the plan: {0}{1}; nothing was applied, expected a new plan{2}",
                joined("; ", lines),
                more,
                option,
            ),
            10,
        )
    planned = {host_plan.host for host_plan in plan.plans_to_apply}
    return PlannedFix(plan, now.run, {host: work for host, work in now.work_by_host.items() if host in planned})


def _apply_locked(
    fix_context: FixContext,
    planned: PlannedFix,
    plan_folder: Path,
    action: FixAction,
    display: DisplayOptions,
    excluded: tuple[str, ...] = (),
) -> int:
    with hold_plan_lock(plan_folder):
        return _apply_plan(fix_context, planned, Journal(plan_folder), action, display, excluded)


def _apply_plan(
    fix_context: FixContext,
    planned: PlannedFix,
    journal: Journal,
    action: FixAction,
    display: DisplayOptions,
    excluded: tuple[str, ...],
) -> int:
    _require_not_applied(planned.plan, journal)
    with_store_errors(lambda: journal.record_start("apply"))

    def print_progress(update: Any) -> None:
        if not display.as_json:
            write_stdout(render_progress.progress_text(update))

    with connected(fix_context.inventory, fix_context.options.transport, fix_context.options.ssh) as transport:
        result = apply(fix_context, planned, transport, journal, action.force, action.batch, print_progress)
    result = msgspec.structs.replace(result, excluded_hosts=excluded)
    # What the plan leaves alone is not mended by what it does.
    code = result.code or planned.plan.code
    journal.record_finish(code)
    if display.as_json:
        write_json(FixedDocument.from_result(result, code))
    else:
        write_stdout(render_progress.result_text(result, planned.plan))
    return code


def _require_not_applied(plan: FixPlan, journal: Journal) -> None:
    """Raises: CommandError."""
    if journal.undo_steps():
        raise CommandError(
            filled("{0} was applied already; expected a new plan, or doctor fix --undo {1}", plan.id, plan.id), 10
        )


def _show_plan(plan: FixPlan, display: DisplayOptions) -> None:
    if display.as_json:
        return write_stdout(msgspec.json.format(msgspec.json.encode(plan), indent=2).decode())

    terminal = detect_terminal(sys.stdout, display.color, os.environ)
    width = terminal_columns()
    return write_stdout(render_plan.plan_text(plan, terminal.colour, display.verbose, width))
