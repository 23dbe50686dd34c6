"""Runs the cells of a screening at the same time, each as a smoke run of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import msgspec

from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord
from doctor.engine.smoke_failures import FAILURE_KINDS
from doctor.engine.texts import filled
from doctor.smoke.model import SmokeResult, SmokeRun
from doctor.smoke.plan import SmokeOptions, planned_stages
from doctor.smoke.results.to_facts import describe_failure, fact_outputs
from doctor.smoke.results.trouble_findings import blamed_hosts
from doctor.smoke.triage.screening import Cell, CellResult, Screening

MOST_CELLS_AT_ONCE = 32
"""One controller watches so many runs beside each other; half as many after each round in which one did not end."""
MOST_WHOLE_RUNS = 4
"""Runs of all healthy hosts, each without those that the one before has named."""
SCREENING_BUDGETS = 4.0
"""Times the budget of a run; no round begins after that."""
SAYS_NOTHING = ("budget", "unobserved")
"""Kinds of failures that are held against no host."""

RunCells = Callable[[Sequence[Cell], SmokeOptions], Sequence[SmokeResult]]
"""Runs cells at the same time, and has the result of each."""


def screen(
    hosts: Sequence[str], options: SmokeOptions, run_cells: RunCells, on_round: Callable[[str, float], None]
) -> Screening:
    """Until every host ran with hosts of each part of the fleet, or is left out. ``on_round``: name and seconds.

    A cell has no layout of the user's, which is for the whole fleet, and neither soaks nor tests devices.
    """
    of_cells = msgspec.structs.replace(
        options, layouts=(), stages=planned_stages(), soak=0.0, device_seconds=0.0, native=False, baseline=None
    )
    screening = Screening(tuple(hosts), *([options.cell_size] if options.cell_size else []))
    began, most = time.monotonic(), MOST_CELLS_AT_ONCE
    while screening.seconds < SCREENING_BUDGETS * options.budget and (cells := screening.next_round()):
        batches = [cells[first : first + most] for first in range(0, len(cells), most)]
        noted = [cell_result(result.run) for batch in batches for result in run_cells(batch, of_cells)]
        for cell, result in zip(cells, noted, strict=True):
            screening.note(cell, result)
        if any(result.state == "unfinished" for result in noted):
            most = max(1, min(most, len(cells)) // 2)
        screening.seconds = time.monotonic() - began
        on_round(filled("screening {0}", screening.rounds), screening.seconds)
    screening.give_up()
    return screening


def run_together(cells: Sequence[Cell], run: Callable[[Cell], SmokeResult]) -> list[SmokeResult]:
    """The result of each cell. An interrupt is not held up by cells that still run: their agents end with this process.

    Raises: what running a cell raises.
    """
    ended: SimpleQueue[tuple[int, SmokeResult | BaseException]] = SimpleQueue()

    def run_one(number: int, cell: Cell) -> None:
        try:
            ended.put((number, run(cell)))
        except BaseException as error:  # noqa: BLE001 - raised below, where somebody waits for it
            ended.put((number, error))

    for number, cell in enumerate(cells):
        threading.Thread(target=run_one, args=(number, cell), daemon=True).start()
    results: dict[int, SmokeResult] = {}
    while len(results) < len(cells):
        number, result = ended.get()
        if isinstance(result, BaseException):
            raise result
        results[number] = result
    return [results[number] for number in range(len(cells))]


def cell_result(run: SmokeRun) -> CellResult:
    """What a run says of its hosts."""
    if run.ended == "complete":
        return CellResult("passed")
    failure = next(iter(run.failures), None)
    if failure is None or failure.kind in SAYS_NOTHING:
        return CellResult("unfinished")
    named = blamed_hosts(run, failure)
    every = len(named) == len(run.plan.ranks_by_host) > 1
    # Of a link both ends are named, and it is one of them or what lies between.
    sure = bool(failure.culprit_ranks) and not failure.links and "not known which" not in failure.text
    return CellResult(
        "failed",
        () if every and not sure else named,
        sure,
        FAILURE_KINDS[failure.kind].check,
        describe_failure(run, failure),
    )


def run_healthy(
    options: SmokeOptions, screening: Screening, run: Callable[[Cell, SmokeOptions], SmokeResult]
) -> SmokeResult:
    """The run of all healthy hosts; where it fails by some of them, that of the others."""
    result = run(screening.healthy, options_of_rest(options, screening))
    for _ in range(MOST_WHOLE_RUNS - 1):
        if result.stopped or not screening.leaves_out_more(cell_result(result.run)):
            break
        result = run(screening.healthy, options_of_rest(options, screening))
    return result


def options_of_rest(options: SmokeOptions, screening: Screening) -> SmokeOptions:
    """Of the run of all healthy hosts: layouts that were asked for are for the whole fleet."""
    return msgspec.structs.replace(options, layouts=()) if screening.left_out else options


def with_screening(result: SmokeResult, screening: Screening, options: SmokeOptions) -> SmokeResult:
    """The result of the healthy hosts' run, with those that the screening has left out. ``options``: of the user."""
    left_out = tuple(screening.left_out.values())
    notes = [*screening_notes(screening), *result.run.notes]
    if left_out and options.layouts:
        notes.insert(1, "the layouts of --layout are for all hosts: those that fit the remaining hosts ran")
    run = msgspec.structs.replace(result.run, left_out=left_out, notes=tuple(notes))
    records = {host.host: HostRecord(Visit(), fact_outputs(run, host.host, ())) for host in left_out}
    return msgspec.structs.replace(result, run=run, records={**result.records, **records})


def screening_notes(screening: Screening) -> tuple[str, ...]:
    """What was done, for the report."""
    counts = len(screening.hosts), screening.cells, screening.rounds, f"{screening.seconds:.0f}"
    text = filled("screened {0} hosts in {1} cells, {2} rounds, {3} s: {4} left out", *counts, len(screening.left_out))
    links = [
        filled("{0} and {1} fail together and pass apart: {2}", first, second, why)
        for (first, second), why in screening.links.items()
    ]
    if screening.abandoned:
        return (filled("the screening of {0} hosts was given up: {1}", len(screening.hosts), screening.abandoned),)
    undecided = [filled("not decided: {0}", ", ".join(sorted(screening.undecided)[:8]))] if screening.undecided else []
    return (text, *links[:8], *undecided)
