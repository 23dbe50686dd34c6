"""Options that several subcommands have: written once, as a named tuple, and spread over each one's command line.

`doctor.session.select_checks` follows those that choose checks and playbooks.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_type_hints

import typer

from doctor.engine.errors import UsageError
from doctor.engine.quantities import parse_time_limit
from doctor.engine.texts import filled
from doctor.report.formats.registry import FORMATS

if TYPE_CHECKING:
    from doctor.session.run_history import HistoryOptions


def expand_option_groups(
    command: Callable[..., None] | None = None, *, hidden: Collection[str] = ()
) -> Callable[..., Any]:
    """``command`` as typer is to see it: in the place of a parameter that is a named tuple stand its fields.

    ``hidden``: fields whose options the command refuses, and that its help does not show.
    """
    if command is None:
        return functools.partial(expand_option_groups, hidden=hidden)
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if hasattr(hint, "_fields")}

    @functools.wraps(command)
    def wrapper(**arguments: Any) -> None:
        grouped = {name: group(*(arguments.pop(field) for field in group._fields)) for name, group in groups.items()}
        command(**arguments, **grouped)

    def parameters() -> Iterator[inspect.Parameter]:
        for name, parameter in inspect.signature(command).parameters.items():
            if name in groups:
                yield from _fields(groups[name], hidden)
            else:
                yield parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)

    signature = inspect.Signature(list(parameters()))
    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    wrapper.__annotations__ = {item.name: item.annotation for item in signature.parameters.values()}
    return wrapper


def _fields(group: Any, hidden: Collection[str]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for name in group._fields:
        default = group._field_defaults[name]
        if name in hidden:
            kind, option = get_args(hints[name])
            option = copy.copy(option)
            option.hidden = True
            hints[name] = Annotated[kind, option]
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])


def device_numbers(text: str) -> tuple[int, ...]:
    """The ``0-3,6`` of --devices as numbers, each once. Raises: CommandError."""
    numbers: list[int] = []
    for part in text.split(",") if text else ():
        ends = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip(), re.ASCII)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if first > last or last - first > 255:
            raise UsageError(filled("--devices {0}: expected device numbers, for example 0-3,6", f"{text!r}"))
        numbers += range(first, last + 1)
    if len(set(numbers)) < len(numbers):
        raise UsageError(filled("--devices {0}: duplicate number; expected each once", f"{text!r}"))
    return tuple(numbers)


def time_option(option: str, text: str, usual: float) -> float:
    """Seconds of an option that takes a time, ``usual`` where it is not given. Raises: UsageError."""
    seconds = parse_time_limit(text) if text else usual
    if seconds is None:
        raise UsageError(filled("{0} {1}: expected a time from 1s to 24h, for example 90s or 10m", option, f"{text!r}"))
    return seconds


def _split_names(texts: list[str] | None) -> list[str]:
    """The names in words that may hold several, with commas between them.

    A union, though typer gives no None: of Python 3.10 it takes ``list[str]`` alone for a class.
    """
    return [name for text in texts or () for name in (part.strip() for part in text.split(",")) if name]


ChecksOption = Annotated[list[Path], typer.Option("--checks", metavar="DIR", help="A folder with additional checks.")]
PlaybooksOption = Annotated[
    list[Path], typer.Option("--playbooks", metavar="DIR", help="A folder with additional playbooks.")
]
SelectOption = Annotated[
    list[str],
    typer.Option("--select", "-s", metavar="NAME", help="Run only these checks or areas.", callback=_split_names),
]
IgnoreOption = Annotated[
    list[str], typer.Option("--ignore", metavar="NAME", help="Skip these checks or areas.", callback=_split_names)
]


class CheckOptions(NamedTuple):
    """Which checks are made."""

    select: SelectOption = []
    ignore: IgnoreOption = []
    checks: ChecksOption = []


FORMATS_HELP = filled("To stdout or FILE: {0}; repeatable.", ", ".join(FORMATS))


ConfigOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Waiver file; replaces doctor.toml.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Exit 11 on warnings.")]
FailOnOption = Annotated[str, typer.Option(metavar="error|warning", help="Lowest severity that fails the run.")]
OnUnknownOption = Annotated[str, typer.Option(metavar="fail|warn|ok", help="How to treat unknown results.")]
NoHistoryOption = Annotated[bool, typer.Option("--no-history", help="Do not keep this run in the history.")]


def history_options(command: str, output: OutputOptions, no_history: bool) -> HistoryOptions | None:
    """How a run of ``command`` is kept; None where it is not."""
    if no_history:
        return None
    from doctor.session.run_history import HistoryOptions

    return HistoryOptions(command, output.config)


NotifyOption = Annotated[
    list[str],
    typer.Option("--notify", metavar="WHERE", help="Tell a verdict there: doctor explain notify; repeatable."),
]


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
    config: ConfigOption = None
    strict: StrictOption = False
    fail_on: FailOnOption = "error"
    on_unknown: OnUnknownOption = "fail"
    color: Annotated[str, typer.Option(metavar="auto|always|never", help="Colour.")] = "auto"
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every check, host and reason.")] = False
    brief: Annotated[bool, typer.Option("--brief", help="Show the findings in one line each.")] = False
    notify: NotifyOption = []
    debug: DebugOption = False
