"""Every kind of failure that stops a smoke run: one row each.

A new kind is a name in `FailureKind`, a row in `_ROWS`, a rule in `doctor.smoke.hang` that finds it, the check
that reports it, and their tests. ``hatch run regen`` writes the names into the JSON schema of reports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from doctor.engine.toml_compat import read_table

FailureKind = Literal[
    "not-started",
    "never-joined",
    "mismatch",
    "order",
    "dead",
    "left",
    "stopped",
    "frozen",
    "blocked",
    "busy",
    "input",
    "network",
    "silent",
    "unobserved",
    "budget",
]
"""Written out because types are read without running the program; a test holds it equal to the rows."""


class FailureKindInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The words and properties of one kind of failure."""

    name: FailureKind
    meaning: str
    check: str
    """Name of the check that reports it."""
    report_text: str
    """Stands in reports behind the ranks: ``rank 5 died``."""
    differing_text: str = ""
    """The same where the ranks differ among themselves; empty where that makes no difference."""
    unreached_text: str = ""
    """The same where others did not reach the ranks; empty for a kind that has no such failures."""
    unnamed_text: str = ""
    """The same where no rank is named; empty where that makes no difference."""
    implies_stage: bool = False
    """The kind implies its stage."""
    implies_text: bool = False
    """The failure's text adds nothing to its kind."""


_ROWS = read_table(Path(__file__).with_suffix(".toml"), dict[str, tuple[FailureKindInfo, ...]])["kind"]

FAILURE_KINDS: dict[FailureKind, FailureKindInfo] = {row.name: row for row in _ROWS}
"""By name, in the order of the schema."""
