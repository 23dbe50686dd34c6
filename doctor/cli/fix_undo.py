"""`doctor fix --undo` and ``--list``."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import cast

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
from doctor.cli.host_options import ConnectionOptions, ssh_options
from doctor.engine.language import english, localized, localized_filled, phrase
from doctor.engine.streams import write_stdout
from doctor.engine.texts import filled, joined
from doctor.fix import render_progress, store
from doctor.fix.documents import PlanRow, PlansDocument, UndoDocument
from doctor.fix.journal import Journal
from doctor.fix.plan import MAX_PARALLEL_HOSTS, FixPlan
from doctor.fix.rollout import SignalGuard
from doctor.fix.undo import Choice, JournalUndoer, UndoResult, group_by_host
from doctor.report.layout.formatting import count_noun, translated
from doctor.session.connection import connected
from doctor.transport.program import parallel_map


def undo(action: FixAction, connection: ConnectionOptions, display: DisplayOptions) -> int:
    """Undoes an applied plan. Returns the exit code: 10 when a step could not be undone. Raises: CommandError."""
    plan_folder = with_store_errors(lambda: store.find(action.undo, os.environ))
    plan = with_store_errors(lambda: store.load(plan_folder))
    require_answer(action.yes)
    with hold_plan_lock(plan_folder):
        return _undo_plan(plan, Journal(plan_folder), action, connection, display)


def _undo_plan(
    plan: FixPlan, journal: Journal, action: FixAction, connection: ConnectionOptions, display: DisplayOptions
) -> int:
    undos = group_by_host(journal.undo_steps())
    if not undos:
        return _report_undone([], 0, plan, display)
    if not action.yes:
        for host, steps in undos.items():
            write_stdout("\n".join(f"{host}: {translated(step.description)}" for step in reversed(steps)))
        confirm(phrase("Undo these steps on {hosts}?", hosts=count_noun(len(undos), "host")))
    undo_results: list[UndoResult] = []
    with suppress(OSError):  # a full disk here is no reason to leave hosts as they are
        journal.record_start("undo")
    connection = connection_of_plan(plan.context, connection)
    with (
        connected(inventory_of_plan(plan.context), connection.transport, ssh_options(connection)) as transport,
        SignalGuard() as signal_guard,
    ):
        undoing = JournalUndoer(transport, journal, cast("Choice", action.changed), signal_guard.event)
        for _, host_results in parallel_map(
            list(undos.items()), lambda item: undoing.undo_host(*item), MAX_PARALLEL_HOSTS, signal_guard.event
        ):
            undo_results += host_results
            if not display.as_json:
                write_stdout(render_progress.undo_text(host_results))
    done = {result.undo.number for result in undo_results if result.ok}
    remaining = sum(step.number not in done for steps in undos.values() for step in steps)
    code = _report_undone(undo_results, remaining, plan, display)
    code = signal_guard.code or code
    journal.record_finish(code)
    return code


def _report_undone(undo_results: list[UndoResult], remaining: int, plan: FixPlan, display: DisplayOptions) -> int:
    if display.as_json:
        write_json(UndoDocument.from_results(plan.id, undo_results))
    elif not undo_results:
        write_stdout(phrase("Nothing to undo: no step of {plan} is in effect.", plan=plan.id))
    elif remaining:
        again = f"doctor fix --undo {plan.id}"
        if any(result.versions for result in undo_results):
            write_stdout(
                phrase(
                    "Of what was changed since: {command} --changed merge takes back only what the fix changed in a "
                    "file, skip leaves it as it is now, overwrite restores the state before the fix.",
                    command=again,
                )
            )
        steps = count_noun(remaining, "step")
        write_stdout(phrase("NOT UNDONE: {steps} still in effect; repeat {command}", steps=steps, command=again))
    else:
        hosts = group_by_host([result.undo for result in undo_results])
        if not all(result.recorded for result in undo_results):
            write_stdout(
                localized("The journal could not be written: doctor fix --list still shows these steps as in effect.")
            )
        steps = count_noun(len(undo_results), "step")
        write_stdout(phrase("UNDONE: {steps} on {hosts}", steps=steps, hosts=count_noun(len(hosts), "host")))
    return 10 if remaining else 0


def list_plans(display: DisplayOptions) -> int:
    """Every saved plan, oldest first."""
    rows: list[PlanRow] = []
    for name in with_store_errors(lambda: store.all_ids(os.environ)):
        try:
            plan_folder = store.find(name, os.environ)
            plan = store.load(plan_folder)
        except store.PlanStoreError as error:
            rows.append(PlanRow(name, str(error)))
            continue
        count = len(plan.plans_to_apply)
        with english():
            state = _plan_state(Journal(plan_folder), count)
        rows.append(PlanRow(name, state, count, plan.source))
    if display.as_json:
        write_json(PlansDocument(plans=tuple(rows)))
    else:
        colon = localized(": ")
        lines = [f"{row.id}  {count_noun(row.hosts, 'host')}{colon}{localized_filled(row.state)}" for row in rows]
        write_stdout("\n".join(lines) or localized("No plan is saved."))
    return 0


def _plan_state(journal: Journal, hosts: int = 0) -> str:
    """``hosts``: how many the plan has."""
    entries = journal.entries()
    if not any(entry.kind == "step" for entry in entries):
        return "planned"
    in_force = len(journal.undo_steps())
    if not in_force:
        return "undone"
    steps = count_noun(in_force, "step")
    if hosts:
        touched = {entry.host for entry in entries if entry.kind == "step"}
        steps = joined(
            "",
            (steps, filled(" on {0} of {1}", len(touched), count_noun(hosts, "host")) if len(touched) < hosts else ""),
        )
    finished = [entry for entry in entries if entry.kind in ("began", "finished")][-1].kind == "finished"
    return (
        filled("applied, {0} in effect", steps) if finished else filled("interrupted, {0} in effect or started", steps)
    )
