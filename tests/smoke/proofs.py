"""Which real run sets off each check of the smoke run. A check that no fault has ever set off is not proven.

The checks that judge training and collectives are proven by faults in the program of the ranks, not of a host, so that
they have no row in `tests.faults`. A check is proven by a wrong program, by a kind of fault, or by a test of this
folder that is marked ``@pytest.mark.proves("smoke-rank-slow")``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from doctor.engine.smoke_failures import FAILURE_KINDS
from tests.smoke.faults import KINDS
from tests.smoke.mutants import MUTANTS


def marked_tests() -> Iterator[tuple[str, str]]:
    """Each check that a mark names, and the test: its file and name."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        text = path.read_text("utf-8")
        if "mark.proves(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                calls = [mark for mark in node.decorator_list if isinstance(mark, ast.Call)]
                names = [call.args for call in calls if ast.unparse(call.func) == "pytest.mark.proves"]
                yield from ((ast.literal_eval(name), f"{path.name}::{node.name}") for some in names for name in some)


def proven() -> set[str]:
    """The names of all checks that a real run sets off."""
    by_faults = {FAILURE_KINDS[kind].check for kinds in KINDS.values() for kind in kinds}  # type: ignore[index]
    return {*(name for name, _ in marked_tests()), *by_faults, *(mutant.check for mutant in MUTANTS)}
