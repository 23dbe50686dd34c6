"""Made-up runs for the tests of the history: what each check says of each host, in letters."""

from __future__ import annotations

from doctor.engine.check import Check, check
from doctor.engine.fact import PerHost
from doctor.engine.result import ERROR, Finding, Outcome, Reason, Report, Waived
from doctor.facts.memory import HostMemory
from doctor.history.run_record import RunRecord, make_record


def link_down(memory: HostMemory):  # type: ignore[no-untyped-def]
    """The link of every NPU is up."""
    return iter(())


def driver_differs(memory: PerHost[HostMemory]):  # type: ignore[no-untyped-def]
    """All hosts have one driver."""
    return iter(())


CHECKS = tuple(Check(check(severity=ERROR, area="links")(function)) for function in (link_down, driver_differs))
LINK, DRIVER = (entry.name for entry in CHECKS)


def at(minute: int) -> str:
    """The start of a run."""
    return f"2026-11-21T14:{minute:02d}:00Z"


def outcome(name: str, states: dict[str, str]) -> Outcome:
    """``states``: E error, W warning, A waived, . clear, ? unknown, s skipped, for each host."""
    return Outcome(
        name,
        ERROR,
        "links",
        "All is well",
        tuple(
            Finding("down", hosts=(host,)).as_warning(state == "W") for host, state in states.items() if state in "EW"
        ),
        tuple(host for host, state in states.items() if state in "EWA."),
        {host: Reason("no answer") for host, state in states.items() if state == "?"},
        {host: "no NPU" for host, state in states.items() if state == "s"},
        complete=any(state in "EWA." for state in states.values()),
        waived=tuple(
            Waived(Finding("down", hosts=(host,)), "known", "2026-12-31")
            for host, state in states.items()
            if state == "A"
        ),
    )


def report(minute: int, name: str = LINK, **states: str) -> Report:
    """One run with one check; hosts are named by the keywords."""
    return Report("test", tuple(states), (outcome(name, states),), at(minute), 1.0)


def record(minute: int, name: str = LINK, command: str = "check", **states: str) -> RunRecord:
    return make_record(report(minute, name, **states), CHECKS, command)
