"""rank-table-differs-between-hosts."""

from __future__ import annotations

import hashlib

import pytest

from doctor.engine.check import Skip
from doctor.engine.fact import PerHost
from doctor.engine.result import Finding
from doctor.facts.root_info import RankTableOnHost
from doctor.job import LaunchConfig, RankTableFile
from tests.checks.tables import check

NAME = "rank-table-differs-between-hosts"
TEXT = '{"version": "1.0"}'
PATH = "/job/rank_table.json"


def findings(variable: str = "", text: str = TEXT, **copies: str | None) -> list[Finding]:
    launch = LaunchConfig.from_environment(
        {"RANK_TABLE_FILE": PATH} if variable else {}, rank_table="" if variable else PATH
    )
    facts = {
        host: RankTableOnHost(
            path=PATH, present=output is not None, sha256=hashlib.sha256(output.encode()).hexdigest() if output else ""
        )
        for host, output in copies.items()
    }
    return list(check(NAME).function(file=RankTableFile(PATH, text), launch=launch, copies=PerHost(facts)))


def test_one_host_has_another() -> None:
    (finding,) = findings(a=TEXT, b=TEXT + " ", c=TEXT)
    assert str(finding) == "b has another rank table than the one that was checked"
    assert finding.hosts == ("b",)


def test_all_have_another_than_the_judged() -> None:
    (finding,) = findings(a="{}", b="{}")
    assert finding.hosts == ("a", "b")


def test_one_host_has_none() -> None:
    (finding,) = findings(a=TEXT, b=None)
    assert str(finding) == "/job/rank_table.json does not exist on b"


def test_nobody_has_it() -> None:
    with pytest.raises(Skip):
        findings(a=None, b=None)
    assert findings("RANK_TABLE_FILE", a=None, b=None)[0].hosts == ("a", "b")


def test_a_text_that_is_not_exact_is_compared_among_hosts() -> None:
    (finding,) = findings(text="\ufffd", a="1", b="2", c="2")
    assert finding.hosts == ("a",)


def test_healthy() -> None:
    assert findings(a=TEXT, b=TEXT) == []
