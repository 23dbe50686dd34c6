"""Whatever a tool prints: for Hypothesis."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from doctor.engine.fact import Absent, Fact, Output
from tests.facts.answers import learned

ANYTHING = st.one_of(st.binary(max_size=300).map(lambda raw: raw.decode("utf-8", "replace")), st.text(max_size=300))
"""Text as it comes out of arbitrary bytes."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
"""Anything that an `ask` function could send."""


def as_answer(value: Any) -> str:
    return json.dumps(value)


def value_of(fact: type[Fact], *outputs: str) -> Fact | Absent:
    """What the fact makes of one text a path of its probe; an exception here fails the test."""
    texts = {path: Output(out=text) for path, text in zip(fact.probe.paths or ("",), outputs, strict=True)}
    observed_fact = learned(fact, texts)
    assert isinstance(observed_fact, (fact, Absent))
    return observed_fact


def runs_on_python_3_6(function: Callable[..., Any]) -> bool:
    """The source that is sent to a host has no syntax that is younger, and no character that is not ASCII."""
    import textwrap

    source = textwrap.dedent(inspect.getsource(function))
    return source.isascii() and bool(ast.parse(source, feature_version=(3, 6)))
