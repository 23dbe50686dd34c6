"""What a command that judges hosts puts out: the report, the exit code, the saved run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from doctor.cli import Refused, write
from doctor.commands.options import one_of
from doctor.commands.waived import refuse_settings, settled

if TYPE_CHECKING:
    from doctor.declaration import Check
    from doctor.examine import Examination
    from doctor.model import Report
    from doctor.record import Run


class Output(NamedTuple):
    """What is put out, and what makes a run fail."""

    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False
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
    """Raises: Refused for what cannot be followed, before anything is done. ``folders`` are those of ``--checks``."""
    one_of("--fail-on", output.fail_on, ("error", "warning"))
    one_of("--on-unknown", output.on_unknown, ("fail", "warn", "ok"))
    one_of("--color", output.color, ("auto", "always", "never"))
    refuse_settings(output.config, folders)


def saved(path: Path) -> Run:
    """The run that ``--from`` names. Raises: Refused."""
    from doctor.record import BadRun, load

    try:
        return load(path.read_bytes(), str(path))
    except OSError as error:
        raise Refused(f"--from {path}: {error.strerror}") from None
    except BadRun as error:
        raise Refused(f"--from {error}") from None


def again(run: Run, picked: list[Check], known: list[Check], output: Output) -> NoReturn:
    """Judges a saved run, and reports. Raises: typer.Exit with the exit code."""
    from doctor.examine import Examination, replay

    finish(Examination(run, replay(run, picked)), known, output)


def finish(examination: Examination, known: list[Check], output: Output) -> NoReturn:
    """Saves and reports. Raises: typer.Exit with the exit code."""
    raise typer.Exit(put_out(examination, known, output))


def put_out(examination: Examination, known: list[Check], output: Output) -> int:
    """Saves and reports. Returns the exit code."""
    from doctor.verdict import exit_code

    stopped = examination.stopped
    if output.save:
        _save(output.save, examination.run)
    report = settled(examination.report, output.config, known)
    code = exit_code(report, strict=output.strict, on_unknown=output.on_unknown, fail_on=output.fail_on)  # type: ignore[arg-type]
    if stopped is not None:
        code = stopped.code if isinstance(stopped, SystemExit) and isinstance(stopped.code, int) else 130
    _print(report, known, code, output)
    return int(code)


def _save(path: Path, run: Run) -> None:
    """Writes the run whole or not at all, readable for its owner alone. A failure is said, and changes no verdict."""
    import msgspec

    from doctor.record import redacted
    from doctor.whole import write_whole

    try:
        write_whole(path, msgspec.json.encode(redacted(run)) + b"\n")
    except OSError as error:
        typer.echo(f"doctor: --save {path}: {error.strerror}; the run was not saved", err=True)


def _print(report: Report, known: list[Check], code: int, output: Output) -> None:
    if output.as_json:
        from doctor.report.json import encode

        return write(encode(report, code).decode("utf-8"))
    from doctor.report import look

    seen = look.choose(sys.stdout, output.color, os.environ)
    pages = {one.name: one for one in known}
    if seen.tty:
        from doctor.report import text

        return write(text.render(report, pages, look=seen, verbose=output.verbose, code=code))
    from doctor.report import plain

    return write(plain.render(report, pages, look=seen, verbose=output.verbose, code=code))
