"""rank-table-not-json."""

from __future__ import annotations

import json

import pytest

from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import Absent
from doctor.engine.result import Status
from doctor.job import RankTableFile
from tests.checks.tables import a1, check, list_messages, run_check

NAME = "rank-table-not-json"


def test_the_tutorial_s_trailing_comma() -> None:
    text = json.dumps(a1(1, 1), indent=1).replace("}\n   ]", "},\n   ]")
    (finding,) = list_messages(run_check(NAME, text))
    assert finding.startswith("/job/rank_table.json, line 12 column 6: a comma before the closing bracket; remove it")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"status": "completed", // usable\n}', "line 1 column 25: a comment; JSON has none, remove it | observed "),
        ('{"a": 1, "a": 2}', "repeated keys in one object: a"),
        ('{"a": "\ufffd"}', "line 1: bytes that are not UTF-8"),
        ("", "the file is empty"),
    ],
)
def test_what_is_no_plain_json(text: str, message: str) -> None:
    assert any(message in finding for finding in list_messages(run_check(NAME, text)))


def test_a_byte_order_mark_is_said_and_the_rest_judged() -> None:
    text = "\ufeff" + json.dumps(a1())
    (finding,) = list_messages(run_check(NAME, text))
    assert "byte order mark" in finding
    assert run_check("rank-table-counts-wrong", text).status is Status.PASSED


def test_a_file_that_cannot_be_read() -> None:
    outcome = evaluate_check(
        check(NAME), (), FactCache({}), {RankTableFile: RankTableFile("/t.json", error="Permission denied")}
    )
    assert list_messages(outcome) == ["/t.json cannot be read: Permission denied"]


def test_no_rank_table_is_no_fault() -> None:
    assert (
        evaluate_check(check(NAME), (), FactCache({}), {RankTableFile: Absent("no rank table was given")}).status
        is Status.SKIPPED
    )


def test_healthy() -> None:
    assert run_check(NAME, a1()).status is Status.PASSED
