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
    found = False
    unread: list[tuple[ast.AST, str, frozenset[str] | None]] = [(tree, "", None)]
    """Each part of the tree with the function that it is in, and the names that the loops around it give; None outside of one."""
    while unread:
        syntax, function, given = unread.pop()
        if isinstance(syntax, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function, given = syntax.name, None
        elif isinstance(syntax, (ast.For, ast.AsyncFor, ast.comprehension)):
            if _may_be_data(syntax.iter, given):
                looping.add(function)
                found = found or given is not None
            given = frozenset(_names(syntax.target)) | (given or frozenset())
        elif isinstance(syntax, ast.While):
            found, given = True, given or frozenset()
        elif isinstance(syntax, ast.Call) and given is not None:
            called.add(_called(syntax.func))
        unread += [(child, function, given) for child in ast.iter_child_nodes(syntax)]
    return found or "iter" in called or bool(looping & called)


def _may_be_data(read: ast.expr, given: frozenset[str] | None) -> bool:
    if isinstance(read, ast.Call) and (isinstance(read.func, ast.Attribute) or _called(read.func) == "range"):
        return False
    names = set(_names(read))
    return not names or not names <= (given or frozenset())


def _names(syntax: ast.AST) -> list[str]:
    return [name.id for name in ast.walk(syntax) if isinstance(name, ast.Name)]


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
