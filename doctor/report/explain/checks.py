"""Static description of a check: its page, its line in a list, its row in the catalogue."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator

from doctor.engine.areas import by_area
from doctor.engine.check import Check
from doctor.engine.fact import Fact, Probe
from doctor.remedy.playbook import Playbook
from doctor.report.explain.playbooks import remedy_lines
from doctor.report.layout.formatting import count_noun, unwrap_lines, wrapped

WIDTH = 98


def check_page(check: Check, playbooks: Iterable[Playbook] = ()) -> str:
    """All there is to say about one check, every probe that it has run on a host, and the playbooks that treat it."""
    lines = [check.name, f"{check.severity.value}, area {check.area}", "", f"Healthy condition: {check.claim}."]
    for title in ("Why it matters", "What to do", "Source"):
        lines += _section(title, [line for line in unwrap_lines(check.section(title)) if not _is_placeholder(line)])
    intents = [need.type for need in check.needs if not need.is_fact]
    lines += _section("Job settings it uses", [f"{intent.__name__}: {_summary(intent)}" for intent in intents])
    probe_texts = [line for fact in _with_needs(check.facts) for line in probe_lines(fact)]
    lines += remedy_lines(playbooks)
    lines += ["", "What is run on the hosts", *(f"  {line}" for line in probe_texts or ["Nothing."])]
    if check.path:
        lines += ["", f"The check itself: {check.path}"]
    return "\n".join(lines) + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    body = [f"  {part}" for line in lines for part in wrapped(line, WIDTH)]
    return ["", title, *body] if body else []


def _is_placeholder(line: str) -> bool:
    """A line that a finding fills, and that says nothing without one."""
    return line.startswith("{") and line.endswith("}") and line[1:-1].isidentifier()


def _with_needs(facts: Iterable[type[Fact]]) -> list[type[Fact]]:
    """The facts by name, each after those of the first round that it is planned from."""
    ordered: dict[type[Fact], None] = {}
    for fact in sorted(facts, key=lambda candidate: candidate.__name__):
        for needed_fact in (*_with_needs(fact.needs), fact):
            ordered.setdefault(needed_fact)
    return list(ordered)


def probe_lines(fact: type[Fact]) -> Iterator[str]:
    """How one fact is learnt, in lines."""
    yield f"{fact.__name__}: {_summary(fact)}"
    probe = fact.probe
    for line in _PROBE_DESCRIPTIONS[probe.kind](fact):
        yield f"    {line}"
    rules = "; ".join([*_probe_conditions(probe), *(["collected in a second round"] if fact.needs else [])])
    if rules:
        yield f"    ({rules})"


def _summary(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0].rstrip(".")


def _command(fact: type[Fact]) -> Iterator[str]:
    yield from ("$ " + line if not number else "  " + line for number, line in enumerate(fact.probe.text.splitlines()))


def _files(fact: type[Fact]) -> Iterator[str]:
    yield from (f"reads {path}" for path in fact.probe.paths)


def _python_function(fact: type[Fact]) -> Iterator[str]:
    function = fact.probe.function
    if function is not None:
        length = count_noun(len(inspect.getsource(function).splitlines()), "line")
        yield f"runs the Python function {function.__name__} of {function.__module__} ({length})"


def _visit(fact: type[Fact]) -> Iterator[str]:
    yield "runs nothing: it is read from the connection to the host"


def _smoke(fact: type[Fact]) -> Iterator[str]:
    yield "runs nothing: it is read from the ranks of the smoke run"


_PROBE_DESCRIPTIONS = {"run": _command, "read": _files, "ask": _python_function, "visit": _visit, "smoke": _smoke}


def _probe_conditions(probe: Probe) -> Iterator[str]:
    if probe.kind in ("visit", "smoke"):
        return
    if probe.requires:
        yield f"only where {probe.requires} is installed"
    if probe.each:
        yield f"once for each {probe.each}, $1 is its number"
    if probe.root:
        yield "complete only as root; with --sudo through sudo -n"
    if probe.job:
        yield "runs where the job runs, inside the container of --within"
    if probe.lane:
        yield f"one {probe.lane} command at a time on a host"
    if probe.kind != "read":
        yield f"at most {probe.timeout:g} s"


def listing_json(checks: Iterable[Check]) -> str:
    """The same as one JSON document."""
    import json

    rows = [
        {
            "name": check.name,
            "severity": check.severity.value,
            "area": check.area,
            "claim": check.claim,
            "facts": sorted(fact.__name__ for fact in check.facts),
        }
        for _, members in by_area(checks)
        for check in members
    ]
    return json.dumps({"schema": "doctor.list/1", "checks": rows}, indent=2, sort_keys=True) + "\n"


def catalog_markdown(checks: Iterable[Check]) -> str:
    """The table of all checks in the catalogue page, by area."""
    parts: list[str] = []
    for area, members in by_area(checks):
        rows = [f"| `{check.name}` | {check.severity.value} | {_cell(check.claim)} |" for check in members]
        parts.append("\n".join([f"### {area}", "", "| check | severity | healthy condition |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
