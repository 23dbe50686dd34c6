"""The docstring of each fact shows an example of the raw output that it reads, and the fact reads it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import doctor.facts
from doctor.engine.fact import Absent, Fact, Output
from tests.facts.answers import learned
from tests.facts.garbage import ANYTHING, JSON, as_answer

EXAMPLE = re.compile(r"^Raw output, (?P<source>[^\n]+)::\n\n(?P<text>(?:[ ]{4}[^\n]*\n|\n)+)", re.M)
LEFT_OUT = {
    "DeviceTrafficClasses": "".join(f"{dscp:8}{dscp // 8:8}\n" for dscp in range(1, 63)),
}
"""By fact, the rows for which ``...`` stands in its docstring."""


def collected_facts() -> list[type[Fact]]:
    """All facts that a command, file or function on the host gives, whether a check needs them or not."""
    modules = [
        importlib.import_module(entry.name) for entry in pkgutil.walk_packages(doctor.facts.__path__, "doctor.facts.")
    ]
    classes = {entry for module in modules for entry in vars(module).values() if inspect.isclass(entry)}
    facts = [entry for entry in classes if issubclass(entry, Fact) and hasattr(entry, "probe")]
    return sorted(
        (fact for fact in facts if fact.probe.kind not in ("visit", "smoke")), key=lambda fact: fact.__qualname__
    )


def examples(fact: type[Fact]) -> dict[str, Output]:
    """By the name of the output in the record: a file's path, a device's number, or empty."""
    outputs = {}
    for match in EXAMPLE.finditer(inspect.getdoc(fact) + "\n"):
        path = re.fullmatch(r"from ``(/[^`]+)``", match["source"])
        name = path[1] if path else "0" if fact.probe.each else ""
        text = textwrap.dedent(match["text"]).strip("\n") + "\n"
        rows = LEFT_OUT.get(fact.__name__, "")
        outputs[name] = Output(out=re.sub(r"^ *\.\.\.\n", rows, text, flags=re.M) if rows else text)
    return outputs


@pytest.mark.parametrize("fact", collected_facts(), ids=lambda fact: fact.__name__)
def test_the_example_in_the_docstring_is_read(fact: type[Fact]) -> None:
    outputs = examples(fact)
    assert outputs, f"docstring of {fact.__name__}: expected 'Raw output, from ``SOURCE``::' and below it a real output"
    value = learned(fact, outputs)
    assert not isinstance(value, Absent), value
    assert value.unread == {}


@pytest.mark.parametrize("fact", collected_facts(), ids=lambda fact: fact.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_any_other_text_gives_a_value_or_a_reason(fact: type[Fact], data: st.DataObject) -> None:
    """Each output as it is, cut short, or replaced; an exception fails this."""
    outputs = {}
    for name, output in examples(fact).items():
        cut = output.out[: data.draw(st.integers(0, len(output.out)))]
        outputs[name] = Output(
            out=data.draw(st.one_of(st.sampled_from((output.out, cut)), ANYTHING, JSON.map(as_answer)))
        )
    assert isinstance(learned(fact, outputs), (fact, Absent))
