"""Shared parts of `doctor fix`: its option groups, saved plans, connections to their hosts, the confirmation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec
import typer

from doctor.cli.host_options import ConnectionOptions, ExcludeOption, HostfileOption, RankTableOption
from doctor.cli.shared_options import DebugOption
from doctor.engine.errors import CommandError, InputError, UsageError
from doctor.engine.streams import print_stderr, write_stdout
from doctor.engine.texts import filled
from doctor.environment.inventory import Inventory
from doctor.fix import store
from doctor.fix.plan import PlanContext


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


Result = TypeVar("Result")


def connection_of_plan(context: PlanContext, overrides: ConnectionOptions) -> ConnectionOptions:
    """The plan's connection options, overridden by the command line."""
    defaults = ConnectionOptions()._asdict()
    explicit_options = {name: value for name, value in overrides._asdict().items() if value != defaults[name]}
    return ConnectionOptions(**{**defaults, **context.connection, **explicit_options})


def inventory_of_plan(context: PlanContext) -> Inventory:
    """The plan's hosts."""
    return Inventory(context.hosts, context.source, context.slots, context.local, logins=context.logins)


@contextmanager
def hold_plan_lock(plan_folder: Path) -> Iterator[None]:
    """Keeps other processes from applying or undoing this plan meanwhile. Raises: CommandError."""
    with ExitStack() as stack:
        with_store_errors(lambda: stack.enter_context(store.lock_plan(plan_folder)))
        yield


def with_store_errors(work: Callable[[], Result]) -> Result:
    """What lies in the folder of plans. Raises: CommandError."""
    try:
        return work()
    except store.PlanStoreError as error:
        raise InputError(str(error)) from None
    except OSError as error:
        raise InputError(filled("the journal cannot be written: {0}; nothing was changed", error.strerror)) from None


def require_answer(yes: bool) -> None:
    """Raises: UsageError, where a confirmation is needed and there is no terminal to ask for it."""
    if not yes and not sys.stdin.isatty():
        raise UsageError("no terminal for the confirmation; expected --yes")


def confirm(question: str) -> None:
    """Raises: CommandError, unless the answer is yes."""
    print_stderr(f"{question} [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed", 10)


def write_json(document: msgspec.Struct) -> None:
    """Writes a document to stdout as indented JSON."""
    write_stdout(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
