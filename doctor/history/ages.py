"""How long each finding of a report is there, by the runs before it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from doctor.engine.report_parts import AgeKey, FindingAge
from doctor.engine.result import Report
from doctor.history.run_record import FLEET, LOCAL, RunView, recorded_names

MAX_RUNS = 20
"""Earlier runs that are asked."""


def ages(report: Report, earlier: Sequence[RunView], machine: str = LOCAL) -> Mapping[AgeKey, FindingAge]:
    """The age of each finding, by check and host; none for one that earlier runs say nothing certain of.

    ``earlier``: the runs before this one, newest first. A finding is new only where the last run that had its check
    and its host looked, and found nothing. ``machine``: the name of this machine, which a report may call localhost.
    """
    recorded = recorded_names(report.hosts, machine)
    fleet = frozenset(recorded.values())
    keys = {
        (outcome.check, host)
        for outcome in report.outcomes
        for finding in outcome.findings
        for host in finding.hosts or (FLEET,)
    }
    ages_by_key = {key: _age(key[0], recorded.get(key[1], key[1]), fleet, earlier) for key in sorted(keys)}
    return {key: age for key, age in ages_by_key.items() if age is not None}


def _age(check: str, host: str, fleet: frozenset[str], earlier: Sequence[RunView]) -> FindingAge | None:
    comparable = [run for run in earlier if run.is_comparable(check, host, fleet)]
    if not comparable or comparable[0].state(check, host) is None:
        return None
    states = [(run.record.started, state) for run in comparable if (state := run.state(check, host))]
    present = [state != "clear" for _, state in states]
    streak = present.index(False) if False in present else len(present)
    before = present[streak:]
    times = 1 + sum(present and not later for later, present in pairwise(before))
    if not streak:
        return FindingAge("new", states[0][0], times=times)
    return FindingAge("present", states[streak - 1][0], streak + 1, not before, times)
