"""Joins the modules of a program into the one text that is sent to a host.

A module of a program imports only the standard library, and names of the modules before it by ``from doctor...``. In
the joined text all modules share one namespace, so these imports are left out, like docstrings, comment lines and
repeated imports: they would only make longer what every host is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_QUOTES = '"""'


def assemble(*modules: str) -> str:
    """The text of a program, from modules in the order in which they depend on each other.

    A triple-quoted string that begins a line is taken for a docstring, so that a function or class that has only one
    needs a ``pass`` behind it.

    >>> "def exit_code" in assemble("doctor.remote.runtime.signals", "doctor.remote.runtime.processes")
    True
    """
    imports: set[str] = set()
    return "".join(line for module in modules for line in _code_lines(read_module(module), imports))


def read_module(module: str) -> str:
    """The source of a module of doctor, by its dotted name."""
    return _PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text("utf-8")


def _code_lines(text: str, imports: set[str]) -> Iterator[str]:
    """The lines that do something; ``imports`` are those that the program has already, and is added to."""
    lines = iter(text.splitlines(keepends=True))
    for line in lines:
        code = line.strip()
        if not code or code.startswith("#"):
            continue
        if code.startswith(_QUOTES):
            _skip_until(lines, code[len(_QUOTES) :], _QUOTES)
        elif line.startswith("from doctor"):
            _skip_until(lines, code, ")" if code.endswith("(") else "")
        elif not (line.startswith("import ") and line in imports):
            imports.add(line)
            yield line


def _skip_until(lines: Iterator[str], line: str, end: str) -> None:
    """Goes on to the line that ends so, if this one does not."""
    while not line.rstrip().endswith(end):
        line = next(lines)
