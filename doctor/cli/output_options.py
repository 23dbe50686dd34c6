"""What a command that judges hosts puts out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from doctor.engine.texts import filled
from doctor.report.formats.registry import FORMATS
from doctor.session.run_history import HistoryOptions

FORMATS_HELP = filled("To stdout or FILE: {0}; repeatable.", ", ".join(FORMATS))


NoHistoryOption = Annotated[bool, typer.Option("--no-history", help="Do not keep this run in the history.")]


def history_options(command: str, output: OutputOptions, no_history: bool) -> HistoryOptions | None:
    """How a run of ``command`` is kept; None where it is not."""
    return None if no_history else HistoryOptions(command, output.config)


class OutputOptions(NamedTuple):
    """What is put out, and what makes a run fail."""

    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, as -f json.")] = False
    formats: Annotated[list[str], typer.Option("--format", "-f", metavar="FORMAT[=FILE]", help=FORMATS_HELP)] = []
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Write only the -f output to stdout.")] = False
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace hosts, addresses and users by pseudonyms, except in --save.")
    ] = False
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Save the raw outputs, for --from.")] = None
    from_file: Annotated[Path | None, typer.Option("--from", metavar="FILE", help="Evaluate a saved run again.")] = None
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Waiver file; replaces doctor.toml.")] = None
    strict: Annotated[bool, typer.Option("--strict", help="Exit 11 on warnings.")] = False
    fail_on: Annotated[str, typer.Option(metavar="error|warning", help="Lowest severity that fails the run.")] = "error"
    on_unknown: Annotated[str, typer.Option(metavar="fail|warn|ok", help="How to treat unknown results.")] = "fail"
    color: Annotated[str, typer.Option(metavar="auto|always|never", help="Colour.")] = "auto"
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every check, host and reason.")] = False
    brief: Annotated[bool, typer.Option("--brief", help="Show the findings in one line each.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")] = False
