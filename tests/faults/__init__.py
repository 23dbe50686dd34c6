"""The table of faults: every check has at least one row, a fault put into a real host that the check must find.

A file ``tests/faults/<topic>.py`` holds ``ROWS``, a list of `Row`. `tests/test_faults.py` runs them: the healthy fleet
is silent, the fault is put in, the check finds exactly it, the fault is taken out, the fleet is silent again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Prepared(NamedTuple):
    """More words and environment for one run of ``doctor check``."""

    arguments: Sequence[str]
    environ: Mapping[str, str] = {}


@dataclass(frozen=True)
class Row:
    """One fault and what must be said of it."""

    check: str
    fault: str
    """A ``sh -e`` script, run as root inside the host."""
    undo: str = ""
    """How the fault is taken out by hand; the tests make the host anew instead."""
    fleet: str = "a2"
    """The kind of fleet: ``cpu``, ``a1``, ``a2``, ``a3``, ``a5`` or ``gpu``, of 4 healthy hosts."""
    host: int = 1
    """The host that gets the fault, counted from 0."""
    blamed: Sequence[int] | None = None
    """The hosts that the finding must name; None stands for the one with the fault."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values that the finding must hold, as JSON shows them (a subset)."""
    says: str = ""
    """Words that the finding's message must hold."""
    options: Sequence[str] = ()
    """More words for ``doctor check``."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Environment of the controller: HCCL_IF_BASE_PORT, MASTER_PORT, ..."""
    prepare: Callable[[Any, Path, bool], Prepared] | None = None
    """Called with the fleet, a temporary folder, and whether all is to be well: what the run is started with."""
    also: Sequence[str] = ()
    """Other checks that the same fault sets off, and rightly so."""
    apart: Sequence[str] = ()
    """Checks whose faults this one hides or changes: never in one batch with it. ``*``: every other."""
    clause: str = ""
    """Words of the check's claim that this fault makes untrue, where the claim says several things: `tests.claims`."""
    healthy_first: bool = True
    """The row first checks that the same command finds nothing while the host is healthy."""

    def __str__(self) -> str:
        return f"{self.check}:{self.fault.strip().splitlines()[0][:40] if self.fault else 'intent'}"
