"""The option groups of `doctor fix`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from doctor.cli.host_options import ExcludeOption, HostfileOption, RankTableOption


class FixHostOptions(NamedTuple):
    """Which hosts."""

    hosts: Annotated[
        str | None, typer.Option("--hosts", "-w", metavar="NODES", help="Hosts, as in node[001-064],gpu7.")
    ] = None
    hostfile: HostfileOption = None
    rank_table: RankTableOption = None
    exclude: ExcludeOption = None


class FixAction(NamedTuple):
    """What is to be done."""

    apply: Annotated[bool, typer.Option("--apply", help="Apply the plan: a new one, or the saved PLAN.")] = False
    undo: Annotated[str, typer.Option("--undo", metavar="PLAN", help="Take back what an applied plan did.")] = ""
    list_plans: Annotated[bool, typer.Option("--list", help="List the saved plans, and what became of them.")] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    force: Annotated[bool, typer.Option("--force", help="Also hosts in use; with --undo also files changed since.")] = (
        False
    )
    batch: Annotated[int, typer.Option(metavar="N", min=1, help="Hosts at a time, after the first alone.")] = 8


class DisplayOptions(NamedTuple):
    """How it is told."""

    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False
    color: Annotated[str, typer.Option(metavar="auto|always|never", help="Colour.")] = "auto"
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every step, also those left out; whole diffs.")] = (
        False
    )
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback of our own bugs.")] = False
