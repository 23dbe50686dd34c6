"""Puts what a tool might say before a fact, as the judge does."""

from __future__ import annotations

import json
from typing import Any

from doctor.engine.evaluate import read_fact
from doctor.engine.fact import Absent, Fact, Output, Visit
from doctor.engine.record import HostRecord


def read_outputs(fact: type[Fact], **outputs: Output) -> Any:
    """The fact's value, `Absent` or `Unreadable`; ``one=`` is the output of a probe that has a single one."""
    return learned(fact, {"" if key == "one" else key: output for key, output in outputs.items()})


def learned(fact: type[Fact], outputs: dict[str, Output]) -> Any:
    return read_fact(HostRecord(Visit(), {fact.output_name(): outputs}), fact)


def answered(fact: type[Fact], value: Any) -> Any:
    """What an `ask` fact makes of the value that its function returned."""
    return learned(fact, {"": Output(out=json.dumps(value))})


def refused(fact: type[Fact], outputs: dict[str, Output]) -> str:
    """The reason that a fact gives for having no value."""
    why = learned(fact, outputs)
    assert isinstance(why, Absent), why
    return str(why)
