"""A configuration that is written as a Python module, such as those of InternEvo: read from its syntax tree, never run.

Names at the top of the module, ``dict(...)``, literals and whole-number arithmetic are resolved; all else is undecided.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.training.python_code import require_flat
from doctor.job.training.tree import MAX_CHARS, MAX_LEAVES, Leaf, Tree, UnreadableFile

_SECTIONS = frozenset(("parallel", "model", "data"))
"""What a configuration of InternEvo has."""
_MAX_DEPTH = 32
_LARGEST = 2**53
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


class _Undecided:
    """A value that only a run would show."""

    def __init__(self, node: ast.AST) -> None:
        self.source = printable(ast.unparse(node), 120)
        self.line = getattr(node, "lineno", 0)


class _Value:
    """A decided value, and its line."""

    def __init__(self, value: int | float | bool | str | None, line: int) -> None:
        self.value, self.line = value, line


_Resolved = _Undecided | _Value | dict[str, Any]


def read_python_config(text: str) -> Tree | None:
    """The values of a module that is a configuration; None for any other program, or one that cannot be parsed.

    >>> tree = read_python_config("TP = 2; model = dict(a=TP); data = dict(); parallel = dict(tensor=TP * 4)")
    >>> tree.leaves["parallel.tensor"].value
    8
    """
    if not all(f"{name} = " in text for name in _SECTIONS) or len(text) > MAX_CHARS:
        return None
    try:
        require_flat(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: dict[str, _Resolved] = {}
    for statement in module.body:
        _assign(statement, names)
    if not all(isinstance(names.get(section), dict) for section in _SECTIONS):
        return None
    leaves: dict[str, Leaf] = {}
    sections = {""}
    for name, value in names.items():
        for leaf in _leaves(value, name, sections):
            leaves[leaf.path] = leaf
            if len(leaves) + len(sections) > MAX_LEAVES:
                raise UnreadableFile(filled("has more than {0} values", MAX_LEAVES))
    return Tree(leaves, (), frozenset(sections))


def _assign(statement: ast.stmt, names: dict[str, _Resolved]) -> None:
    """What a statement of the module does to its names."""
    if isinstance(statement, ast.Assign) and all(isinstance(target, ast.Name) for target in statement.targets):
        value = _resolve(statement.value, names, 0)
        names.update({target.id: value for target in statement.targets if isinstance(target, ast.Name)})
        return
    for node in ast.walk(statement):  # a branch, a loop, an item, an import: what it changes is not known
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = _Undecided(statement)
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            base = node.value
            while isinstance(base, (ast.Subscript, ast.Attribute)):
                base = base.value
            if isinstance(base, ast.Name):
                names[base.id] = _Undecided(statement)


def _resolve(node: ast.expr, names: dict[str, _Resolved], depth: int) -> _Resolved:
    if depth > _MAX_DEPTH:
        return _Undecided(node)
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str, type(None))):
        return _Value(printable(node.value, 200) if isinstance(node.value, str) else node.value, node.lineno)
    if isinstance(node, ast.Name):
        return names.get(node.id, _Undecided(node))
    if isinstance(node, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        if all(isinstance(key, str) for key in keys):
            return {str(key): _resolve(value, names, depth + 1) for key, value in zip(keys, node.values, strict=True)}
    if isinstance(node, ast.Call) and _is_plain_dict(node):
        return {str(item.arg): _resolve(item.value, names, depth + 1) for item in node.keywords}
    return _compute(node, names, depth)


def _is_plain_dict(call: ast.Call) -> bool:
    """``dict(a=1, b=2)``, with nothing but names."""
    is_dict = isinstance(call.func, ast.Name) and call.func.id == "dict"
    return is_dict and not call.args and all(keyword.arg for keyword in call.keywords)


def _compute(node: ast.expr, names: dict[str, _Resolved], depth: int) -> _Resolved:
    """Signs, arithmetic of whole numbers, and items of a dictionary."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _integer(_resolve(node.operand, names, depth + 1))
        return _Undecided(node) if number is None else _Value(-number, node.lineno)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = (_integer(_resolve(side, names, depth + 1)) for side in (node.left, node.right))
        if left is not None and right is not None and not (isinstance(node.op, ast.FloorDiv) and right == 0):
            result = _OPERATIONS[type(node.op)](left, right)
            return _Value(result, node.lineno) if abs(result) <= _LARGEST else _Undecided(node)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        mapping = _resolve(node.value, names, depth + 1)
        if isinstance(mapping, dict):
            item: _Resolved = mapping.get(str(node.slice.value), _Undecided(node))
            return item
    return _Undecided(node)


def _integer(value: _Resolved) -> int | None:
    number = value.value if isinstance(value, _Value) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and abs(number) <= _LARGEST else None


def _leaves(value: _Resolved, path: str, sections: set[str]) -> Iterator[Leaf]:
    if isinstance(value, dict):
        if len(sections) > MAX_LEAVES:
            raise UnreadableFile(filled("has more than {0} values", MAX_LEAVES))
        sections.add(path)
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{printable(key, 80)}", sections)
    elif isinstance(value, _Undecided):
        yield Leaf(path, None, value.line, value.source)
    else:
        yield Leaf(path, value.value, value.line)


def imported_first(text: str) -> list[str]:
    r"""The modules that a program imports before any other statement. Raises: what `ast.parse` does.

    >>> imported_first("import torch.nn\nfrom mindspore import ops\nmain()\nimport numpy")
    ['torch.nn', 'mindspore']
    """
    require_flat(text)
    names: list[str] = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):  # its docstring
            break
    return names
