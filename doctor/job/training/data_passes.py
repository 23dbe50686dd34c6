"""Whether a program reads its data more than once, as its syntax tree shows."""

from __future__ import annotations

import ast


def reads_repeatedly(tree: ast.Module) -> bool:
    r"""Whether a loop may read the data anew: a loop within a loop, or in a function that a loop calls.

    A loop over ``range(...)``, over what a method returns or over what the loop around it names is none over the data.
    ``while`` and ``iter`` within a loop may be one.

    >>> reads_repeatedly(ast.parse("for epoch in range(3):\n for batch in loader: step(batch)"))
    True
    >>> reads_repeatedly(ast.parse("for batch in loader:\n for p in model.parameters(): step(p)"))
    False
    """
    called: set[str] = set()
    looping: set[str] = set()
    repeats = False
    unread: list[tuple[ast.AST, str, frozenset[str] | None]] = [(tree, "", None)]
    """Each part of the tree with its function, and the names that the loops around it give; None outside of one."""
    while unread:
        syntax, function, targets = unread.pop()
        if isinstance(syntax, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function, targets = syntax.name, None
        elif isinstance(syntax, (ast.For, ast.AsyncFor, ast.comprehension)):
            if _may_be_data(syntax.iter, targets):
                looping.add(function)
                repeats = repeats or targets is not None
            targets = frozenset(_names(syntax.target)) | (targets or frozenset())
        elif isinstance(syntax, ast.While):
            repeats, targets = True, targets or frozenset()
        elif isinstance(syntax, ast.Call) and targets is not None:
            called.add(_called(syntax.func))
        unread += [(child, function, targets) for child in ast.iter_child_nodes(syntax)]
    return repeats or "iter" in called or bool(looping & called)


def _may_be_data(read: ast.expr, targets: frozenset[str] | None) -> bool:
    if isinstance(read, ast.Call) and (isinstance(read.func, ast.Attribute) or _called(read.func) == "range"):
        return False
    names = set(_names(read))
    return not names or not names <= (targets or frozenset())


def _names(syntax: ast.AST) -> list[str]:
    return [name.id for name in ast.walk(syntax) if isinstance(name, ast.Name)]


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
