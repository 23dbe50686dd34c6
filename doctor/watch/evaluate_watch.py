"""From the run of a watched program to its report: now, or from a file that `--save` wrote."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.engine.check import Check
from doctor.engine.record import Run
from doctor.engine.result import Report
from doctor.engine.watch_summary import WatchResult
from doctor.session.replay import replay
from doctor.session.saved_parts import watch_result
from doctor.watch.data.data_report import DataReport
from doctor.watch.data_folder import saved_report
from doctor.watch.data_outcomes import with_data


def evaluate_watch(
    run: Run, selected: Sequence[Check], catalog: Sequence[Check], data: DataReport | None = None
) -> Report:
    """The report of the run, with ``selected`` of the checks in ``catalog``.

    ``data``: what the ranks' digests show; None reads it from the digests that the run has kept.
    """
    report = replay(run, selected)
    watched = watch_result(run.watch)
    if not isinstance(watched, WatchResult):
        return report
    if data is None and watched.digests:
        data = saved_report(watched.digests)
    return with_data(report, data, catalog, watched.hosts) if data else report
