"""Durations in the syntax tree of a Python program, without running it. Pure.

Source: Python, datetime.timedelta (https://docs.python.org/3/library/datetime.html#timedelta-objects).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable

Resolve = Callable[[ast.expr | None], ast.expr | None]
"""What a name stands for."""

_UNITS = {
    "days": 86400.0,
    "seconds": 1.0,
    "microseconds": 1e-6,
    "milliseconds": 1e-3,
    "minutes": 60.0,
    "hours": 3600.0,
    "weeks": 604800.0,
}
"""Seconds of each argument, in the order of those without a name."""
_DEEPEST = 16


def timedelta_seconds(node: ast.expr, resolve: Resolve) -> float | None:
    """Seconds of ``timedelta(minutes=2 * 30)`` or of a plain number; None where only a run would show them.

    >>> timedelta_seconds(ast.parse("timedelta(0, 30, hours=1)", mode="eval").body, lambda node: node)
    3630.0
    """
    if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        named = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg in _UNITS}
        if name != "timedelta" or len(named) != len(node.keywords) or len(node.args) > len(_UNITS):
            return None
        parts = [*zip(_UNITS, node.args, strict=False), *named.items()]
        values = [(_UNITS[unit or ""], _number(value, resolve)) for unit, value in parts]
        total = sum(factor * value for factor, value in values if value is not None)
        return total if all(value is not None for _, value in values) and math.isfinite(total) else None
    return _number(node, resolve)


def _number(node: ast.expr | None, resolve: Resolve, depth: int = 0) -> float | None:
    """A number, or products, sums and quotients of numbers."""
    node = resolve(node)
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Constant):
        value = node.value
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(value) if is_number and abs(value) < 1e15 else None  # type: ignore[arg-type]
    if not isinstance(node, ast.BinOp):
        return None
    first, second = _number(node.left, resolve, depth + 1), _number(node.right, resolve, depth + 1)
    if first is None or second is None:
        return None
    if isinstance(node.op, ast.Mult):
        return first * second
    if isinstance(node.op, ast.Add):
        return first + second
    if isinstance(node.op, ast.Sub):
        return first - second
    return first / second if isinstance(node.op, ast.Div) and second else None
