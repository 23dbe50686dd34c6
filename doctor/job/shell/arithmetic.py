"""Shell arithmetic on whole numbers: ``+ - * / %`` and parentheses. Pure."""

from __future__ import annotations

import ast
import re

_LONGEST = 80
_GREATEST = 10**15


def arithmetic(expression: str) -> int | None:
    """The value of an expression without variables; None where it is not this simple.

    >>> arithmetic("2 * (3 + 5)"), arithmetic("-7 / 2"), arithmetic("x + 1"), arithmetic("1 / 0")
    (16, -3, None, None)
    """
    if len(expression) > _LONGEST or not re.fullmatch(r"[0-9+\-*/%() ]+", expression) or "**" in expression:
        return None
    if re.search(r"(?<![0-9])0[0-9]", expression):  # octal
        return None
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        number = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        number = -_value(node.operand) if isinstance(node.op, ast.USub) else _value(node.operand)
    elif isinstance(node, ast.BinOp):
        number = _binary(node.op, _value(node.left), _value(node.right))
    else:
        raise ValueError("not arithmetic on whole numbers")
    if abs(number) > _GREATEST:
        raise ValueError("too great")
    return number


def _binary(operator: ast.operator, first: int, second: int) -> int:
    match operator:
        case ast.Add():
            return first + second
        case ast.Sub():
            return first - second
        case ast.Mult():
            return first * second
        case ast.Div():  # the shell rounds towards zero
            return abs(first) // abs(second) * (1 if (first < 0) == (second < 0) else -1)
        case ast.Mod():
            return abs(first) % abs(second) * (1 if first >= 0 else -1)
    raise ValueError("not an operator of the shell")
