"""What a command that judges hosts puts out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from doctor.report.formats.registry import FORMATS

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
