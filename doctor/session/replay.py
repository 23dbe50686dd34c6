"""From the run of an examination, made now or saved before, to its report."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec

from doctor.engine.check import Check
from doctor.engine.evaluate import FactCache, Intent
from doctor.engine.fact import Absent, Unreadable
from doctor.engine.gc_pause import gc_paused
from doctor.engine.record import Run
from doctor.engine.result import Report
from doctor.engine.texts import filled
from doctor.engine.watch_summary import WatchResult
from doctor.facts.network_test import NetworkAnswer
from doctor.job import LaunchConfig, NotARankTable, RankTable, RankTableFile, read_rank_table
from doctor.session.contained import with_containers
from doctor.session.evaluation_time import EvaluationLimit, evaluate_in_time
from doctor.session.saved_run import has_network_test, watch_result
from doctor.session.watched_checks import for_watched


class Examination(msgspec.Struct, frozen=True):
    """A run and its report; ``stopped`` is the signal's exception when it was interrupted."""

    run: Run
    report: Report
    stopped: BaseException | None = None
    smoke_rejection: str = ""
    """Why the requested smoke run is impossible."""
    closing: threading.Thread | None = None
    """Ends the connections, where there is a time budget; the process should wait for it while it has the time."""


def replay(run: Run, checks: Sequence[Check], limit: EvaluationLimit = EvaluationLimit()) -> Report:
    """Evaluates a run, made now or saved before, with the intent that it was made with."""
    intent = job_intent(run)
    with gc_paused():
        report = evaluate_in_time(run, for_watched(checks) if run.watch else checks, intent, limit)
    report = with_containers(report, checks, FactCache(run.hosts))
    if has_network_test(run):
        from doctor.net.summary import summarise_test

        summary = summarise_test(FactCache(run.hosts).fleet(NetworkAnswer), report.hosts)
        report = msgspec.structs.replace(report, net=summary)
    watched = intent[WatchResult]
    if isinstance(watched, WatchResult) and watched.losses:
        report = msgspec.structs.replace(report, losses=watched.curves)
    return _with_smoke(report, run) if run.smoke else report


def _with_smoke(report: Report, run: Run) -> Report:
    from doctor.session.saved_parts import smoke_run
    from doctor.smoke.results.figures import summarise

    smoke = smoke_run(run.smoke)
    return (
        report
        if isinstance(smoke, Absent)
        else msgspec.structs.replace(report, smoke=summarise(smoke, FactCache(run.hosts)))
    )


def job_intent(run: Run) -> Intent:
    """What the job should be, by type, its smoke run and training. A value that is Absent holds the reason."""
    intent: dict[type, object] = {
        LaunchConfig: LaunchConfig.from_options(run.launch),
        WatchResult: watch_result(run.watch),
    }
    if run.smoke or run.training:
        from doctor.session.saved_parts import smoke_and_training

        intent |= smoke_and_training(run)
    if not run.rank_table:
        return {**intent, **dict.fromkeys((RankTableFile, RankTable), Absent("no rank table was given"))}
    file = RankTableFile(**msgspec.structs.asdict(run.rank_table))
    intent[RankTableFile] = file
    if file.error:
        intent[RankTable] = Unreadable(filled("{0}: {1}", file.path, file.error), "rank-table-not-json")
        return intent
    try:
        intent[RankTable] = read_rank_table(file.path, file.text)
    except NotARankTable as error:
        intent[RankTable] = error.for_checks
    return intent
