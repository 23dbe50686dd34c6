"""A report out of its own JSON document, as another run or another machine wrote it.

Whoever wrote the file is not trusted: every part is held against its type, names that are shown as they stand must be
names, and an error is reported with its place. A document of an earlier version lacks keys that were added since.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from doctor.engine.language import is_english
from doctor.engine.record import ENGLISH_NOTE
from doctor.engine.report_parts import FindingAge, NetSummary
from doctor.engine.result import CheckName, Finding, Outcome, Reason, Report, Severity, Status, Waived
from doctor.engine.sanitize import UTF8_MARK, parse_problem
from doctor.engine.smoke_summary import SmokeSummary
from doctor.engine.texts import TextTable, filled, read_table
from doctor.engine.watch_summary import LossCurve, RankPace
from doctor.net.matrix import PathSpeed
from doctor.report.formats.json import SCHEMA

OptionalName = Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]*)?\Z", max_length=100)]


class BadReport(Exception):
    """A file that holds no report: what, where, what was expected."""


class _Age(FindingAge, frozen=True, kw_only=True):
    hosts: tuple[str, ...] = ()


class _Finding(msgspec.Struct, frozen=True):
    template: str
    hosts: tuple[str, ...]
    values: dict[str, object]
    severity: Severity
    follows_from: OptionalName = ""
    ages: tuple[_Age, ...] = ()

    def to_finding(self) -> Finding:
        finding = Finding(self.template, hosts=self.hosts)
        finding.values.update(self.values)  # any name may be a value's, `hosts` too
        return finding.as_warning(self.severity is Severity.WARNING).following(self.follows_from)


class _Waived(_Finding, frozen=True, kw_only=True):
    reason: str
    until: str


class _Skipped(msgspec.Struct, frozen=True):
    hosts: tuple[str, ...]
    reason: str


class _Unknown(_Skipped, frozen=True):
    root_cause: str


class _Crashed(msgspec.Struct, frozen=True):
    hosts: tuple[str, ...]
    traceback: str


class _Outcome(msgspec.Struct, frozen=True):
    check: CheckName
    area: CheckName
    severity: Severity
    status: Status
    claim: str
    evaluated_hosts: tuple[str, ...]
    findings: tuple[_Finding, ...]
    unknown: tuple[_Unknown, ...]
    skipped: tuple[_Skipped, ...]
    crashed: tuple[_Crashed, ...]
    complete: bool | None = None
    waived: tuple[_Waived, ...] = ()

    def to_outcome(self) -> Outcome:
        passed = self.status is Status.PASSED
        return Outcome(
            self.check,
            self.severity,
            self.area,
            self.claim,
            tuple(finding.to_finding() for finding in self.findings),
            self.evaluated_hosts,
            {
                host: Reason(unknown.reason, unknown.root_cause)
                for unknown in self.unknown
                for host in unknown.hosts or ("",)
            },
            {host: skipped.reason for skipped in self.skipped for host in skipped.hosts or ("",)},
            {host: crash.traceback for crash in self.crashed for host in crash.hosts or ("",)},
            passed or bool(self.evaluated_hosts) if self.complete is None else self.complete,
            tuple(Waived(waived.to_finding(), waived.reason, waived.until) for waived in self.waived),
        )


class _Document(msgspec.Struct, frozen=True):
    schema: Literal["doctor.report/1"]
    source: str
    started: str
    seconds: float
    hosts: tuple[str, ...]
    outcomes: tuple[_Outcome, ...]
    notes: tuple[str, ...]
    smoke: dict[str, object] | None = None
    hosts_unknown: str = ""
    net: _Net | None = None
    losses: tuple[LossCurve, ...] = ()
    pace: tuple[RankPace, ...] = ()
    after_reboot: bool = False
    texts: TextTable | None = None

    def to_report(self) -> Report:
        read_table(self.texts or {})
        untranslated = self.texts is None and not is_english()
        smoke = _smoke_summary(self.smoke) if self.smoke is not None else None
        outcomes = tuple(outcome.to_outcome() for outcome in self.outcomes)
        return Report(
            self.source,
            self.hosts,
            outcomes,
            self.started,
            self.seconds,
            (*self.notes, filled(ENGLISH_NOTE, SCHEMA)) if untranslated else self.notes,
            smoke,
            self.net.to_summary(self.hosts) if self.net else None,
            self.hosts_unknown,
            {
                (outcome.check, host): FindingAge(age.state, age.since, age.runs, age.at_least, age.times)
                for outcome in self.outcomes
                for finding in outcome.findings
                for age in finding.ages
                for host in age.hosts or ("",)
            },
            self.losses,
            self.pace,
            self.after_reboot,
        )


class _Port(msgspec.Struct, frozen=True):
    purpose: str
    number: int


class _Net(msgspec.Struct, frozen=True):
    mode: str
    hosts: tuple[str, ...]
    ports: tuple[_Port, ...]
    rows: tuple[tuple[str, ...], ...]
    coverage: str
    speeds: tuple[dict[str, float | None], ...] = ()

    def to_summary(self, hosts: Sequence[str]) -> NetSummary | None:
        """None where the figures do not fit the report's hosts."""
        count = len(self.hosts)
        square = len(self.rows) == len(self.ports) and all(
            len(rows) == count and all(len(row) == count for row in rows) for rows in self.rows
        )
        if not square or not set(self.hosts) <= set(hosts):
            return None
        ports = tuple((port.purpose, port.number) for port in self.ports)
        return NetSummary(
            self.mode,
            tuple(map(list(hosts).index, self.hosts)),
            ports,
            self.rows,
            self.coverage,
            tuple(map(_path_speed, self.speeds)),
        )


def _path_speed(fields: dict[str, float | None]) -> dict[str, float | None]:
    """The fields of a path's speed, whole numbers as such. Raises: msgspec.ValidationError."""
    numbers = {
        name: int(value) if value is not None and value.is_integer() else value for name, value in fields.items()
    }
    return msgspec.structs.asdict(msgspec.convert(numbers, PathSpeed))


def decode(data: bytes, name: str) -> Report:
    """The report in a JSON document; ``name`` is the file's, for errors. Raises: BadReport."""
    return report_from_document(parse_document(data, name), name)


def parse_document(data: bytes, name: str) -> dict[str, object]:
    """A JSON object with any content. Raises: BadReport."""
    try:
        document = json.loads(data.removeprefix(UTF8_MARK))
    except (ValueError, RecursionError) as error:
        raise BadReport(filled("{0}: not JSON: {1}", name, parse_problem(error, data=data))) from None
    if not isinstance(document, dict):
        raise BadReport(filled("{0}: expected a JSON object, a saved run or a report", name))
    return document


def report_from_document(document: dict[str, object], name: str) -> Report:
    """The report in a document that was parsed. Raises: BadReport."""
    if document.get("schema") != SCHEMA:
        raise BadReport(filled("{0}: not a report; expected one that --json or -f json wrote ({1})", name, SCHEMA))
    try:
        return msgspec.convert(document, _Document).to_report()
    except (msgspec.ValidationError, RecursionError, LookupError, TypeError, ValueError) as error:
        raise BadReport(filled("{0}: not a report: {1}", name, parse_problem(error))) from None


_NOT_FINITE = ("nan", "inf", "-inf")


def _smoke_summary(fields: dict[str, Any]) -> SmokeSummary:
    """The run in figures; what JSON has as lists of objects are mappings by rank or host."""
    failures = [_failure_fields(failure) for failure in fields["failures"]]
    layouts = [{**layout, "error": _number(layout["error"])} for layout in fields["layouts"]]
    figures = [{key: _number(value) for key, value in figure.items()} for figure in fields["collective_speeds"]]
    hosts = {entry["host"]: entry["ranks"] for entry in fields["hosts"]}
    soak = fields.get("soak")
    if soak:
        soak = {**soak, "calls": {entry["op"]: entry["calls"] for entry in soak["calls"]}}
    more = {"soak": soak, "failures": failures, "layouts": layouts, "collective_speeds": figures, "hosts": hosts}
    return msgspec.convert({**fields, **more}, SmokeSummary)


def _failure_fields(fields: dict[str, Any]) -> dict[str, Any]:
    by_rank = {name: {entry["rank"]: entry["text"] for entry in fields[name]} for name in ("calls", "states", "stacks")}
    ages = {entry["rank"]: entry["seconds"] for entry in fields.get("ages", ())}
    return {**fields, **by_rank, "ages": ages, "links": [(link["from"], link["to"]) for link in fields["links"]]}


def _number(value: Any) -> Any:
    return float(value) if value in _NOT_FINITE else value
