"""A report out of its own JSON document, as another run or another machine wrote it.

Whoever wrote the file is not trusted: every part is held against its type, names that are shown as they stand must be
names, and what is wrong is told with its place. A document of an earlier version lacks keys that were added since.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec

from doctor.engine.result import Finding, Outcome, Reason, Report, Severity, Status, Waived
from doctor.engine.smoke_summary import Summary
from doctor.report.formats.json import SCHEMA

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z", max_length=100)]


class BadReport(Exception):
    """A file that holds no report: what, where, what was expected."""


class _Finding(msgspec.Struct, frozen=True):
    template: str
    hosts: tuple[str, ...]
    values: dict[str, Any]

    def made(self) -> Finding:
        found = Finding(self.template, hosts=self.hosts)
        found.values.update(self.values)  # any name may be a value's, `hosts` too
        return found


class _Waived(_Finding, frozen=True):
    reason: str
    until: str


class _Unknown(msgspec.Struct, frozen=True):
    hosts: tuple[str, ...]
    reason: str
    because: str


class _Skipped(msgspec.Struct, frozen=True):
    hosts: tuple[str, ...]
    reason: str


class _Crashed(msgspec.Struct, frozen=True):
    hosts: tuple[str, ...]
    traceback: str


class _Outcome(msgspec.Struct, frozen=True):
    check: Name
    area: Name
    severity: Severity
    status: Status
    claim: str
    looked: tuple[str, ...]
    findings: tuple[_Finding, ...]
    unknown: tuple[_Unknown, ...]
    skipped: tuple[_Skipped, ...]
    crashed: tuple[_Crashed, ...]
    complete: bool | None = None
    waived: tuple[_Waived, ...] = ()

    def made(self) -> Outcome:
        passed = self.status is Status.PASSED
        return Outcome(
            self.check,
            self.severity,
            self.area,
            self.claim,
            tuple(one.made() for one in self.findings),
            self.looked,
            {host: Reason(one.reason, one.because) for one in self.unknown for host in one.hosts or ("",)},
            {host: one.reason for one in self.skipped for host in one.hosts or ("",)},
            {host: one.traceback for one in self.crashed for host in one.hosts or ("",)},
            passed or bool(self.looked) if self.complete is None else self.complete,
            tuple(Waived(one.made(), one.reason, one.until) for one in self.waived),
        )


class _Document(msgspec.Struct, frozen=True):
    schema: Literal["doctor.report/1"]
    source: str
    started: str
    seconds: float
    hosts: tuple[str, ...]
    outcomes: tuple[_Outcome, ...]
    notes: tuple[str, ...]
    smoke: dict[str, Any] | None = None

    def made(self) -> Report:
        smoke = _smoke(self.smoke) if self.smoke is not None else None
        outcomes = tuple(one.made() for one in self.outcomes)
        return Report(self.source, self.hosts, outcomes, self.started, self.seconds, self.notes, smoke)


def decode(data: bytes, name: str) -> Report:
    """The report in a JSON document; ``name`` is the file's, for errors. Raises: BadReport."""
    return made_of(parsed(data, name), name)


def parsed(data: bytes, name: str) -> dict[str, Any]:
    """A JSON object, of whatever kind. Raises: BadReport."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadReport(f"{name}: not JSON: {_told(error)}") from None
    if not isinstance(found, dict):
        raise BadReport(f"{name}: expected a JSON object, a saved run or a report")
    return found


def made_of(document: dict[str, Any], name: str) -> Report:
    """The report in a document that was parsed. Raises: BadReport."""
    if document.get("schema") != SCHEMA:
        raise BadReport(f"{name}: not a report; expected one that --json or -f json wrote ({SCHEMA})")
    try:
        return msgspec.convert(document, _Document).made()
    except (msgspec.ValidationError, RecursionError, LookupError, TypeError, ValueError) as error:
        raise BadReport(f"{name}: not a report: {_told(error)}") from None


def _told(error: BaseException) -> str:
    from doctor.engine.sanitize import plain

    return "nested too deep" if isinstance(error, RecursionError) else plain(str(error) or type(error).__name__)


_NOT_FINITE = ("nan", "inf", "-inf")


def _smoke(told: dict[str, Any]) -> Summary:
    """The run in figures; what JSON has as lists of objects are mappings by rank or host."""
    troubles = [_trouble(one) for one in told["troubles"]]
    layouts = [{**one, "error": _number(one["error"])} for one in told["layouts"]]
    figures = [{key: _number(value) for key, value in one.items()} for one in told["figures"]]
    hosts = {one["host"]: one["ranks"] for one in told["hosts"]}
    more = {"troubles": troubles, "layouts": layouts, "figures": figures, "hosts": hosts}
    return msgspec.convert({**told, **more}, Summary)


def _trouble(told: dict[str, Any]) -> dict[str, Any]:
    by_rank = {name: {one["rank"]: one["text"] for one in told[name]} for name in ("calls", "states", "stacks")}
    return {**told, **by_rank, "links": [(one["from"], one["to"]) for one in told["links"]]}


def _number(value: Any) -> Any:
    return float(value) if value in _NOT_FINITE else value
