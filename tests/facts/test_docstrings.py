"""The docstring of each fact shows an example of the raw output that it reads, and the fact reads it."""

from __future__ import annotations

import inspect
import re
import textwrap

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.fact import Absent, Fact, Output
from tests.facts.answers import learned

EXAMPLE = re.compile(r"^Raw output, (?P<source>[^\n]+)::\n\n(?P<text>(?:[ ]{4}[^\n]*\n|\n)+)", re.M)


def collected_facts() -> list[type[Fact]]:
    """The facts of all checks, and those that they need, that a command, file or function on the host gives."""
    fact_types: set[type[Fact]] = set()
    waiting = {need.type for check in load_checks() for need in check.needs if issubclass(need.type, Fact)}
    while waiting:
        fact = waiting.pop()
        fact_types.add(fact)
        waiting |= set(fact.needs) - fact_types
    return sorted(
        (fact for fact in fact_types if fact.probe.kind not in ("visit", "smoke")), key=lambda fact: fact.__name__
    )


def examples(fact: type[Fact]) -> dict[str, Output]:
    """By the name of the output in the record: a file's path, a device's number, or empty."""
    outputs = {}
    for match in EXAMPLE.finditer(inspect.getdoc(fact) + "\n"):
        path = re.fullmatch(r"from ``(/[^`]+)``", match["source"])
        name = path[1] if path else "0" if fact.probe.each else ""
        outputs[name] = Output(out=textwrap.dedent(match["text"]).strip("\n") + "\n")
    return outputs


@pytest.mark.parametrize("fact", collected_facts(), ids=lambda fact: fact.__name__)
def test_the_example_in_the_docstring_is_read(fact: type[Fact]) -> None:
    outputs = examples(fact)
    assert outputs, "no 'Raw output, ...::' in its docstring"
    value = learned(fact, outputs)
    assert not isinstance(value, Absent), value
    assert value.unread == {}
