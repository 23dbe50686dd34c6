"""Every kind of failure that stops a smoke run: one row each.

A new kind is a name in `FailureKind`, a row in `_ROWS`, a rule in `doctor.smoke.hang` that finds it, the check
that reports it, and their tests. ``hatch run regen`` writes the names into the JSON schema of reports.
"""

from typing import Literal

import msgspec

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


_ROWS = (
    FailureKindInfo(
        name="not-started",
        meaning="its interpreter, import or device failed",
        check="smoke-rank-not-started",
        report_text="did not start",
        implies_stage=True,
    ),
    FailureKindInfo(
        name="never-joined",
        meaning="it did not complete the rendezvous",
        check="smoke-rank-never-joined",
        report_text="did not join",
        unreached_text="could not be joined",
        implies_stage=True,
    ),
    FailureKindInfo(
        name="mismatch",
        meaning="another op, dtype, size or root in the same place of the sequence",
        check="smoke-collective-mismatched",
        report_text="called a different collective than the others",
        differing_text="called different collectives",
    ),
    FailureKindInfo(
        name="order",
        meaning="a cycle of ranks that wait for each other in different collectives",
        check="smoke-collective-order",
        report_text="and other ranks waited for each other in different collectives",
        differing_text="waited for each other in different collectives",
    ),
    FailureKindInfo(
        name="dead",
        meaning="killed by a signal, or ended by an error of its own",
        check="smoke-rank-died",
        report_text="died",
    ),
    FailureKindInfo(
        name="left",
        meaning="it ended well or left the loop while others wait for it",
        check="smoke-rank-left",
        report_text="exited while other ranks waited",
    ),
    FailureKindInfo(
        name="stopped",
        meaning="SIGSTOP or a debugger",
        check="smoke-rank-stopped",
        report_text="stopped by SIGSTOP or a debugger",
        implies_text=True,
    ),
    FailureKindInfo(
        name="frozen",
        meaning="the cgroup freezer",
        check="smoke-rank-stopped",
        report_text="frozen by a cgroup",
        implies_text=True,
    ),
    FailureKindInfo(
        name="blocked",
        meaning="it sleeps or waits outside of a collective",
        check="smoke-rank-blocked",
        report_text="blocked outside of a collective",
    ),
    FailureKindInfo(
        name="busy",
        meaning="it computes and does not return",
        check="smoke-rank-blocked",
        report_text="kept computing outside of a collective",
    ),
    FailureKindInfo(
        name="input",
        meaning="it waits for its data loader",
        check="smoke-input-stalled",
        report_text="waited for its data loader",
    ),
    FailureKindInfo(
        name="network",
        meaning="all ranks entered the collective, and bytes do not arrive",
        check="smoke-network-silent",
        report_text="entered one collective, but no data arrived",
    ),
    FailureKindInfo(
        name="silent",
        meaning="a whole host sends nothing any more, neither to the controller nor to its peers",
        check="smoke-host-silent",
        report_text="on a host that stopped reporting",
    ),
    FailureKindInfo(
        name="unobserved",
        meaning="the controller's connection to a host carries nothing, and the host may be sound",
        check="smoke-host-unobserved",
        report_text="on a host that the controller lost its connection to",
        unnamed_text="ended without a verdict",
    ),
    FailureKindInfo(
        name="budget",
        meaning="the time for the run was up",
        check="smoke-budget-spent",
        report_text="not done when the time ended",
        unnamed_text="ended without a verdict",
    ),
)

FAILURE_KINDS: dict[FailureKind, FailureKindInfo] = {row.name: row for row in _ROWS}
"""By name, in the order of the schema."""
