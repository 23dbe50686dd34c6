"""Each clause of each check's claim, and the test that makes it untrue.

A claim is the first line of a check's page: what a tick says. One that says several things ("are writable and have
free space") is true only if each of them was looked at. ``claims.toml`` holds, by check and by words of its claim, a
test that gives the check a fault, and words of the finding that denies just these. A row of `tests.faults` may name its
clause itself. A claim that says one thing needs no row: `tests.test_faults` wants a fault for each check.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from doctor.engine.toml_compat import loads

SEPARATOR = re.compile(r"; |: |, (?:and |or |nor |where )?| and | or | nor ")
"""What may stand between two clauses."""
FRAME = "The kernel's log, up to 24 hours back, "
"""Where one kind of checks looks: no clause of its own."""
FAULTS = Path(__file__).with_name("faults")


class Proof(NamedTuple):
    """A test in ``tests/``, such as ``checks/test_disk_full.py::test_no_room``, and words of its finding."""

    test: str
    says: str


@cache
def proofs() -> dict[str, dict[str, Proof]]:
    """By check and clause. A test without a file is in that of the check."""
    table = loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {
        check: {words: Proof(_in_file(check, test), says) for words, (test, says) in clauses.items()}
        for check, clauses in table.items()
    }


def _in_file(check: str, test: str) -> str:
    return test if "::" in test else f"checks/test_{check.replace('-', '_')}.py::{test}"


@cache
def clauses_of_faults() -> dict[str, set[str]]:
    """By check, the clauses that a fault in a real host breaks."""
    clauses: dict[str, set[str]] = {}
    for path in FAULTS.glob("[a-z]*.py"):
        for row in importlib.import_module(f"tests.faults.{path.stem}").ROWS:
            if row.clause:
                clauses.setdefault(row.check, set()).add(row.clause)
    return clauses


def parts(claim: str) -> list[str]:
    """A claim, divided wherever another clause may begin.

    >>> parts("Every disk is writable, and none is full or slow.")
    ['Every disk is writable', 'none is full', 'slow']
    """
    return [part for part in SEPARATOR.split(claim.rstrip(".").removeprefix(FRAME)) if part]


def unproven(check: str, claim: str) -> Iterator[str]:
    """The parts of a claim that lie in no clause with a proof. A clause may hold several parts: they say one thing."""
    if len(parts(claim)) == 1:
        return
    clauses = {*proofs().get(check, {}), *clauses_of_faults().get(check, ())}
    for part in parts(claim):
        if not any(part in clause or clause in part for clause in clauses):
            yield part
