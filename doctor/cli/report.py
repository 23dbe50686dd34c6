"""`doctor report`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from doctor.cli.shared_options import ChecksOption, OutputOptions, expand_option_groups
from doctor.config.atomic_write import write_atomic
from doctor.diagnose.render.diagnosis_report import diagnosis_report, read_diagnosis
from doctor.diagnose.render.document import SCHEMA as DIAGNOSIS_SCHEMA
from doctor.engine.bounded_read import open_bounded
from doctor.engine.check import Check
from doctor.engine.errors import InputError, UsageError
from doctor.engine.exit_code import Exit
from doctor.engine.record import EARLIER_SCHEMAS, MAX_RUN_BYTES, SCHEMA, BadRun, Run
from doctor.engine.report_secrets import without_secrets
from doctor.engine.result import Report
from doctor.engine.sanitize import file_name
from doctor.engine.streams import print_stderr, write_stdout
from doctor.engine.texts import filled
from doctor.report.diff import render
from doctor.report.diff.compare import ReportDifference, compare
from doctor.report.diff.load import BadReport, parse_document, report_from_document
from doctor.report.diff.values import RunValues, ValueChange, compare_values, values_of_run
from doctor.session.finish import report_exit_code, validate_output, write_report
from doctor.session.output_files import print_warning, requested_targets
from doctor.session.policy import apply_policy
from doctor.session.redact import text_redactor, with_pseudonyms
from doctor.session.replay import load, load_file, replay
from doctor.session.select_checks import checks_of_run, load_catalog, with_note
from doctor.watch.data_outcomes import evaluate_watch

DIFF_FORMATS = ("human", "plain", "json", "md")
"""Formats for --diff."""


@expand_option_groups
def command(
    *,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A run saved with --save, or a --json report or diagnosis; -: stdin.")
    ],
    diff: Annotated[
        Path | None,
        typer.Option("--diff", metavar="OLD", help="Compare with OLD: new, resolved and remaining findings."),
    ] = None,
    checks: ChecksOption = [],  # noqa: B006 - typer's way
    output: OutputOptions,
) -> None:
    """Render a saved run or report again, or compare two.

    A saved run is evaluated again, with the checks that it was made for; a report is rendered as it is, including its
    waivers. With --diff, a finding that no longer appears is gone only if its check ran again, else it is unseen; -f
    takes human, plain, json and md.

    Exit codes: as doctor check, for FILE; OLD has no effect on them. 78: a file cannot be read.
    """
    validate_output(output, checks)
    if output.save or output.from_file:
        raise UsageError("--save and --from go with doctor check: expected FILE alone")
    _validate_formats(output, diff is not None)
    catalog = load_catalog(checks)
    loaded = _read(file, catalog, output)
    code = report_exit_code(loaded.report, output)
    if diff is None:
        raise typer.Exit(
            write_report(loaded.report, catalog, code, output, aliases=loaded.aliases, command=loaded.command)
        )
    old = _read(diff, catalog, output)
    raise typer.Exit(_write_difference(old, loaded, code, output))


class _LoadedReport(NamedTuple):
    report: Report
    aliases: tuple[str, ...] = ()
    """Host names as reported by the hosts, where known."""
    command: str = "check"
    """The command that made the report, as far as that is known."""
    values: RunValues | None = None
    """The settings that a saved run holds."""


def _validate_formats(output: OutputOptions, diff: bool) -> None:
    other = [
        target.name for target in requested_targets(output.formats, output.as_json) if target.name not in DIFF_FORMATS
    ]
    if diff and other:
        raise UsageError(filled("-f {0} with --diff: expected {1}", other[0], ", ".join(DIFF_FORMATS)))


def _read(path: Path, catalog: list[Check], output: OutputOptions) -> _LoadedReport:
    """Reads a saved run or a report. Current waivers apply only to a saved run. Raises: CommandError."""
    name = file_name(path)
    try:
        document = _document(path, name)
        if isinstance(document, dict) and document.get("schema") == DIAGNOSIS_SCHEMA:
            return _LoadedReport(diagnosis_report(read_diagnosis(document, name)), command="diagnose")
        if isinstance(document, dict):
            return _LoadedReport(report_from_document(document, name))
        run = document
    except (BadReport, BadRun) as error:
        raise InputError(str(error)) from None
    aliases = tuple(record.visit.name for record in run.hosts.values())
    report = apply_policy(_evaluate_saved_run(run, catalog), output.config, catalog)
    return _LoadedReport(report, aliases, "watch" if run.watch else "check", values_of_run(run, report))


def _document(path: Path, name: str) -> Run | dict[str, Any]:
    """A saved run, or the document of something else. Raises: InputError, BadReport, BadRun."""
    try:
        if str(path) == "-":
            data: bytes = sys.stdin.buffer.read(MAX_RUN_BYTES + 1)
        else:
            with open_bounded(path, MAX_RUN_BYTES) as file:
                is_run = file.read(len(RUN_BEGIN)) == RUN_BEGIN
                file.seek(0)
                if is_run:
                    return load_file(file, MAX_RUN_BYTES, name)
                data = file.read(MAX_RUN_BYTES + 1)
    except OSError as error:
        raise InputError(filled("{0}: {1}; expected a saved run or a report", name, error.strerror)) from None
    if len(data) > MAX_RUN_BYTES:
        raise InputError(
            filled("{0}: is larger than {1} MiB; expected a saved run or a report", name, MAX_RUN_BYTES >> 20)
        )
    document = parse_document(data, name)
    return load(data, name) if document.get("schema") in (SCHEMA, *EARLIER_SCHEMAS) else document


RUN_BEGIN = b'{"schema":"doctor.run/'
"""So begins a saved run as doctor writes it."""


def _evaluate_saved_run(run: Run, catalog: list[Check]) -> Report:
    """Evaluates the checks that the run was made for, or whose facts were collected; notes the rest."""
    selected = checks_of_run(run, catalog)
    if run.watch:
        return evaluate_watch(run, selected, catalog)
    return with_note(replay(run, selected), run, [check for check in catalog if check not in selected])


def _write_difference(old: _LoadedReport, new: _LoadedReport, code: int, output: OutputOptions) -> int:
    """Writes the difference in every requested format. Returns the exit code, as `write_report` does."""
    before, now = old.report, new.report
    values = compare_values(old.values, new.values) if old.values and new.values else ()
    if output.redact:
        aliases = (*old.aliases, *new.aliases, *before.hosts, *now.hosts)
        before, now = with_pseudonyms(before, aliases), with_pseudonyms(now, aliases)
        values = _redacted(values, text_redactor(aliases))
    difference = compare(without_secrets(before), without_secrets(now), values)
    targets = requested_targets(output.formats, output.as_json)
    for target in targets:
        if target.path:
            text = _renderer(target.name)(difference, code)
            try:
                write_atomic(target.path, text.encode("utf-8", "backslashreplace"))
            except OSError as error:
                reason = error.strerror or error
                print_warning(
                    filled("-f {0}={1}: {2}; it was not written, and follows here", target.name, target.path, reason)
                )
                print_stderr(text)
                code = code or int(Exit.NOTHING)
    name = next(
        (stdout_target.name for stdout_target in targets if not stdout_target.path), "" if output.quiet else "plain"
    )
    if name:
        write_stdout(_renderer(name)(difference, code))
    return code


def _redacted(values: Iterable[ValueChange], redact: Callable[[str], str]) -> tuple[ValueChange, ...]:
    return tuple(
        msgspec.structs.replace(
            change,
            name=redact(change.name),
            before=None if change.before is None else redact(change.before),
            now=None if change.now is None else redact(change.now),
            hosts=tuple(map(redact, change.hosts)),
        )
        for change in values
    )


def _renderer(name: str) -> Callable[[ReportDifference, int], str]:
    return {"json": render.render_json, "md": render.render_markdown}.get(name, render.render)
