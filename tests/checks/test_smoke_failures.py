"""One table of failure kinds: the types, the schema, the checks and the reports agree with it."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import get_args

import pytest

from doctor.engine.smoke_failures import FAILURE_KINDS, FailureKind, FailureKindInfo
from tests.checks.broken_off import trouble
from tests.checks.smoke import ran, run_check, started
from tests.smoke.faults import KINDS as FAULT_KINDS

ROWS = list(FAILURE_KINDS.values())
CHECKS = sorted({row.check for row in ROWS})


def test_the_type_names_the_same_kinds() -> None:
    assert list(get_args(FailureKind)) == [row.name for row in ROWS]


def test_the_schema_names_the_same_kinds() -> None:
    schema = json.loads(files("doctor.report").joinpath("schema/doctor.report.1.json").read_text("utf-8"))
    enums = [value["enum"] for value in _objects(schema) if "never-joined" in value.get("enum", ())]
    assert enums == [[row.name for row in ROWS]]


def _objects(value: object) -> list[dict]:  # type: ignore[type-arg]
    if isinstance(value, dict):
        return [value, *(inner for child in value.values() for inner in _objects(child))]
    return [inner for child in value for inner in _objects(child)] if isinstance(value, list) else []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_its_check_reports_it_and_no_other_does(row: FailureKindInfo) -> None:
    run = ran(4, 2, trouble(row.name, 2))
    reporting = [check for check in CHECKS if run_check(check, run, started(run)).findings]
    assert reporting == [row.check]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_it_has_its_words(row: FailureKindInfo) -> None:
    assert row.meaning and row.report_text
    assert re.fullmatch(r"smoke-[a-z-]+", row.check)


def test_the_faults_have_kinds_of_the_table() -> None:
    assert {kind for kinds in FAULT_KINDS.values() for kind in kinds} <= set(FAILURE_KINDS)
