"""`doctor rehearse`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec.structs import replace

from doctor.cli.host_options import require_finite
from doctor.cli.launch_source import launch_line
from doctor.engine.errors import UsageError
from doctor.engine.exit_code import Exit
from doctor.engine.fact import Visit
from doctor.engine.record import SCHEMA, HostRecord, LaunchOptions, OptionProblem, Run
from doctor.engine.result import Severity
from doctor.engine.streams import write_stdout
from doctor.environment.job_environment import of_launch_line
from doctor.environment.script_trials import before_line
from doctor.job import LaunchConfig
from doctor.job.variables import of_one_host
from doctor.session.replay import replay
from doctor.session.select_checks import load_catalog, of_launch_alone
from doctor.watch.rehearsal.conduct import RehearsalResult, rehearse
from doctor.watch.rehearsal.judge import judge
from doctor.watch.rehearsal.rehearsal_page import CheckFinding, RehearsalPage, render, render_json

SECONDS = 30.0
MAX_SECONDS = 300.0
"""A launcher that loads its framework from a slow file system takes longer than most."""
OF_RANKS = frozenset(("launch-differs", "rank-numbers-wrong"))
"""Checks of hosts' environments: here each rank's own is judged."""


def command(
    seconds: Annotated[
        float,
        typer.Option("--for", metavar="S", min=1, max=MAX_SECONDS, callback=require_finite, help="Time for all ranks."),
    ] = SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every rank.")] = False,
) -> None:
    """Run the launch line with a stub; tell what each rank got.

    `doctor rehearse -- torchrun --nproc-per-node 8 train.py` starts the launcher as it stands; each rank writes its
    environment, device, CPUs, NUMA node and rank, and ends. The program itself never starts. Of a shell script the
    launch line alone is run.

    Exit codes: 0 all ranks seen and nothing is wrong, 2 usage, 10 something is wrong, 12 not all ranks were seen, 78
    the line cannot be rehearsed.
    """
    argv = launch_line()
    if not argv:
        raise UsageError("expected a launch line after --, such as doctor rehearse -- torchrun train.py")
    result = rehearse(argv, os.environ, seconds)
    ends = tuple((line, before_line(line, script, walked)) for line, script, walked in result.line.written)
    is_open = any(problem and problem.kind == "waits" for _, problem in ends)
    checks, judged = _evaluate(result, [problem for line, end in ends for problem in (*line.problems, end) if problem])
    misfits = tuple(dict.fromkeys(misfit for run in (result.views, *result.later) for misfit in judge(run)))
    expected = max((view.size for view in result.views if view.size is not None), default=result.line.line.world_size)
    present = {view.rank for view in result.views}
    is_alone = len(result.views) == 1 and expected == 1  # a plain program, which no launcher gives a number
    by_number = not is_alone and not any(view.is_numbered_later for view in result.views)
    missing_ranks = tuple(rank for rank in range(expected or 0) if rank not in present) if by_number else ()
    too_few = not by_number and len(result.views) < (expected or 0)
    page = RehearsalPage(
        result=result, expected=expected, missing_ranks=missing_ranks, misfits=misfits, checks=checks, judged=judged
    )
    wrong = "error" in {*(finding.severity for finding in checks), *(finding.severity for finding in misfits)}
    unseen = is_open or missing_ranks or too_few or not result.views or result.unread or not result.is_over
    code = Exit.FAILED if wrong else Exit.UNKNOWN if unseen else Exit.HEALTHY
    write_stdout(render_json(page, code) if as_json else render(page, code, verbose))
    raise typer.Exit(int(code))


def _evaluate(result: RehearsalResult, of_scripts: Sequence[OptionProblem]) -> tuple[tuple[CheckFinding, ...], int]:
    """The checks that need nothing of a host, on what the ranks of each host got alike."""
    by_host: dict[str, dict[str, str]] = {}
    for view in result.views:
        alike = by_host.setdefault(view.host, of_one_host(view.variables))
        by_host[view.host] = {name: value for name, value in alike.items() if view.variables.get(name) == value}
    catalog = load_catalog([])
    names = {*of_launch_alone(catalog, [LaunchConfig])} - OF_RANKS
    source = of_launch_line(result.line.argv, result.line.environ)
    if source.line:
        problems = dict.fromkeys((*source.line.problems, *of_scripts))
        source = replace(source, line=replace(source.line, problems=tuple(problems)))
    launch = _with_ranks(source.complete(LaunchOptions()), by_host)
    hosts = {host: HostRecord(Visit()) for host in by_host or [""]}
    report = replay(Run(SCHEMA, "", "", 0.0, hosts, launch=launch), [check for check in catalog if check.name in names])
    findings = tuple(
        CheckFinding(
            outcome.check, "error" if outcome.severity_of(finding) is Severity.ERROR else "warning", str(finding)
        )
        for outcome in report.outcomes
        for finding in outcome.findings
    )
    return findings, len(report.outcomes)


def _with_ranks(launch: LaunchOptions, by_host: dict[str, dict[str, str]]) -> LaunchOptions:
    return replace(launch, environ={**launch.environ, **next(iter(by_host.values()), {})}, by_host=by_host)
