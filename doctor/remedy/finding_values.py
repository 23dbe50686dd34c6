"""The values that a check's findings supply to playbooks, read from the check's source without running it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from doctor.engine.shell_quote import placeholder_names


def read_finding_values(path: Path) -> frozenset[str]:
    """The names of the values that the check in one file supplies.

    That is the keywords of each ``Finding(...)``, and the placeholders of its templates and of its page: they also
    tell what comes out of ``**values`` and of a function that makes the findings.

    Raises: OSError, SyntaxError, ValueError for a file that is no Python.
    """
    return _names_in_source(path.read_bytes())


@functools.cache
def _names_in_source(source: bytes) -> frozenset[str]:
    """As `read_finding_values`; most checks are treated by several playbooks."""
    tree = ast.parse(source)
    names: set[str] = set()
    for node in ast.walk(tree):
        names.update(_keywords(node))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= placeholder_names(node.value)
    return frozenset(names)


def _keywords(node: ast.AST) -> Iterator[str]:
    """The named values of a finding, or of the call that makes the check's findings."""
    if isinstance(node, ast.YieldFrom):
        yield from (name for inner in ast.walk(node) for name in _keyword_names(inner))
        yield from ("observed", "expected")
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
        yield from _keyword_names(node)


def _keyword_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        yield from (keyword.arg for keyword in node.keywords if keyword.arg)
