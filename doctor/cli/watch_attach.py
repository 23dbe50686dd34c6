"""One run of `doctor watch --attach`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence

from doctor.cli.diagnose_source import collection_options
from doctor.cli.host_options import ConnectionOptions, VisitOptions, ssh_options
from doctor.cli.shared_options import OutputOptions
from doctor.cli.watch_options import AttachOptions, ChoiceOptions
from doctor.diagnose.fetch.ask_hosts import LogRequest
from doctor.diagnose.fetch.collect import collect_logs, glob_quoted
from doctor.diagnose.fetch.excerpt_reading import LOCAL
from doctor.diagnose.fetch.saved_logs import LogRecord
from doctor.diagnose.job.kinds import read_live_job
from doctor.diagnose.signature import load_signatures
from doctor.engine.errors import InputError, UsageError, require_one_of
from doctor.engine.record import Run
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled, joined
from doctor.environment.inventory import Inventory
from doctor.hosts.selection import HostSelection
from doctor.session.connection import connected
from doctor.session.finish import save_and_report, validate_output
from doctor.session.replay import Examination
from doctor.session.run_history import HistoryOptions
from doctor.session.select_checks import load_catalog
from doctor.session.select_hosts import select_inventory
from doctor.transport.options import workers
from doctor.watch.attach.ask_ranks import InspectRequest, ask_ranks
from doctor.watch.attach.attached_run import attached_run, main_job
from doctor.watch.attach.odd_ranks import JobFinding, find_odd
from doctor.watch.attach.rank_report import HostReport, Ids, unseen_notes, without_others
from doctor.watch.attach.recorded_causes import RecordedCause, recorded_causes
from doctor.watch.data_outcomes import evaluate_watch

LONGER = 5.0
"""Times the interval, where ranks stand still at their devices: a long step does so as well."""
MOST_SECONDS = 120.0
SIGNALS = ("USR1", "USR2", "QUIT", "TRAP", "ABRT")


def run_attach(
    options: AttachOptions,
    targets: Sequence[str],
    choice: ChoiceOptions,
    connection: ConnectionOptions,
    visit: VisitOptions,
    output: OutputOptions,
) -> int:
    """Raises: CommandError. Returns: the exit code."""
    validate_output(output)
    _validate(options, output)
    inventory, variables = _inventory(options, targets, connection)

    def look(interval: float) -> tuple[dict[str, HostReport], dict[str, str], list[JobFinding], list[RecordedCause]]:
        reports, failed = _answers(options, inventory, connection, visit, interval)
        reports = {host: without_others(report, variables) for host, report in reports.items()}
        jobs = find_odd(reports, partly=bool(options.pid))
        return reports, failed, jobs, _recorded(reports, jobs, inventory, connection, visit)

    began = time.monotonic()
    reports, failed, jobs, recorded = look(options.interval)
    if failed and not reports:
        more = filled(" ({0})", count_noun(len(failed), "host")) if len(failed) > 1 else ""
        raise InputError(joined("", (filled("{0}: {1}", *next(iter(failed.items()))), more)))
    if any(job.may_be_slow for job in jobs) and not any(cause.is_sure for cause in recorded):
        reports, failed, jobs, recorded = look(min(options.interval * LONGER, MOST_SECONDS))
    absent = [str(pid) for report in reports.values() for pid in report.not_found]
    notes = (
        [filled("no process has pid {0}, or it starts ranks on other hosts alone", ", ".join(absent))] if absent else []
    )
    notes += unseen_notes(reports)
    seconds = time.monotonic() - began
    run, checks = attached_run(jobs, failed, recorded, inventory.source, seconds, notes)
    return _report(run, checks, choice, output)


def _recorded(
    reports: Mapping[str, HostReport],
    jobs: Sequence[JobFinding],
    inventory: Inventory,
    connection: ConnectionOptions,
    visit: VisitOptions,
) -> list[RecordedCause]:
    """What the recorders of the job that is reported show."""
    if not jobs:
        return []

    def read_on_hosts(paths: Sequence[str]) -> LogRecord:
        collection = collection_options(connection, visit, LogRequest(tuple(map(glob_quoted, paths))))
        return collect_logs(inventory, collection, load_signatures())

    return recorded_causes(
        reports, main_job(jobs), None if inventory.local and not connection.within else read_on_hosts
    )


def _validate(options: AttachOptions, output: OutputOptions) -> None:
    if output.from_file:
        raise UsageError("--from reads a saved run; expected doctor report FILE")
    require_one_of("--stack-signal", options.stack_signal, ("", *SIGNALS))
    if options.py_spy not in ("", "off") and not options.py_spy.startswith("/"):
        raise UsageError(filled("--py-spy {0}: expected an absolute path, or off", f"{options.py_spy!r}"))


def _inventory(options: AttachOptions, targets: Sequence[str], connection: ConnectionOptions) -> tuple[Inventory, Ids]:
    if len(targets) > 1:
        raise UsageError(filled("{0}: expected one list of hosts, such as node[01-16],gpu7", f"{targets[1]!r}"))
    if len([True for option in (targets, options.pid, options.job) if option]) > 1:
        raise UsageError("HOSTS, --pid and --job: expected one of them")
    if connection.transport == "kubernetes":
        named = HostSelection(nodes=targets[0] if targets else None)
        return select_inventory(connection.select(named, options.job)), {}
    if options.job:
        job = read_live_job(options.job)
        return Inventory(tuple(job.hosts), job.title), job.variables
    if targets:
        return select_inventory(HostSelection(None, None, None, None, targets[0])), {}
    return Inventory((LOCAL,), "this host", local=True), {}


def _answers(
    options: AttachOptions, inventory: Inventory, connection: ConnectionOptions, visit: VisitOptions, interval: float
) -> tuple[dict[str, HostReport], dict[str, str]]:
    """What the hosts say, looked at for ``interval`` seconds, and why others say nothing."""
    request = InspectRequest(
        pids=tuple(options.pid),
        interval=interval,
        stacks=options.py_spy != "off",
        py_spy=options.py_spy if options.py_spy != "off" else "",
        signal=options.stack_signal,
        within=tuple(shlex.split(connection.within)),
        sudo=visit.sudo,
    )
    with connected(inventory, connection.transport, ssh_options(connection)) as transport:
        count = visit.workers or workers(len(inventory.hosts))
        answers = ask_ranks(inventory.hosts, transport, request, visit.timeout, count)
    reports = {host: answer for host, answer in answers.items() if not isinstance(answer, str)}
    return reports, {host: answer for host, answer in answers.items() if isinstance(answer, str)}


def _report(run: Run, checks: Sequence[str], choice: ChoiceOptions, output: OutputOptions) -> int:
    """The report of the checks that the options leave. Returns: the exit code. Raises: InputError."""
    catalog = load_catalog([])
    chosen_checks = choice.chosen(catalog)
    selected = [check for check in chosen_checks if check.name in checks]
    if not selected:
        raise InputError(
            filled("--select and --ignore leave none of the checks that were made: {0}", ", ".join(checks))
        )
    examination = Examination(run, evaluate_watch(run, selected, chosen_checks))
    return save_and_report(
        examination, catalog, output, history=HistoryOptions("attach", output.config), command="watch"
    )
