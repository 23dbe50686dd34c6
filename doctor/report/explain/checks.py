"""What is known of a check before it runs: its page, its line in a list, its row in the README. No terminal needed."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator

from doctor.engine.areas import by_area
from doctor.engine.check import Check
from doctor.engine.fact import Fact, Probe
from doctor.remedy.playbook import Playbook
from doctor.report.explain.playbooks import remedies
from doctor.report.layout.formatting import blocks, count, wrapped

WIDTH = 98


def page(check: Check, playbooks: Iterable[Playbook] = ()) -> str:
    """All there is to say about one check, every probe that it has run on a host, and the playbooks that treat it."""
    lines = [check.name, f"{check.severity.value}, area {check.area}", "", f"When all is well: {check.claim}."]
    for title in ("Why it matters", "What to do", "Source"):
        lines += _section(title, [line for line in blocks(check.section(title)) if not _is_place(line)])
    intents = [need.type for need in check.needs if not need.is_fact]
    lines += _section("What it needs to know of the job", [f"{one.__name__}: {_summary(one)}" for one in intents])
    asked = [line for fact in _with_needs(check.facts) for line in asked_of(fact)]
    lines += remedies(playbooks)
    lines += ["", "What is run on the hosts", *(f"  {line}" for line in asked or ["Nothing."])]
    if check.path:
        lines += ["", f"The check itself: {check.path}"]
    return "\n".join(lines) + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    shown = [f"  {part}" for line in lines for part in wrapped(line, WIDTH)]
    return ["", title, *shown] if shown else []


def _is_place(line: str) -> bool:
    """A line that a finding fills, and that says nothing without one."""
    return line.startswith("{") and line.endswith("}") and line[1:-1].isidentifier()


def _with_needs(facts: Iterable[type[Fact]]) -> list[type[Fact]]:
    """The facts by name, each after those of the first round that it is planned from."""
    found: dict[type[Fact], None] = {}
    for fact in sorted(facts, key=lambda one: one.__name__):
        for one in (*_with_needs(fact.needs), fact):
            found.setdefault(one)
    return list(found)


def asked_of(fact: type[Fact]) -> Iterator[str]:
    """How one fact is learnt, in lines."""
    yield f"{fact.__name__}: {_summary(fact)}"
    probe = fact.probe
    for line in _PROBES[probe.kind](fact):
        yield f"    {line}"
    rules = "; ".join([*_rules(probe), *(["asked in a second round"] if fact.needs else [])])
    if rules:
        yield f"    ({rules})"


def _summary(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0].rstrip(".")


def _command(fact: type[Fact]) -> Iterator[str]:
    yield from ("$ " + line if not number else "  " + line for number, line in enumerate(fact.probe.text.splitlines()))


def _files(fact: type[Fact]) -> Iterator[str]:
    yield from (f"reads {path}" for path in fact.probe.paths)


def _question(fact: type[Fact]) -> Iterator[str]:
    function = fact.probe.function
    if function is not None:
        length = count(len(inspect.getsource(function).splitlines()), "line")
        yield f"runs the Python function {function.__name__} of {function.__module__} ({length})"


def _visit(fact: type[Fact]) -> Iterator[str]:
    yield "runs nothing: it is read from how the visit to the host went"


def _smoke(fact: type[Fact]) -> Iterator[str]:
    yield "asks no host: the ranks of the smoke run tell it"


_PROBES = {"run": _command, "read": _files, "ask": _question, "visit": _visit, "smoke": _smoke}


def _rules(probe: Probe) -> Iterator[str]:
    if probe.kind in ("visit", "smoke"):
        return
    if probe.requires:
        yield f"only where {probe.requires} is installed"
    if probe.each:
        yield f"once for each {probe.each}, $1 is its number"
    if probe.root:
        yield "complete only as root; with --sudo through sudo -n"
    if probe.job:
        yield "looked at where the job runs, inside the container of --within"
    if probe.lane:
        yield f"one {probe.lane} command at a time on a host"
    if probe.kind != "read":
        yield f"at most {probe.timeout:g} s"


def listing_json(checks: Iterable[Check]) -> str:
    """The same as one JSON document."""
    import json

    rows = [
        {
            "name": one.name,
            "severity": one.severity.value,
            "area": one.area,
            "claim": one.claim,
            "facts": sorted(fact.__name__ for fact in one.facts),
        }
        for _, members in by_area(checks)
        for one in members
    ]
    return json.dumps({"schema": "doctor.list/1", "checks": rows}, indent=2, sort_keys=True) + "\n"


def catalogue_markdown(checks: Iterable[Check]) -> str:
    """The README's table of all checks, by area."""
    parts: list[str] = []
    for area, members in by_area(checks):
        rows = [f"| `{one.name}` | {one.severity.value} | {_cell(one.claim)} |" for one in members]
        parts.append("\n".join([f"### {area}", "", "| check | severity | when all is well |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
