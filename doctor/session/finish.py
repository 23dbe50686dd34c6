"""What a command that judges hosts puts out: the report, the exit code, the saved run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from doctor.engine.errors import InputError, require_one_of
from doctor.session.console import write
from doctor.session.output_files import Followers, asked_for, follow, write_files
from doctor.session.policy import refuse_settings, settled

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.record import Run
    from doctor.engine.result import Report
    from doctor.session.examine import Examination


FORMATS = "human, plain, oneline, json, jsonl, md, junit, prometheus; may be given again"


class Output(NamedTuple):
    """What is put out, and what makes a run fail."""

    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout: short for -f json.")] = False
    formats: Annotated[
        list[str], typer.Option("--format", "-f", metavar="FORMAT[=FILE]", help=f"To stdout or FILE: {FORMATS}.")
    ] = []
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


def refuse_output(output: Output, folders: Sequence[Path] = ()) -> None:
    """Raises: CommandError for options that cannot be followed. ``folders`` are those of ``--checks``."""
    require_one_of("--fail-on", output.fail_on, ("error", "warning"))
    require_one_of("--on-unknown", output.on_unknown, ("fail", "warn", "ok"))
    require_one_of("--color", output.color, ("auto", "always", "never"))
    asked_for(output.formats, output.as_json)
    refuse_settings(output.config, folders)


def saved(path: Path) -> Run:
    """The run that ``--from`` names. Raises: CommandError."""
    from doctor.engine.record import BadRun, load

    try:
        return load(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(f"--from {path}: {error.strerror}") from None
    except BadRun as error:
        raise InputError(f"--from {error}") from None


def again(run: Run, picked: list[Check], known: list[Check], output: Output) -> NoReturn:
    """Judges a saved run, and reports. Raises: typer.Exit with the exit code."""
    from doctor.session.examine import Examination, replay

    finish(Examination(run, replay(run, picked)), known, output)


def watch(output: Output, hosts: Sequence[str], checks: Sequence[Check] = (), source: str = "") -> Followers:
    """Tells of the run while it goes on, where ``-f jsonl`` asks for it; for `finish`, too."""
    asked = asked_for(output.formats, output.as_json)
    return follow(asked, hosts, [one.name for one in checks], source, output.redact)


def finish(examination: Examination, known: list[Check], output: Output, events: Followers | None = None) -> NoReturn:
    """Saves and reports. Raises: typer.Exit with the exit code."""
    raise typer.Exit(put_out(examination, known, output, events))


def put_out(examination: Examination, known: list[Check], output: Output, events: Followers | None = None) -> int:
    """Saves and reports. Returns the exit code. ``events`` have told of the run so far, if any have."""
    stopped = examination.stopped
    if output.save:
        _save(output.save, examination)
    report = settled(examination.report, output.config, known)
    code = judged(report, output)
    if stopped is not None:
        code = stopped.code if isinstance(stopped, SystemExit) and isinstance(stopped.code, int) else 130
    aliases = [record.visit.name for record in examination.run.hosts.values()] if output.redact else []
    show(report, known, int(code), output, events, aliases)
    return int(code)


def judged(report: Report, output: Output) -> int:
    """The exit code that the options give to a report."""
    from doctor.engine.exit_code import exit_code

    return exit_code(report, strict=output.strict, on_unknown=output.on_unknown, fail_on=output.fail_on)  # type: ignore[arg-type]


def _save(path: Path, examination: Examination) -> None:
    """Writes the run whole or not at all, readable for its owner alone. A failure is said, and changes no verdict."""
    import msgspec

    from doctor.config.atomic_write import write_whole
    from doctor.engine.record import redacted

    made_for = tuple(one.check for one in examination.report.outcomes)
    run = redacted(msgspec.structs.replace(examination.run, checks=made_for))
    try:
        write_whole(path, msgspec.json.encode(run) + b"\n")
    except OSError as error:
        typer.echo(f"doctor: --save {path}: {error.strerror}; the run was not saved", err=True)


def show(
    report: Report,
    known: Sequence[Check],
    code: int,
    output: Output,
    events: Followers | None = None,
    aliases: Sequence[str] = (),
) -> None:
    """The report in every format that was asked for: files first, then stdout."""
    if output.redact:
        from doctor.session.redact import veiled

        report = veiled(report, aliases)
    asked = asked_for(output.formats, output.as_json)
    if events is not None:
        events.finish(report, code)
    pages = {one.name: one for one in known}
    rest = [one for one in asked if one.name != "jsonl" or events is None]
    if rest:
        from doctor.report.formats.registry import Setting

        write_files(rest, report, Setting(code, pages, verbose=output.verbose, mendable=_mendable(report)))
    if any(not one.path for one in asked) or not output.quiet:
        _print(report, pages, code, output, next((one.name for one in asked if not one.path), ""), events)


def _print(
    report: Report, pages: Mapping[str, Check], code: int, output: Output, name: str, events: Followers | None
) -> None:
    if name == "jsonl" and events is not None:
        return None
    if name == "json":
        from doctor.report.formats.json import encode

        return write(encode(report, code).decode("utf-8"))
    from doctor.report.layout import terminal

    seen, mends = terminal.choose(sys.stdout, output.color, os.environ), _mendable(report)
    if not name and not seen.tty:
        from doctor.report.formats import plain

        return write(plain.render(report, pages, look=seen, verbose=output.verbose, code=code, mendable=mends))
    from doctor.report.formats.registry import Setting, render

    return write(render(name or "human", report, Setting(code, pages, seen, output.verbose, mends)))


def _mendable(report: Report) -> frozenset[str]:
    """What `doctor fix` could mend; nothing is read where nothing is wrong."""
    if not any(one.findings for one in report.outcomes):
        return frozenset()
    from doctor.remedy.fixable import mendable

    return mendable()
