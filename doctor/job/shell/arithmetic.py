"""Whole numbers that a shell computes: of an expression, and of one in each task of a launcher. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from doctor.job.job_size import STARTS_TASKS

_LONGEST, _GREATEST = 80, 10**15
MOST_TASKS = 1024


def numbers_in_tasks(source: str, launcher: str, tasks: int, hosts: int) -> tuple[int, ...]:
    """What ``source`` is in each task of a launcher, by the variables of `STARTS_TASKS`; empty where it is not known.

    >>> numbers_in_tasks("$((SLURM_PROCID / 8))", "srun", 2, 2), numbers_in_tasks("$SLURM_LOCALID", "srun", 2, 2)
    ((0, 0), (0, 0))
    >>> numbers_in_tasks("$((OMPI_COMM_WORLD_RANK + 1))", "mpirun", 2, 2), numbers_in_tasks("$RANK", "srun", 2, 2)
    ((1, 2), ())
    """
    variables = next((row[1:] for name, row in STARTS_TASKS.items() if launcher in (name, row[0])), None)
    expression = re.fullmatch(r"\$\(\((.{1,80})\)\)|\$\{?\w{1,80}\}?", source)
    if variables is None or expression is None or not 1 < tasks <= MOST_TASKS:
        return ()
    rank, size, local = variables
    of_host = {local: 0} if tasks <= hosts else {}
    counts_hosts = tasks == hosts and launcher == "srun"
    numbers = [
        _with_values(
            expression[1] or source,
            {rank: task, size: tasks, **of_host, **({"SLURM_NODEID": task} if counts_hosts else {})},
        )
        for task in range(tasks)
    ]
    return tuple(number for number in numbers if number is not None) if None not in numbers else ()


def _with_values(expression: str, values: Mapping[str, int]) -> int | None:
    return arithmetic(re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda name: str(values.get(name[1], name[0])), expression))


def arithmetic(expression: str) -> int | None:
    """The value of an expression without variables; None where it is not this simple.

    >>> arithmetic("2 * (3 + 5)"), arithmetic("-7 / 2"), arithmetic("x + 1"), arithmetic("1 / 0")
    (16, -3, None, None)
    """
    if len(expression) > _LONGEST or not re.fullmatch(r"[0-9+\-*/%()<> ]+", expression) or "**" in expression:
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
        case ast.LShift() if 0 <= second < 50:
            return first << second
        case ast.RShift() if 0 <= second < 50:
            return first >> second
    raise ValueError("not an operator of the shell")
