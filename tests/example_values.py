"""Writes the example findings that `doctor explain CHECK` shows: ``python -m tests.example_values``.

Each is a real finding from the check's own test. ``--all`` takes every one anew; without it, those whose sentence the
tests still make stay as they are, so that their values can be edited by hand.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doctor.engine.catalog import bundled_folder, load_checks
from doctor.engine.check import Check
from doctor.engine.result import Finding, format_value
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.shell_quote import placeholder_names
from doctor.engine.texts import filled, origin, read_table, restated, table_of, texts_within
from doctor.engine.translation import Catalogue
from doctor.report.explain.examples import EXAMPLES, EXAMPLES_FILE, ExampleFinding, read_examples
from doctor.report.layout.advice import case_labels
from tests import translations

CHECK_TESTS = Path(__file__).with_name("checks")
CHECKS = str(bundled_folder("checks"))
MAX_VALUE_CHARS = 1200
SENTENCE = re.compile(r"(?:[a-z]{2,} ){3}[a-z]{2,}")
PAGE_SECTIONS = ("What to do", "Back again")


SAID_ELSEWHERE = (
    ("no answer in {0} s", (30,)),
    (
        "{0} of {1} source ports fail each time, such as {2}, and {3} pass each time, such as {4}",
        (9, 32, 40001, 23, 40002),
    ),
    ("python3 is version {0}.{1}; 3.6 or later is needed", (3, 4)),
    ("it fails with {0}", ("GLOO_SOCKET_IFNAME=docker0",)),
    ("no data from {0} for {1} s", ("node002", 1)),
    ("no message from {0} for {1} s", ("node002", 14)),
    ("in {0} for {1} s", ("input", "1.1")),
    ("{0}, sleeping in {1}", (filled("in {0} for {1} s", "compute", "1.20"), "nfs_wait")),
    ("{0} port {1} refuses connections", ("head (127.0.0.9)", 29500)),
    ("{0} (pid {1}, user {2})", ("python train.py", 4711, "alice")),
    ("{0}, {1} and {2}", ("node002", "node003", "node004")),
    ("{0} and {1}", ("NPU 1 of node001", "NPU 0 of node002")),
    ("NPU {0} of {1}", (1, "node001")),
    ("NPU {0} of {1}", (0, "node002")),
    (
        "no answer from {0} within {1}: packets are dropped, or the host is down",
        (filled("{0} port {1}", "10.0.0.9", 22), "10 s"),
    ),
    ("{0} in place of {1}", (10, 60)),
    ("{0}: {1}", ("vm.swappiness", filled("{0} in place of {1}", 10, 60))),
    (
        "{0}{1}",
        (
            filled("no message from {0} for {1} s", "node002", 14),
            ", while its ranks completed collectives with the other hosts",
        ),
    ),
)
"""How examples were filled that the checks' tests write in one piece, as other parts of the program say them."""


def needed_names(check: Check, template: str) -> set[str]:
    """The placeholders of a check's page and of one of its messages."""
    return {name for text in (template, *map(check.section, PAGE_SECTIONS)) for name in placeholder_names(text)}


def findings_of_tests(names: set[str]) -> dict[str, list[Finding]]:
    """What the checks' own tests make them find: every finding that is made while a check's file is on the stack."""
    findings: dict[str, list[Finding]] = {}
    make = Finding.__init__

    def recorded(finding: Finding, *arguments: Any, **values: Any) -> None:
        make(finding, *arguments, **values)
        frame = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.startswith(CHECKS):
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None:
            findings.setdefault(Path(frame.f_code.co_filename).stem.replace("_", "-"), []).append(finding)

    Finding.__init__ = recorded  # type: ignore[method-assign, assignment]
    try:
        files = [CHECK_TESTS / f"test_{name.replace('-', '_')}.py" for name in sorted(names)]
        pytest.main(["-q", "-n0", "-p", "no:cacheprovider", *map(str, files)])
    finally:
        Finding.__init__ = make  # type: ignore[method-assign]
    return findings


def example(check: Check, findings: list[Finding]) -> ExampleFinding:
    """The first of those findings that fill most of the page."""

    def filled_places(finding: Finding) -> int:
        names = needed_names(check, finding.template)
        return sum(
            _readable(value) not in ("", "none", "None") for name, value in finding.values.items() if name in names
        )

    best = max(findings, key=filled_places)
    names = needed_names(check, best.template) - {"host"}
    known_values = {name: value for name, value in best.values.items() if value is not None}
    values = {
        name: _readable(known_values.get(name, EXAMPLES.get(name, f"<{name}>"))) for name in names & set(best.values)
    }
    values = dict(sorted(values.items()))
    return ExampleFinding(best.template, values)


def with_case(check: Check, row: ExampleFinding, findings: list[Finding]) -> ExampleFinding:
    """An example of a page with cases, and which of them it is: that of the finding of the tests most like it."""
    labels = {label for label in case_labels(check.section("What to do")) if label}
    alike = [finding for finding in findings if finding.template == row.template and labels & _cases(finding)]
    if labels & set(row.values.values()) or not alike:
        return row

    def likeness(finding: Finding) -> int:
        return sum(_readable(finding.values.get(name)) == value for name, value in row.values.items())

    [case, *_] = sorted(labels & _cases(max(alike, key=likeness)))
    return row._replace(values=dict(sorted({**row.values, "case": case}.items())))


def _cases(finding: Finding) -> set[str]:
    return {value for value in finding.values.values() if isinstance(value, str)}


def is_current(row: ExampleFinding, findings: list[Finding], catalogue: Catalogue) -> bool:
    """Whether a check still says this sentence and those within its values; where its tests make it say nothing, the
    example stays.
    """
    if not findings:
        return True
    said = {_readable(value) for finding in findings for value in finding.values.values()}
    texts = [value for value in row.values.values() if SENTENCE.search(re.sub(r"`[^`]*`", "", str(value)))]
    return row.template in {finding.template for finding in findings} and all(
        text in said or (made is not None and catalogue.template(made[0]) != made[0])
        for text, made in zip(texts, map(origin, texts), strict=True)
    )


def _readable(value: Any) -> str:
    """A value with the hosts of the tests under the names that all examples have."""
    output = format_value(value)
    text = " " * output.startswith(" ") + strip_control_chars(output, MAX_VALUE_CHARS)  # of "the card{where} reported"
    return restated(text, lambda part: re.sub(r"\bw(\d{1,2})\b", lambda match: f"node{int(match[1]):03}", part))


def main(argv: list[str]) -> int:
    checks = {check.name: check for check in load_checks()}
    read_table(msgspec.json.decode(EXAMPLES_FILE.read_bytes())["texts"])
    fresh = findings_of_tests(set(checks))
    for template, values in SAID_ELSEWHERE:
        filled(template, *values)
    for finding in (finding for findings in fresh.values() for finding in findings):
        list(map(_readable, finding.values.values()))  # so that it is known how the values of kept examples were filled
    catalogue = Catalogue(json.loads(translations.COMPILED.read_text("utf-8")))
    kept = {
        name: row
        for name, row in read_examples().items()
        if name in checks and "--all" not in argv and is_current(row, fresh.get(name, []), catalogue)
    }
    rows = kept | {name: example(checks[name], fresh[name]) for name in set(checks) - set(kept) if fresh.get(name)}
    rows = {name: with_case(checks[name], row, fresh.get(name, [])) for name, row in rows.items()}
    examples = {name: {"template": row.template, "values": row.values} for name, row in sorted(rows.items())}
    document = {"examples": examples, "texts": table_of(texts_within(examples))}
    EXAMPLES_FILE.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for name in sorted(set(checks) - set(rows)):
        print(f"no test of {name} makes it find anything: write its example by hand", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
