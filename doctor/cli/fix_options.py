"""The option groups of `doctor fix`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from doctor.cli.host_options import ExcludeOption, HostfileOption, RankTableOption
from doctor.cli.shared_options import DebugOption


class FixHostOptions(NamedTuple):
    """Which hosts."""

    hosts: Annotated[
        str | None, typer.Option("--hosts", "-w", metavar="NODES", help="Hosts, for example node[001-064],gpu7.")
    ] = None
    hostfile: HostfileOption = None
    rank_table: RankTableOption = None
    exclude: ExcludeOption = None


class FixAction(NamedTuple):
    """Options that choose the action."""

    apply: Annotated[bool, typer.Option("--apply", help="Apply the plan: a new one, or the saved PLAN.")] = False
    undo: Annotated[str, typer.Option("--undo", metavar="PLAN", help="Undo the steps of an applied plan.")] = ""
    list_plans: Annotated[bool, typer.Option("--list", help="List the saved plans and their state.")] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    changed: Annotated[
        str,
        typer.Option(
            metavar="refuse|merge|skip|overwrite",
            help="With --undo: what to do where something was changed since the fix.",
        ),
    ] = "refuse"
    force: Annotated[bool, typer.Option("--force", help="Include hosts in use.")] = False
    batch: Annotated[int, typer.Option(metavar="N", min=1, help="Hosts in parallel, after the first one.")] = 8


class DisplayOptions(NamedTuple):
    """Options of the output."""

    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False
    color: Annotated[str, typer.Option(metavar="auto|always|never", help="Colour.")] = "auto"
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show all steps, also skipped ones, and full diffs.")
    ] = False
    debug: DebugOption = False
