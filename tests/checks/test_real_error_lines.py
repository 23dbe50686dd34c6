"""The remedy that a check picks by the words of a foreign error: real lines, and the right remedy or none.

``real_error_lines.tsv``: the check, words of the remedy, the source, the line. Sources: ``owner/repo#N`` is a thread on
GitHub, a name alone the program that prints the line so; ``doctor`` is a line of the rank itself.
"""

from __future__ import annotations

import csv
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from doctor.smoke.results.trouble_findings import remedy_for

TABLE = Path(__file__).with_name("real_error_lines.tsv")
CHECKS = Path(__file__).resolve().parents[2] / "checks"
ROWS = list(csv.DictReader(TABLE.read_text("utf-8").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


@cache
def module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, CHECKS / f"{name}.py")
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def remedy(row: dict[str, str]) -> str:
    check = module(row["check"])
    if row["check"] == "network_card_failed":
        return str(check._remedy(row["line"], "0000:81:00.0"))
    return remedy_for(row["line"], check.REMEDIES)


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['check']}-{number}" for number, row in enumerate(ROWS)])
def test_a_real_line_has_the_right_remedy_or_none(row: dict[str, str]) -> None:
    text = remedy(row)
    assert row["remedy"] in text if row["remedy"] else not text, (row, text)


def test_every_remedy_is_that_of_a_real_line() -> None:
    assert len(ROWS) >= 100
    for name in {row["check"] for row in ROWS} - {"network_card_failed"}:
        visible = {remedy(row) for row in ROWS if row["check"] == name}
        beginnings = {text.partition("{")[0] for _, text in module(name).REMEDIES}
        assert not {text for text in beginnings if not any(shown.startswith(text) for shown in visible if shown)}, name
