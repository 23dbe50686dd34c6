"""The report as one JSON document, ``doctor.report/1``; ``schema/doctor.report.1.json`` is its JSON Schema.

Pure ASCII, so that no terminal, log or locale is harmed by what a host printed. Keys are sorted, outcomes and hosts
have a settled order, and only ``started`` and ``seconds`` differ between two runs with the same observations.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from doctor import __version__
from doctor.engine.check import Check
from doctor.engine.exit_code import verdict
from doctor.engine.grouping import lists_by_key
from doctor.engine.report_parts import AgeKey, FindingAge, NetSummary
from doctor.engine.report_secrets import without_secrets
from doctor.engine.result import Finding, Outcome, Report, fill_template
from doctor.engine.smoke_summary import SmokeSummary, SoakFigures
from doctor.engine.texts import TextTable, table_of, texts_within
from doctor.report.formats.registry import RenderContext
from doctor.report.layout.failures import filled_fix, fix_template, why_text
from doctor.report.layout.fold import sort_by_area
from doctor.report.layout.formatting import clean, unwrap_lines
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.tally import coverage, tally
from doctor.smoke.model import Failure

SCHEMA = "doctor.report/1"
MAX_DEPTH = 50
MAX_LINE = 160
"""Characters of a line with several members, or with a whole value that is not plain."""


def encode(report: Report, code: int, checks: Mapping[str, Check] = {}) -> bytes:
    """The document; ``code`` is the exit code that it comes with, ``checks`` say why and what to do."""
    members = document(report, code, checks)
    lines = (
        f"  {_dumps(key)}: {_table(members[key]) if key == 'texts' else _layout(members[key], '  ')}"
        for key in sorted(members)
    )
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _table(texts: TextTable) -> str:
    """A line for each template."""
    rows = ",\n".join(f"    {_dumps(template)}: {_dumps(rows)}" for template, rows in texts.items())
    return f"{{\n{rows}\n  }}" if rows else "{}"


def _layout(value: Any, indent: str) -> str:
    """A value as text, in a line where it reports nothing, so that the document of a healthy host is short."""
    if not value or not isinstance(value, (dict, list)) or _is_one_line(value):
        return _dumps(value)
    inner = indent + "  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + _layout(item, inner) for item in value) + f"\n{indent}]"
    members = (f"{_dumps(key)}: {_layout(item, inner)}" for key, item in sorted(value.items()))
    return "{\n" + ",\n".join(inner + line for line in _packed(members)) + f"\n{indent}}}"


def _packed(members: Iterable[str]) -> Iterator[str]:
    """The members of an object, short ones beside each other."""
    line = ""
    for member in members:
        if line and ("\n" in line or "\n" in member or len(line) + len(member) > MAX_LINE):
            yield line
            line = ""
        line = f"{line}, {member}" if line else member
    if line:
        yield line


def _is_one_line(value: Mapping[str, Any] | Sequence[Any]) -> bool:
    """Whether it is plain values, short, or an outcome without a finding."""
    if isinstance(value, Mapping) and "status" in value and "check" in value:
        return not any(value[name] for name in ("findings", "crashed", "waived"))
    if len(_dumps(value)) <= MAX_LINE:
        return True
    parts = value.values() if isinstance(value, Mapping) else value
    return not any(isinstance(part, (dict, list)) and part for part in parts)


def document_text(value: Any) -> str:
    """Any document, in lines; pure ASCII, keys sorted."""
    return msgspec.json.format(_dumps(to_json_value(value)), indent=2) + "\n"


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, sort_keys=True)


def document(report: Report, code: int, checks: Mapping[str, Check] = {}) -> dict[str, Any]:
    """The document as plain Python values."""
    report = without_secrets(report)
    fleet = Fleet.of_report(report)
    content = {
        "schema": SCHEMA,
        "version": __version__,
        "verdict": verdict(report, code).value,
        "exit": int(code),
        "source": _text(report.source),
        "started": _text(report.started),
        "seconds": round(report.seconds, 3) if math.isfinite(report.seconds) else 0.0,
        "hosts": [_text(host) for host in report.hosts],
        "counts": msgspec.to_builtins(tally(report)),
        "coverage": msgspec.to_builtins(coverage(report, tally(report))),
        "outcomes": [
            _outcome(outcome, fleet, report.ages, checks.get(outcome.check))
            for outcome in sort_by_area(report.outcomes)
        ],
        "notes": [_text(note) for note in report.notes],
        "hosts_unknown": _text(report.hosts_unknown),
        "after_reboot": report.after_reboot,
        "smoke": _smoke(report.smoke) if report.smoke else None,
        "net": _net(report.net, report.hosts) if report.net else None,
        "losses": _plain(report.losses),
        "pace": _plain(report.pace),
    }
    return {**content, "texts": table_of(texts_within(content))}


def _net(summary: NetSummary, hosts: Sequence[str]) -> dict[str, Any]:
    return {
        "mode": _text(summary.mode),
        "hosts": [_text(hosts[place]) for place in summary.hosts],
        "ports": [{"purpose": _text(purpose), "number": number} for purpose, number in summary.ports],
        "rows": [list(rows) for rows in summary.rows],
        "coverage": _text(summary.coverage),
        "speeds": [to_json_value(speed) for speed in summary.speeds],
    }


def _smoke(summary: SmokeSummary) -> dict[str, Any]:
    return {
        **_plain(summary),
        "hosts": [{"host": _text(host), "ranks": ranks} for host, ranks in summary.hosts.items()],
        "failures": [_failure_document(failure) for failure in summary.failures],
        "soak": _soak(summary.soak) if summary.soak else None,
    }


def _soak(soak: SoakFigures) -> dict[str, Any]:
    calls = [{"op": _text(op), "calls": count} for op, count in soak.calls.items()]
    return {**_plain(soak), "calls": calls}


def _plain(figures: Any) -> Any:
    """Structures of figures, and all in them, as objects. Not of a `Failure`, which leaves out what is not known."""
    return to_json_value(msgspec.to_builtins(figures))


def _failure_document(failure: Failure) -> dict[str, Any]:
    by_rank = {name: sorted(getattr(failure, name).items()) for name in ("calls", "states", "stacks")}
    listed = {name: [{"rank": rank, "text": _text(text)} for rank, text in rows] for name, rows in by_rank.items()}
    links = [{"from": _text(source), "to": _text(destination)} for source, destination in failure.links]
    known_ages = [(rank, seconds) for rank, seconds in sorted(failure.ages.items()) if math.isfinite(seconds)]
    ages = [{"rank": rank, "seconds": seconds} for rank, seconds in known_ages]
    return {**to_json_value(msgspec.structs.asdict(failure)), **listed, "ages": ages, "links": links}


def _outcome(outcome: Outcome, fleet: Fleet, ages: Mapping[AgeKey, FindingAge], check: Check | None) -> dict[str, Any]:
    """One check's part of the document. ``ages``: since when findings are there."""
    why = "\n".join(unwrap_lines(why_text(check, outcome.findings))) if outcome.findings else ""
    unknown = {host: (why.text, why.root_cause) for host, why in outcome.unknown.items()}
    return {
        "check": outcome.check,
        "area": outcome.area,
        "severity": outcome.severity.value,
        "status": outcome.status.value,
        "claim": _text(outcome.claim),
        "why": _text(why),
        "evaluated_hosts": [_text(host) for host in outcome.evaluated_hosts],
        "findings": [
            {
                **_finding(outcome, finding, fleet),
                "remedy": _remedy(finding, fleet, check),
                "ages": _ages(outcome.check, finding, ages, fleet),
            }
            for finding in outcome.findings
        ],
        "unknown": _gaps(unknown, fleet, ("reason", "root_cause")),
        "skipped": _gaps({host: (why,) for host, why in outcome.skipped.items()}, fleet, ("reason",)),
        "crashed": _gaps({host: (trace,) for host, trace in outcome.crashed.items()}, fleet, ("traceback",)),
        "complete": outcome.complete,
        "waived": [
            {**_finding(outcome, waived.finding, fleet), "reason": _text(waived.reason), "until": _text(waived.until)}
            for waived in outcome.waived
        ],
    }


def _finding(outcome: Outcome, finding: Finding, fleet: Fleet) -> dict[str, Any]:
    """The message is made of what the document holds, so that a reader of the document makes the same one."""
    template, values = (
        _text(finding.template),
        {_text(key): to_json_value(value) for key, value in finding.values.items()},
    )
    return {
        "message": clean(fill_template(template, fleet.format_values(values)), 2000),
        "severity": outcome.severity_of(finding).value,
        "follows_from": _text(finding.follows_from),
        "template": template,
        "hosts": list(map(_text, fleet.ordered(finding.hosts))),
        "values": values,
    }


def _remedy(finding: Finding, fleet: Fleet, check: Check | None) -> str:
    """What to do about a finding, with its values, as lines; empty where nothing tells."""
    fix = fix_template(check, (finding,))
    return _text("\n".join(filled_fix(fix, finding, fleet.ordered(finding.hosts), fleet)))


def _ages(check: str, finding: Finding, ages: Mapping[AgeKey, FindingAge], fleet: Fleet) -> list[dict[str, Any]]:
    """What earlier runs tell of a finding, hosts that share it together; empty where they tell nothing."""
    by_age: dict[FindingAge, list[str]] = {}
    for host in finding.hosts or ("",):
        age = ages.get((check, host))
        if age is not None:
            by_age.setdefault(age, []).append(host)
    return [
        {"hosts": list(map(_text, fleet.ordered(hosts))), **msgspec.to_builtins(age)}
        for age, hosts in sorted(by_age.items())
    ]


def _gaps(by_host: Mapping[str, tuple[str, ...]], fleet: Fleet, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Hosts that share a reason, together; no hosts stand for the fleet as a whole."""
    shared = lists_by_key(((bool(host), texts), host) for host, texts in by_host.items())
    hosts: dict[tuple[bool, tuple[str, ...]], list[str]] = {}
    for (is_host, texts), members in shared.items():
        hosts.setdefault((is_host, tuple(map(_text, texts))), []).extend(members)
    return [
        {"hosts": list(map(_text, fleet.ordered(named))), **dict(zip(names, texts, strict=True))}
        for (_, texts), named in sorted(hosts.items())
    ]


def to_json_value(value: Any, depth: int = 0) -> Any:
    """Any value as JSON can hold it: tuples and sets as lists, bytes and all other things as text."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray)):
        return _text(bytes(value).decode("utf-8", "backslashreplace"))
    if depth < MAX_DEPTH and isinstance(value, Mapping):
        encoded = {_text(str(_key(key))): to_json_value(item, depth + 1) for key, item in value.items()}
        return dict(sorted(encoded.items(), key=_natural))
    if depth < MAX_DEPTH and isinstance(value, (list, tuple)):
        return [to_json_value(item, depth + 1) for item in value]
    if depth < MAX_DEPTH and isinstance(value, (set, frozenset)):
        return [to_json_value(item, depth + 1) for item in sorted(value, key=str)]
    return _text(str(value))


def _natural(item: tuple[str, Any]) -> tuple[int, str]:
    """Numbers by their size: the document's own order of keys is the alphabet's, and a reader has no other."""
    key = item[0]
    return (int(key) if key.isascii() and key.isdecimal() and len(key) < 19 else -1, key)


def _key(key: Any) -> Any:
    return key.value if isinstance(key, enum.Enum) else key


def _text(text: str) -> str:
    """Without lone surrogates, which no strict JSON reader takes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def render(report: Report, context: RenderContext) -> str:
    """The document as text."""
    return encode(report, context.code, context.checks_by_name).decode("utf-8")
