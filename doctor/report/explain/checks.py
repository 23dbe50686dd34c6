"""Static description of a check: its page, its line in a list, its row in the catalogue."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping

from doctor.engine.check import Check
from doctor.engine.check_files import by_area
from doctor.engine.fact import OWN_ROUND, Fact, Probe
from doctor.engine.language import localized, phrase
from doctor.engine.result import IN_CONTAINER
from doctor.engine.sanitize import strip_control_chars
from doctor.remedy.playbook import Playbook
from doctor.report.explain.examples import EXAMPLES, ExampleFinding, fill_placeholders
from doctor.report.explain.playbooks import WIDTH, remedy_lines
from doctor.report.layout.advice import case_labels, mark_personal_words
from doctor.report.layout.formatting import bracketed, count_noun, unwrap_lines, wrapped

MAX_LINE_CHARS = 4000
"""Characters kept of one line of a site's own check."""


def check_page(
    check: Check, playbooks: Iterable[Playbook] = (), example: ExampleFinding | None = None, width: int = WIDTH
) -> str:
    """One check: what a reader needs first, then its reasons, then every probe that it has run on a host.

    ``example``: a finding whose values stand in place of placeholders. Prose is wrapped at ``width``, commands are not.
    """
    claim = phrase("Healthy condition: {claim}.", claim=strip_control_chars(localized(check.claim), MAX_LINE_CHARS))
    lines = [
        check.name,
        phrase("{severity}, area {area}", severity=localized(check.severity.value), area=localized(check.area)),
        "",
        *wrapped(claim, width),
    ]
    if example:
        lines += _section(
            "What a finding says, for example", [f"{EXAMPLES['host']}{localized(': ')}{example.message}"], width
        )
    lines += _advice_section(check, "What to do", example, width)
    lines += _advice_section(check, IN_CONTAINER, example, width)
    lines += remedy_lines(playbooks, width)
    lines += _section("Why it matters", unwrap_lines(localized(check.section("Why it matters"))), width)
    lines += _section("Source", unwrap_lines(localized(check.section("Source"))), width)
    lines += _section("Job settings it uses", [_named_summary(intent) for intent in _intents(check)], width)
    probe_texts = [line for fact in _with_needs(check.facts) for line in probe_lines(fact, width - 2)]
    lines += [
        "",
        localized("What runs on the hosts"),
        *(f"  {line}" for line in probe_texts or [localized("Nothing.")]),
    ]
    if check.path:
        lines += ["", localized("Check file: ") + strip_control_chars(check.path, MAX_LINE_CHARS)]
    return "\n".join(lines) + "\n"


def _advice_section(check: Check, title: str, example: ExampleFinding | None, width: int) -> list[str]:
    values = example.localized_values if example else {}
    advice = [line for line in unwrap_lines(localized(check.section(title))) if not _is_unfilled(line, values)]
    labels = case_labels(check.section(title))
    unknown = {name: f"<{name.replace('_', ' ')}>" for name in values}
    cases, remaining = set(labels).intersection(example.values.values() if example else ()), iter(labels)
    filled_here = [not line.startswith("- ") or next(remaining, "") in (*(cases or labels), "") for line in advice]
    filled_lines = (
        fill_placeholders(line, values if is_own else unknown) for line, is_own in zip(advice, filled_here, strict=True)
    )
    return _section(title, [mark_personal_words(line) for line in filled_lines], width)


def _section(title: str, lines: Iterable[str], width: int) -> list[str]:
    title = localized(title)
    body = [f"  {part}" for line in lines for part in wrapped(_without_control_chars(line), width - 2)]
    return ["", title, *body] if body else []


def _without_control_chars(line: str) -> str:
    indent = line[: len(line) - len(line.lstrip(" "))]
    return indent + strip_control_chars(line, MAX_LINE_CHARS) if not line.isprintable() else line


def _is_unfilled(line: str, values: Mapping[str, str]) -> bool:
    """A line that a finding fills, and that is empty without one."""
    return line.startswith("{") and line.endswith("}") and line[1:-1].isidentifier() and not values.get(line[1:-1])


def _with_needs(facts: Iterable[type[Fact]]) -> list[type[Fact]]:
    """The facts by name, each after those of the first round that it is planned from."""
    ordered: dict[type[Fact], None] = {}
    for fact in sorted(facts, key=lambda candidate: candidate.__name__):
        for needed_fact in (*_with_needs(fact.needs), fact):
            ordered.setdefault(needed_fact)
    return list(ordered)


def probe_lines(fact: type[Fact], width: int = WIDTH) -> Iterator[str]:
    """How one fact is learnt, in lines."""
    yield from wrapped(_named_summary(fact), width)
    probe = fact.probe
    for line in _PROBE_DESCRIPTIONS[probe.kind](fact):
        yield from (f"    {part}" for part in ([line] if probe.kind == "run" else wrapped(line, width - 4)))
    second = [localized("collected in a second round")] if fact.needs else []
    rules = localized("; ").join([*_probe_conditions(probe), *second])
    if rules:
        yield from (f"    {part}" for part in wrapped(bracketed(rules).strip(), width - 4))


def _intents(check: Check) -> list[type]:
    return [need.type for need in check.needs if not need.is_fact]


def _named_summary(used: type) -> str:
    return f"{used.__name__}{localized(': ')}{localized(_summary(used))}"


def _summary(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0].rstrip(".")


def _command(fact: type[Fact]) -> Iterator[str]:
    yield from ("$ " + line if not number else "  " + line for number, line in enumerate(fact.probe.text.splitlines()))


def _files(fact: type[Fact]) -> Iterator[str]:
    yield from (phrase("reads {path}", path=path) for path in fact.probe.paths)


def _python_function(fact: type[Fact]) -> Iterator[str]:
    function = fact.probe.function
    if function is not None:
        length = count_noun(len(inspect.getsource(function).splitlines()), "line")
        where = {"name": function.__name__, "module": function.__module__}
        yield phrase("runs the Python function {name} of {module} ({lines})", lines=length, **where)


def _visit(fact: type[Fact]) -> Iterator[str]:
    yield localized("runs nothing: it is read from the connection to the host")


def _smoke(fact: type[Fact]) -> Iterator[str]:
    yield localized("runs nothing: it is read from the ranks of the smoke run")


def _network_test(fact: type[Fact]) -> Iterator[str]:
    yield localized("tries the network between the hosts: temporary listeners, and connections from the other hosts")


_PROBE_DESCRIPTIONS = {
    "run": _command,
    "read": _files,
    "ask": _python_function,
    "visit": _visit,
    "smoke": _smoke,
    "network-test": _network_test,
}


def _probe_conditions(probe: Probe) -> Iterator[str]:
    if probe.kind in ("visit", *OWN_ROUND):
        return
    if probe.requires:
        yield phrase("only where {name} is installed", name=probe.requires)
    if probe.each:
        yield phrase("once for each {path}, $1 is its number", path=probe.each)
    if probe.root:
        yield localized("complete only as root; with --sudo through sudo -n")
    if probe.job:
        yield localized("runs where the job runs, inside the container of --within")
    if probe.lane:
        yield phrase("one {tool} command at a time on a host", tool=probe.lane)
    if probe.kind != "read":
        yield phrase("at most {seconds} s", seconds=f"{probe.timeout:g}")


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
