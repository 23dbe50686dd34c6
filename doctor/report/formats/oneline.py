"""The whole run on one line, for a job's log, a termination message, a grep.

    doctor preflight: FAIL nodes=62/64 bad=node[007,023] why=link-down:node[007,023] exit=10 t=13.1s

The word comes first, the keys have a settled order, and one that has nothing to say is left out, but for ``nodes``,
``exit`` and ``t``. No value holds white space, what a host could have made up is spelled out in %XX, and the line has
at most `LONGEST` characters, however many hosts there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from doctor.engine.exit_code import Exit, Verdict, verdict
from doctor.engine.result import Outcome, Report, Severity, Status
from doctor.report.layout.fold import fold
from doctor.report.layout.host_health import health, unknown_hosts
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.next_step import advice
from doctor.report.layout.one_word import NAME, escaped, few, some

__all__ = ["LONGEST", "advice", "causes", "line", "word_of"]

LONGEST = 1000
WHY = 5
"""Causes that are named; the rest are counted."""
WORDS = {
    Verdict.HEALTHY: "OK",
    Verdict.FAILED: "FAIL",
    Verdict.WARNINGS: "WARN",
    Verdict.UNKNOWN: "UNKNOWN",
    Verdict.NOTHING: "NOTHING",
}


class _Room(NamedTuple):
    """Characters for lists of hosts."""

    bad: int
    cause: int


_ROOMS = (_Room(240, 60), _Room(100, 30), _Room(40, 12), _Room(0, 0))


def line(
    report: Report,
    code: int,
    *,
    command: str = "check",
    where: str = "",
    tier: str = "",
    skipped: Sequence[str] = (),
    need: int = 0,
    path: str = "",
    seconds: float | None = None,
    word: str = "",
    cause: str = "",
) -> str:
    """The line, without a line feed; ``code`` is the exit code that it comes with, ``word`` stands for the verdict's.

    ``nodes`` counts healthy hosts of all; ``warn`` and ``waived`` count checks; ``unknown`` counts checks that could
    not look at all they should for a reason of their own, and names the hosts. ``why`` names what the word rests on:
    errors, else what is unknown, else warnings; ``cause`` stands there where nothing was judged at all.
    """
    known = word or word_of(report, code, need)
    ends = [("need", str(need) if need else ""), ("where", escaped(where, limit=80)), ("tier", escaped(tier, limit=20))]
    time = report.seconds if seconds is None else seconds
    ends += [("exit", str(int(code))), ("t", f"{time:.1f}s" if 0 <= time < 1e9 else "?s"), ("report", _path(path))]
    shown = _Shown(report, code)
    for room in _ROOMS:
        found = [(key, value or (escaped(cause) if key == "why" else "")) for key, value in shown.keys(room)]
        keys = [*found, ("skip", some(skipped, room.bad)), *ends]
        text = " ".join([f"doctor {command}: {known}", *(f"{key}={value}" for key, value in keys if value)])
        if len(text) <= LONGEST:
            break
    return text


def word_of(report: Report, code: int, need: int = 0) -> str:
    """The verdict in capitals. A run that was cut short is never well; enough healthy hosts are, if so asked."""
    known = verdict(report, code)
    if need and code == Exit.HEALTHY:
        return "OK"
    cut = code in (Exit.BUG, 129, Exit.INTERRUPTED, Exit.TERMINATED)
    return "UNKNOWN" if cut and known in (Verdict.HEALTHY, Verdict.WARNINGS) else WORDS[known]


def causes(report: Report, code: int | None = None) -> list[tuple[str, tuple[str, ...]]]:
    """What the verdict rests on, by check, with the hosts: errors, else what is unknown, else warnings.

    Those that explain most come first, then in the order in which a job meets them.
    """
    failures = sorted((one for area in fold(report).areas for one in area.failures), key=lambda one: -len(one.hides))
    found = [one for one in failures if one.is_error]
    if not found and verdict(report, code) is not Verdict.UNKNOWN:
        found = failures
    return [(one.outcome.check, one.hosts) for one in found] or _dark(report)


def _dark(report: Report) -> list[tuple[str, tuple[str, ...]]]:
    checks: dict[str, list[str]] = {}
    for host, names in unknown_hosts(report).items():
        for name in names:
            checks.setdefault(name, []).append(host)
    fleet = Fleet(report.hosts)
    return sorted(((name, fleet.ordered(hosts)) for name, hosts in checks.items()), key=lambda one: -len(one[1]))


class _Shown:
    """The part of the line that a report fills."""

    def __init__(self, report: Report, code: int) -> None:
        self.report, self.fleet, self.health = report, Fleet(report.hosts), health(report)
        self.causes = causes(report, code)
        self.unknown = unknown_hosts(report)

    def keys(self, room: _Room) -> Iterator[tuple[str, str]]:
        report, well = self.report, self.health
        yield "nodes", f"{len(well.healthy)}/{len(report.hosts)}"
        yield "bad", few(well.bad, self.fleet, room.bad)
        yield "why", ",".join(self.why(room))
        dark = {name for names in self.unknown.values() for name in names}
        hosts = few([host for host in self.unknown if host], self.fleet, room.cause)
        yield "unknown", f"{len(dark)}{':' if hosts else ''}{hosts}" if dark else ""
        yield "smoke", report.smoke.ended if report.smoke and report.smoke.ended != "complete" else ""
        yield "warn", _number(_is_warning(one) for one in report.outcomes)
        yield "waived", _number(bool(one.waived) for one in report.outcomes)

    def why(self, room: _Room) -> Iterator[str]:
        for name, hosts in self.causes[:WHY]:
            shown = few(hosts, self.fleet, room.cause)
            yield f"{escaped(name, NAME, 60)}{':' if shown else ''}{shown}"
        if len(self.causes) > WHY:
            yield f"+{len(self.causes) - WHY}"


def _is_warning(outcome: Outcome) -> bool:
    return outcome.status is Status.FAILED and outcome.severity is Severity.WARNING


def _number(these: Iterable[bool]) -> str:
    return str(sum(these) or "")


def _path(path: str) -> str:
    shown = escaped(path, limit=10_000)
    return shown if len(shown) <= 300 else ""
