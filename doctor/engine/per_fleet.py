"""Keeps what is computed from the whole fleet: a check that is called for each host would compute it for each again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def once_per_fleet(function: Callable[P, R]) -> Callable[P, R]:
    """The function's last result, for as long as it is called with the very same objects."""
    last: list[tuple[tuple[object, ...], R]] = []

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = (*args, *kwargs, *kwargs.values())
        for previous, result in last:
            if len(previous) == len(arguments) and all(map(_is_same, previous, arguments)):
                return result
        result = function(*args, **kwargs)
        last[:] = [(arguments, result)]
        return result

    return wrapper


def _is_same(first: object, second: object) -> bool:
    return first is second
