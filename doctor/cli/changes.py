"""`doctor changes`."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from doctor.analysis.outliers.own_past import compare_pace, pace_lines
from doctor.cli.history import parse_start
from doctor.cli.host_options import (
    SCOPES,
    ConnectionOptions,
    HostOptions,
    JobOptions,
    ScopeOption,
    VisitOptions,
    examine_options,
    validate_connection,
)
from doctor.cli.launch_source import SourceOptions, job_targets, launch_line
from doctor.cli.shared_options import (
    ChecksOption,
    ConfigOption,
    IgnoreOption,
    NoHistoryOption,
    SelectOption,
    expand_option_groups,
)
from doctor.diagnose.signature import load_signatures
from doctor.engine.check import Check
from doctor.engine.errors import InputError, UsageError, require_one_of
from doctor.engine.evaluate import FactCache
from doctor.engine.exit_code import Exit
from doctor.engine.sanitize import file_name, printable_excerpt
from doctor.engine.streams import write_stdout
from doctor.engine.texts import filled
from doctor.facts.settings import unread_reason
from doctor.history.baseline import Baseline, EarlierRun, choose_baseline
from doctor.history.kept_values import UnusableValues, decode_values
from doctor.history.paces import job_identity, last_runs
from doctor.history.run_record import RunRecord, recorded_names
from doctor.history.run_store import NoHistory, open_history
from doctor.report.diff.rank_changes import rank_changes
from doctor.report.diff.render_changes import ChangesPage, render, render_json
from doctor.report.diff.values import RunValues, compare_values, uncompared, values_of_run
from doctor.report.layout.progress_line import ProgressLine
from doctor.session.code_revision import code_of_line
from doctor.session.examine import examine
from doctor.session.finish import load_saved_run, save_run
from doctor.session.policy import apply_policy
from doctor.session.replay import Examination, replay
from doctor.session.run_history import HistoryOptions, machine_name, remember
from doctor.session.select_checks import choose_with_rounds, load_catalog

LAST_GOOD = "last-good"
SINCE_HELP = "A run of --save, a UTC time such as 2026-11-21T14:02, an age such as 2h or 7d, or last-good."


@expand_option_groups
def command(
    *,
    hosts: HostOptions,
    scope: ScopeOption = "auto",
    since: Annotated[str, typer.Option(metavar="RUN|TIME|last-good", help=SINCE_HELP)] = LAST_GOOD,
    select: SelectOption = [],  # noqa: B006 - typer's way
    ignore: IgnoreOption = [],  # noqa: B006
    checks: ChecksOption = [],  # noqa: B006
    job: JobOptions,
    source: SourceOptions,
    connection: ConnectionOptions,
    visit: VisitOptions,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Save the raw outputs, for --since and --from.")] = (
        None
    ),
    from_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Compare this saved run; visit no host.")
    ] = None,
    config: ConfigOption = None,
    no_history: NoHistoryOption = False,
) -> None:
    """Tell what has changed since the job last worked.

    Compares settings and versions of hosts and job: kernel, packages, drivers, firmware, mounts, limits, environment,
    Python packages, compiled libraries; with a launch line after -- also its words, its variables and its code. Hosts
    come from the same sources as in doctor check, whose checks run too: a change that one of their findings depends on
    comes first.

    Exit codes: 0 compared, 2 usage, 12 some host could not be read, 78 no earlier run to compare with, or unreadable.
    """
    validate_connection(connection)
    require_one_of("--scope", scope, SCOPES)
    catalog = load_catalog(checks)
    selected = choose_with_rounds(catalog, select, ignore)
    earlier_file = Path(since) if since != LAST_GOOD and ("/" in since or os.path.exists(since)) else None
    if from_file:
        run = load_saved_run(from_file)
        examination = Examination(run, replay(run, selected))
    else:
        examination = _visit(hosts, scope, selected, job, source, connection, visit)
    if save and not save_run(save, examination):
        raise typer.Exit(int(Exit.NOTHING))
    report = apply_policy(examination.report, config, catalog)
    now = _named(values_of_run(examination.run, report, examination.code, "changes"))
    baseline = _of_file(earlier_file, selected, now) if earlier_file else _of_history(since, now)
    if not (no_history or from_file):
        remember(report, catalog, HistoryOptions("changes", config), tells_ages=False, values=now)
    if not now.hosts:
        raise InputError("no host could be read: nothing is compared; doctor check says why")
    if baseline is None:
        raise InputError(
            "no earlier run of these hosts with their settings is saved; later runs are compared with this one"
        )
    unread = [host for host in examination.run.hosts if not _is_read(now, host)]
    messages = Counter(check for signature in load_signatures().values() for check in set(signature.checks))
    code = Exit.UNKNOWN if unread else Exit.HEALTHY
    before, now = (_as_asked(values, examination.run.hosts) for values in (baseline.values, now))
    page = ChangesPage(
        before=before,
        now=now,
        worked=baseline.worked,
        same_since=baseline.same_since,
        changes=rank_changes(compare_values(before, now), report, selected, messages),
        uncompared=uncompared(
            before, now, lambda host, names: unread_reason(host, names, FactCache(examination.run.hosts))
        ),
        notes=tuple(filled("not read: {0}", printable_excerpt(host, 100)) for host in unread),
        pace=() if from_file or no_history else _pace_of_job(now),
    )
    write_stdout(render_json(page, code) if as_json else render(page, code))
    raise typer.Exit(int(code))


def _pace_of_job(now: RunValues) -> tuple[str, ...]:
    """What the last watched run of the launch line, else of a job on these hosts, was slower by than those before."""
    words = launch_line()
    names = frozenset(recorded_names([*now.hosts], machine_name()).values())
    hosts = frozenset(name.partition(".")[0] for name in names)
    try:
        runs = last_runs(os.environ, job_identity(words) if words else "", hosts)
    except OSError:
        return ()
    return tuple(pace_lines(compare_pace(runs[-1], runs[:-1]))) if runs else ()


def _visit(
    hosts: HostOptions,
    scope: str,
    selected: list[Check],
    job: JobOptions,
    source: SourceOptions,
    connection: ConnectionOptions,
    visit: VisitOptions,
) -> Examination:
    """Reads the hosts, with a progress line. Raises: CommandError."""
    job_environment = source.read()
    inventory, launch, within = job_targets(job_environment, hosts, scope, job, connection)
    options = replace(
        examine_options(connection, visit, launch, within), reads_settings=True, code=code_of_line(job_environment.line)
    )
    environ, table = job_environment.environ, hosts.rank_table or ""
    with closing(ProgressLine(len(inventory.hosts), sys.stderr)) as progress:
        examination = examine(inventory, selected, options, environ, rank_table=table, progress=progress.step)
    if examination.stopped is not None:
        raise examination.stopped
    return examination


def _of_file(path: Path, selected: list[Check], now: RunValues) -> Baseline:
    run = load_saved_run(path, "--since")
    report = replay(run, selected)
    values = _named(values_of_run(run, report, None, "check"))
    if not values.hosts.keys() & now.hosts.keys():
        raise InputError(filled("--since {0}: none of its hosts is among these", file_name(path)))
    return Baseline(values, compare_values(values, now), False)


def _of_history(since: str, now: RunValues) -> Baseline | None:
    if since == LAST_GOOD:
        return choose_baseline(earlier_runs(os.environ), now)
    try:
        moment = parse_start(since, datetime.now(timezone.utc))
    except UsageError:
        raise UsageError(
            filled(
                "--since {0}: expected last-good, a file of --save, a time such as 30m, 2h or 7d, or 2026-11-21T14:02"
                " in UTC",
                f"{since!r}",
            )
        ) from None
    for run in earlier_runs(os.environ, until=moment):
        values = run.values()
        if values is not None and values.hosts.keys() & now.hosts.keys():
            return Baseline(values, compare_values(values, now), False)
    return None


def _named(values: RunValues) -> RunValues:
    """The hosts as records of the history name them."""
    names = recorded_names(values.hosts, machine_name())
    return replace(values, hosts={names[host]: by_fact for host, by_fact in values.hosts.items()})


def _as_asked(values: RunValues, hosts: Iterable[str]) -> RunValues:
    """The hosts as this run's report names them: this machine as ``localhost`` where it was asked for so."""
    names = {name: host for host, name in recorded_names(tuple(hosts), machine_name()).items()}
    return replace(values, hosts={names.get(host, host): by_fact for host, by_fact in values.hosts.items()})


def _is_read(now: RunValues, host: str) -> bool:
    return bool({host, recorded_names([host], machine_name())[host]} & now.hosts.keys())


MAX_RUNS = 500
"""Kept runs that are looked through."""


def earlier_runs(environ: Mapping[str, str], until: str = "") -> Iterator[EarlierRun]:
    """The kept runs, the newest first; ``until``: none that started later (UTC, ISO 8601). Raises: InputError."""
    try:
        with open_history(environ, create=False) as folder:
            for record in folder.newest(MAX_RUNS):
                if not until or record.started <= until:
                    yield _earlier(record)
    except NoHistory as error:
        if str(error):
            raise InputError(str(error)) from None
    except OSError as error:
        raise InputError(filled("the history cannot be read: {0}", error.strerror)) from None


def _earlier(record: RunRecord) -> EarlierRun:
    def values() -> RunValues | None:
        if not record.values:
            return None
        try:
            return decode_values(record.values, record.started, record.command, record.verdict)
        except UnusableValues:
            return None

    return EarlierRun(record.command, record.verdict, frozenset(record.names[: record.host_count]), values, record.code)
