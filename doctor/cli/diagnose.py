"""`doctor diagnose`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from doctor.cli.diagnose_source import LogSelection, LogSource
from doctor.cli.host_options import (
    ConnectionOptions,
    ExcludeOption,
    HostfileOption,
    RankTableOption,
    VisitOptions,
    validate_connection,
    with_job_of_pods,
)
from doctor.cli.shared_options import (
    FORMATS_HELP,
    ConfigOption,
    DebugOption,
    NoHistoryOption,
    NotifyOption,
    OutputOptions,
    expand_option_groups,
    history_options,
)
from doctor.config.file import require_trusted_folder
from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.render.diagnosis_report import diagnosis_report, waived_causes
from doctor.diagnose.render.document import SignatureCatalog, document
from doctor.diagnose.render.log_values import all_hosts
from doctor.diagnose.render.views import DiagnosisViews
from doctor.diagnose.signature import SignatureError, load_signatures
from doctor.engine.errors import InputError
from doctor.engine.grouping import lists_by_key
from doctor.engine.language import english
from doctor.engine.result import Report
from doctor.engine.texts import filled
from doctor.engine.utc_time import utc_text
from doctor.remedy.catalog import load_playbooks
from doctor.session.finish import report_exit_code, validate_output, write_report
from doctor.session.policy import apply_policy
from doctor.session.redact import text_redactor
from doctor.session.run_history import HistoryOptions, remember
from doctor.session.select_checks import load_catalog


@expand_option_groups
def command(
    *,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="[PATH...|HOSTS]", help="Log files, folders, patterns or archives, -: stdin; or hosts."),
    ] = [],  # noqa: B006 - typer's way
    logs: Annotated[
        list[str], typer.Option("--logs", metavar="PLACE", help="Files, folders or patterns on HOSTS; repeatable.")
    ] = [],  # noqa: B006
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="On HOSTS: only files written since 30m, 2h, 1d; or all.")
    ] = "",
    job: Annotated[
        str,
        typer.Option(
            "--job", metavar="KIND:ID", help="Of slurm:ID, ray:ADDRESS/ID, k8s:NAMESPACE/NAME, modelarts:FOLDER."
        ),
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Then run the checks of each cause on the hosts that it names.")
    ] = False,
    hosts: Annotated[
        str | None, typer.Option("--hosts", metavar="NODES", help="The job's hosts, for --check and --logs.")
    ] = None,
    hostfile: HostfileOption = None,
    rank_table: RankTableOption = None,
    exclude: ExcludeOption = None,
    log_limit: Annotated[
        int, typer.Option("--log-limit", metavar="MIB", min=1, max=64, help="Most MiB of lines from one host.")
    ] = 16,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Save the lines that hosts sent, for --from.")
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Diagnose saved lines again.")
    ] = None,
    signatures: Annotated[
        list[Path], typer.Option("--signatures", metavar="DIR", help="Also use the signatures in DIR; repeatable.")
    ] = [],  # noqa: B006
    connection: ConnectionOptions,
    visit: VisitOptions,
    formats: Annotated[list[str], typer.Option("--format", "-f", metavar="FORMAT[=FILE]", help=FORMATS_HELP)] = [],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, as -f json.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Write only the -f output to stdout.")] = False,
    redact: Annotated[bool, typer.Option("--redact", help="Replace hosts, addresses and users by pseudonyms.")] = False,
    config: ConfigOption = None,
    no_history: NoHistoryOption = False,
    color: Annotated[str, typer.Option(metavar="auto|always|never", help="Colour.")] = "auto",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show all causes, files and waiting ranks.")] = False,
    notify: NotifyOption = [],  # noqa: B006
    debug: DebugOption = False,
) -> None:
    """Name the rank and the cause from the logs of a job that failed.

    Reads the logs of all ranks at once: CANN plog, MindSpore, torch and torchrun, NCCL, gloo, Slurm, mpirun, the
    kernel log, Python tracebacks; also .gz, .bz2, .xz, .zst, .tar and .zip. The more ranks' logs, the surer the
    verdict.

    `doctor diagnose 'node[01-64]' --logs '~/ascend/log' --since 2h` reads them on the hosts; only the lines that
    matter are sent. Without --logs, it looks where CANN, msrun and torchrun write by default.

    Exit codes: 10 a cause was found; 12 the logs do not show the cause; 0 the run ended well; 78 nothing to read; 130
    interrupted.
    """
    output = OutputOptions(
        as_json, formats, quiet, redact, save, config=config, color=color, verbose=verbose, debug=debug, notify=notify
    )

    began = time.monotonic()
    validate_output(output)
    connection, job = with_job_of_pods(connection, job)
    validate_connection(connection)

    for folder in signatures:
        require_trusted_folder("--signatures", folder, ".toml")
    try:
        catalog = load_signatures(signatures)
    except SignatureError as error:
        raise InputError(str(error)) from None

    selection = LogSelection(
        paths, logs, since, job, from_file, hosts, hostfile, rank_table, exclude, connection.transport == "kubernetes"
    )
    selection.validate(check, save)
    source = LogSource(selection, catalog, connection, visit, log_limit << 20, check)
    diagnosis = source.diagnosis(save)
    if check:
        diagnosis = source.checked(diagnosis)

    catalogue = SignatureCatalog(catalog, _playbooks_by_check())
    history, until = history_options("diagnose", output, no_history), began + visit.budget if visit.budget else 0.0
    raise typer.Exit(_report(diagnosis, catalogue, source.hosts, (began, until), output, history))


def _report(
    diagnosis: Diagnosis,
    catalogue: SignatureCatalog,
    hosts: set[str],
    times: tuple[float, float],
    output: OutputOptions,
    history: HistoryOptions | None,
) -> int:
    """Applies waivers, keeps the run, and puts it out. Returns: the exit code.

    ``hosts``: all that were asked. ``times``: by the monotonic clock, when it began, and until when it may report.
    """
    checks = load_catalog(())
    now = utc_text()
    with english():
        report = diagnosis_report(document(diagnosis, catalogue, 0), now, time.monotonic() - times[0])
    judged = apply_policy(report, output.config, checks, {**os.environ, "DOCTOR_SKIP": ""})
    diagnosis = _with_notes(diagnosis, judged, len(report.notes))
    code = report_exit_code(judged, output)
    if history is not None:
        judged = remember(judged, checks, msgspec.structs.replace(history, code=int(code)))
    names = hosts | all_hosts(diagnosis)
    redact = text_redactor(names) if output.redact else str
    views = DiagnosisViews(diagnosis, catalogue, redact, waived_causes(judged), times[1]).by_format()
    return write_report(judged, checks, code, output, aliases=tuple(names), views=views, command="diagnose")


def _with_notes(diagnosis: Diagnosis, judged: Report, noted: int) -> Diagnosis:
    """With what the waivers say: of the first ``noted`` notes, the diagnosis has its own."""
    waived = [
        filled("{0}: waived until {1}: {2}", outcome.check, item.until, item.reason)
        for outcome in judged.outcomes
        for item in outcome.waived
    ]
    return msgspec.structs.replace(diagnosis, notes=(*diagnosis.notes, *judged.notes[noted:], *waived))


def _playbooks_by_check() -> dict[str, tuple[str, ...]]:
    names = lists_by_key((check, playbook.name) for playbook in load_playbooks() for check in playbook.treats)
    return {check: tuple(playbooks) for check, playbooks in names.items()}
