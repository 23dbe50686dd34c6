"""What a command that judges hosts puts out: the report, the exit code, the saved run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from doctor.engine.errors import InputError, require_one_of
from doctor.report.formats.registry import FORMATS
from doctor.session.console import write
from doctor.session.output_files import EventStreams, open_event_streams, requested_targets, write_files
from doctor.session.policy import apply_policy, validate_settings

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.record import Run
    from doctor.engine.result import Report
    from doctor.session.examine import Examination


FORMATS_HELP = f"To stdout or FILE: {', '.join(FORMATS)}; repeatable."


class OutputOptions(NamedTuple):
    """What is put out, and what makes a run fail."""

    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout: short for -f json.")] = False
    formats: Annotated[list[str], typer.Option("--format", "-f", metavar="FORMAT[=FILE]", help=FORMATS_HELP)] = []
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="On stdout only what -f puts there.")] = False
    redact: Annotated[
        bool, typer.Option("--redact", help="Pseudonyms for hosts, addresses and users; --save keeps the names.")
    ] = False
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep what the hosts said, for --from.")] = None
    from_file: Annotated[Path | None, typer.Option("--from", metavar="FILE", help="Judge a saved run again.")] = None
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Waivers, instead of doctor.toml.")] = None
    strict: Annotated[bool, typer.Option("--strict", help="Exit 11 when there are warnings.")] = False
    fail_on: Annotated[str, typer.Option(metavar="error|warning", help="What makes the run fail.")] = "error"
    on_unknown: Annotated[str, typer.Option(metavar="fail|warn|ok", help="What an unknown outcome is.")] = "fail"
    color: Annotated[str, typer.Option(metavar="auto|always|never", help="Colour.")] = "auto"
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every check, every host, every reason.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback of our own bugs.")] = False


def validate_output(output: OutputOptions, folders: Sequence[Path] = ()) -> None:
    """Raises: CommandError for options that cannot be followed. ``folders`` are those of ``--checks``."""
    require_one_of("--fail-on", output.fail_on, ("error", "warning"))
    require_one_of("--on-unknown", output.on_unknown, ("fail", "warn", "ok"))
    require_one_of("--color", output.color, ("auto", "always", "never"))
    requested_targets(output.formats, output.as_json)
    validate_settings(output.config, folders)


def load_saved_run(path: Path) -> Run:
    """The run that ``--from`` names. Raises: CommandError."""
    from doctor.engine.record import BadRun
    from doctor.session.saved_run import load

    try:
        return load(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(f"--from {path}: {error.strerror}") from None
    except BadRun as error:
        raise InputError(f"--from {error}") from None


def finish_replay(run: Run, selected: list[Check], catalog: list[Check], output: OutputOptions) -> NoReturn:
    """Judges a saved run, and reports. Raises: typer.Exit with the exit code."""
    from doctor.session.examine import Examination, replay

    finish(Examination(run, replay(run, selected)), catalog, output)


def start_events(
    output: OutputOptions, hosts: Sequence[str], checks: Sequence[Check] = (), source: str = ""
) -> EventStreams:
    """Tells of the run while it goes on, where ``-f jsonl`` asks for it; for `finish`, too."""
    targets = requested_targets(output.formats, output.as_json)
    return open_event_streams(targets, hosts, [check.name for check in checks], source, output.redact)


def finish(
    examination: Examination, catalog: list[Check], output: OutputOptions, events: EventStreams | None = None
) -> NoReturn:
    """Saves and reports. Raises: typer.Exit with the exit code."""
    raise typer.Exit(save_and_report(examination, catalog, output, events))


def save_and_report(
    examination: Examination, catalog: list[Check], output: OutputOptions, events: EventStreams | None = None
) -> int:
    """Saves and reports. Returns the exit code. ``events`` have told of the run so far, if any have."""
    stopped = examination.stopped
    if output.save:
        _save(output.save, examination)
    report = apply_policy(examination.report, output.config, catalog)
    code = report_exit_code(report, output)
    if stopped is not None:
        code = stopped.code if isinstance(stopped, SystemExit) and isinstance(stopped.code, int) else 130
    aliases = [record.visit.name for record in examination.run.hosts.values()] if output.redact else []
    write_report(report, catalog, int(code), output, events, aliases)
    return int(code)


def report_exit_code(report: Report, output: OutputOptions) -> int:
    """The exit code that the options give to a report."""
    from doctor.engine.exit_code import exit_code

    return exit_code(report, strict=output.strict, on_unknown=output.on_unknown, fail_on=output.fail_on)  # type: ignore[arg-type]


def _save(path: Path, examination: Examination) -> None:
    """Writes the run whole or not at all, readable for its owner alone. A failure is said, and changes no verdict."""
    import msgspec

    from doctor.config.atomic_write import write_atomic
    from doctor.engine.record import redact_run

    made_for = tuple(outcome.check for outcome in examination.report.outcomes)
    run = redact_run(msgspec.structs.replace(examination.run, checks=made_for))
    try:
        write_atomic(path, msgspec.json.encode(run) + b"\n")
    except OSError as error:
        typer.echo(f"doctor: --save {path}: {error.strerror}; the run was not saved", err=True)


def write_report(
    report: Report,
    catalog: Sequence[Check],
    code: int,
    output: OutputOptions,
    events: EventStreams | None = None,
    aliases: Sequence[str] = (),
) -> None:
    """The report in every format that was asked for: files first, then stdout."""
    if output.redact:
        from doctor.session.redact import with_pseudonyms

        report = with_pseudonyms(report, aliases)
    targets = requested_targets(output.formats, output.as_json)
    if events is not None:
        events.finish(report, code)
    checks_by_name = {check.name: check for check in catalog}
    rest = [target for target in targets if target.name != "jsonl" or events is None]
    if rest:
        from doctor.report.formats.registry import RenderContext

        write_files(
            rest,
            report,
            RenderContext(code, checks_by_name, verbose=output.verbose, fixable_checks=_fixable_checks(report)),
        )
    if any(not target.path for target in targets) or not output.quiet:
        _print(
            report,
            checks_by_name,
            code,
            output,
            next((target.name for target in targets if not target.path), ""),
            events,
        )


def _print(
    report: Report,
    checks_by_name: Mapping[str, Check],
    code: int,
    output: OutputOptions,
    name: str,
    events: EventStreams | None,
) -> None:
    if name == "jsonl" and events is not None:
        return None
    if name == "json":
        from doctor.report.formats.json import encode

        return write(encode(report, code).decode("utf-8"))
    from doctor.report.layout import terminal

    stdout_terminal, fixable = terminal.detect_terminal(sys.stdout, output.color, os.environ), _fixable_checks(report)
    if not name and not stdout_terminal.tty:
        from doctor.report.formats import plain

        return write(
            plain.render(
                report, checks_by_name, terminal=stdout_terminal, verbose=output.verbose, code=code, fixable=fixable
            )
        )
    from doctor.report.formats.registry import RenderContext, render

    return write(
        render(name or "human", report, RenderContext(code, checks_by_name, stdout_terminal, output.verbose, fixable))
    )


def _fixable_checks(report: Report) -> frozenset[str]:
    """What `doctor fix` could mend; nothing is read where nothing is wrong."""
    if not any(outcome.findings for outcome in report.outcomes):
        return frozenset()
    from doctor.remedy.fixable import fixable_checks

    return fixable_checks()
