"""Which earlier run a run is compared with: the last one that worked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from doctor.engine.exit_code import let_job_run
from doctor.report.diff.values import RunValues, ValueChange, compare_values

JOB_COMMANDS = frozenset(("diagnose", "watch"))
"""Commands whose verdict is that of a job."""


class EarlierRun(NamedTuple):
    """A kept run, the newest first; without values it only says whether a job worked."""

    command: str
    verdict: str
    hosts: frozenset[str]
    values: Callable[[], RunValues | None]
    code: int | None = None
    """Its exit code; None: it was not kept."""


class Baseline(NamedTuple):
    """The run that is compared with now."""

    values: RunValues
    changes: tuple[ValueChange, ...]
    worked: bool
    """Its exit code was good, and no job is known to have failed on its hosts before the next run."""
    same_since: str = ""
    """Start of the oldest newer run that is as now: the changes came between the two. Empty: there is none."""


def choose_baseline(runs: Iterable[EarlierRun], now: RunValues) -> Baseline | None:
    """The newest run that worked and from which something differs, else the newest that worked, else the newest.

    A run that equals now cannot explain what fails now: the change came before it. None where no run had these hosts.
    """
    first: Baseline | None = None
    same_since = ""
    for worked, values in _comparable(runs, now):
        changes = compare_values(values, now)
        if worked and changes:
            return Baseline(values, changes, True, same_since)
        if not changes:
            same_since = values.started
        if first is None or (worked and not first.worked):
            first = Baseline(values, changes, worked)
    return first


def _comparable(runs: Iterable[EarlierRun], now: RunValues) -> Iterator[tuple[bool, RunValues]]:
    """Each run with values of some of these hosts, newest first, and whether it worked."""
    hosts, job_failed = frozenset(now.hosts), False
    for run in runs:
        if not run.hosts & hosts:
            continue
        if run.command in JOB_COMMANDS:
            job_failed = job_failed or not let_job_run(run.verdict, run.code)
        values = run.values()
        if values is not None and values.hosts.keys() & now.hosts.keys():
            yield let_job_run(run.verdict, run.code) and not job_failed, values
            job_failed = False
