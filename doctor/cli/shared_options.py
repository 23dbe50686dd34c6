"""Options that several subcommands have: written once, as a named tuple, and spread over each one's command line."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Any, get_args, get_type_hints

from doctor.engine.errors import UsageError


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
    wrapper.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
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
            raise UsageError(f"--devices {text!r}: expected device numbers, for example 0-3,6")
        numbers += range(first, last + 1)
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"--devices {text!r}: duplicate number; expected each once")
    return tuple(numbers)
