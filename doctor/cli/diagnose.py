"""`doctor diagnose`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doctor.cli.host_options import (
    ConnectionOptions,
    ExcludeOption,
    HostfileOption,
    RankTableOption,
    VisitOptions,
    validate_connection,
)
from doctor.cli.shared_options import expand_option_groups
from doctor.config.trusted import require_trusted_folder
from doctor.engine.errors import InputError, UsageError, require_one_of
from doctor.engine.secrets import hide_secrets

if TYPE_CHECKING:
    from doctor.diagnose.cause import Diagnosis
    from doctor.diagnose.signature import Signature

FORMATS = ("human", "plain", "json", "jsonl", "md", "html")


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
    job: Annotated[str, typer.Option("--job", metavar="slurm:ID", help="The output files and hosts of this job.")] = "",
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
    output_format: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT[=FILE]", help=f"To stdout or FILE: {', '.join(FORMATS)}.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, as -f json.")] = False,
    redact: Annotated[bool, typer.Option("--redact", help="Replace hosts, addresses and users by pseudonyms.")] = False,
    color: Annotated[str, typer.Option(metavar="auto|always|never", help="Colour.")] = "auto",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show all causes, files and waiting ranks.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")] = False,
) -> None:
    """Name the rank and the cause from the logs of a job that failed.

    Reads the logs of all ranks at once: CANN plog, MindSpore, torch and torchrun, NCCL, gloo, Slurm, mpirun, the
    kernel log, Python tracebacks; also .gz, .bz2, .xz, .tar and .zip. The more ranks' logs, the surer the verdict.

    `doctor diagnose 'node[01-64]' --logs '~/ascend/log' --since 2h` reads them on the hosts; only the lines that
    matter are sent. Without --logs, it looks where CANN, msrun and torchrun write by default.

    Exit codes: 10 a cause was found; 12 the logs do not show the cause; 0 the run ended well; 78 nothing to read; 130
    interrupted.
    """
    name, path = _target(output_format)
    require_one_of("--color", color, ("auto", "always", "never"))
    validate_connection(connection)
    from doctor.diagnose.run import exit_code
    from doctor.diagnose.signature import SignatureError, load_signatures

    for folder in signatures:
        require_trusted_folder("--signatures", folder, ".toml")
    try:
        catalog = load_signatures(signatures)
    except SignatureError as error:
        raise InputError(str(error)) from None
    from doctor.cli.diagnose_source import LogSelection, LogSource

    selection = LogSelection(paths, logs, since, job, from_file, hosts, hostfile, rank_table, exclude)
    selection.validate(check, save)
    if save:
        from doctor.session.named_files import require_writable

        require_writable("--save", str(save))
    source = LogSource(selection, catalog, connection, visit, log_limit << 20)
    diagnosis = source.diagnosis(save)
    if check:
        diagnosis = source.checked(diagnosis)
    code = exit_code(diagnosis)
    redact_text: Callable[[str], str] = str
    if redact:
        from doctor.session.redact import text_redactor

        redact_text = text_redactor(source.hosts | _hosts(diagnosis))
    if path:
        code = _write_file(name, path, _rendered(name, diagnosis, catalog, code, "never", verbose, redact_text), code)
        name = ""
    name = "json" if as_json else name or ("human" if sys.stdout.isatty() else "plain")
    from doctor.engine.streams import write_stdout

    write_stdout(_rendered(name, diagnosis, catalog, code, color, verbose, redact_text))
    raise typer.Exit(code)


def _target(word: str) -> tuple[str, str]:
    """The format and the file of ``-f``; without a file, stdout. Raises: CommandError."""
    name, sign, path = word.partition("=")
    require_one_of("-f", name, ("", *FORMATS))
    if sign and (not path or not name):
        raise UsageError(f"-f {word!r}: expected a format, and a file after the =")
    if path and path != "-":
        from doctor.session.named_files import require_writable

        require_writable(f"-f {name}", path)
    return name, "" if path == "-" else path


def _write_file(name: str, path: str, text: str, code: int) -> int:
    """Returns the exit code: that of a file that cannot be written where it would be 0."""
    from doctor.engine.exit_code import Exit
    from doctor.session.output_files import print_warning, write_output

    try:
        write_output(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        print_warning(f"-f {name}={path}: {error.strerror or error}; it was not written")
        return code or int(Exit.NOTHING)
    return code


def _rendered(
    name: str,
    diagnosis: Diagnosis,
    catalog: Mapping[str, Signature],
    code: int,
    color: str,
    verbose: bool,
    redact: Callable[[str], str],
) -> str:
    if name == "html":  # its style and script are no text to redact
        from doctor.diagnose.render.web_page import render_html

        return render_html(diagnosis, catalog, _playbooks_by_check(), code, redact)
    text = _rendered_text(name, diagnosis, catalog, code, color, verbose)
    return redact(text if name in ("json", "jsonl") else hide_secrets(text))


def _rendered_text(
    name: str, diagnosis: Diagnosis, catalog: Mapping[str, Signature], code: int, color: str, verbose: bool
) -> str:
    playbooks = _playbooks_by_check()
    if name in ("json", "jsonl"):
        from doctor.diagnose.render.document import document, render_json

        if name == "json":
            return render_json(diagnosis, catalog, playbooks, code)
        import json

        return json.dumps(document(diagnosis, catalog, playbooks, code), ensure_ascii=False) + "\n"
    if name == "md":
        from doctor.diagnose.render.markdown import render_markdown

        return render_markdown(diagnosis, catalog, playbooks, code)
    from doctor.diagnose.render.text import render_text
    from doctor.report.layout.terminal import detect_terminal

    terminal = detect_terminal(sys.stdout, color, os.environ)
    bold = terminal.colour and name == "human"
    return render_text(diagnosis, catalog, playbooks, terminal.width, bold=bold, verbose=verbose)


def _playbooks_by_check() -> dict[str, tuple[str, ...]]:
    from doctor.remedy.catalog import load_playbooks

    names: dict[str, tuple[str, ...]] = {}
    for playbook in load_playbooks():
        for check in playbook.treats:
            names[check] = (*names.get(check, ()), playbook.name)
    return names


def _hosts(diagnosis: Diagnosis) -> set[str]:
    culprits = [culprit for cause in diagnosis.causes for culprit in cause.culprits]
    culprits += [culprit for item in diagnosis.waiting for culprit in item.culprits]
    hosts = {culprit.host for culprit in culprits if culprit.host}
    hosts |= {summary.host for summary in diagnosis.files if summary.host}
    return hosts.union(*map(_hosts, diagnosis.earlier))
