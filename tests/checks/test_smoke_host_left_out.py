from __future__ import annotations

import msgspec
import pytest

from doctor.smoke.model import LeftOutHost, SmokeRun
from doctor.smoke.results.to_facts import fact_outputs
from tests.checks.smoke import findings_of, page, ran, run_check

NAME = "smoke_host_left_out"


def screened(*hosts: str) -> SmokeRun:
    left_out = [LeftOutHost(host, "smoke-rank-died", "rank 1 died in training", 2) for host in hosts]
    return msgspec.structs.replace(ran(4, 2), left_out=tuple(left_out))


@pytest.mark.parametrize("run", [ran(4, 2), screened()])
def test_a_run_of_all_hosts_is_fine(run: SmokeRun) -> None:
    assert run_check(NAME, run).complete
    assert not findings_of(NAME, run)


def test_each_host_that_was_left_out_is_named() -> None:
    findings = findings_of(NAME, screened("w7", "w9"))
    assert [finding.hosts for finding in findings] == [("w7",), ("w9",)]
    assert str(findings[0]) == "left out in round 2 of the screening: rank 1 died in training"
    assert "doctor smoke w7,w1" in page(NAME, findings[0])


def test_nothing_else_is_known_of_it() -> None:
    outputs = fact_outputs(screened("w7"), "w7", ())
    for by_source in outputs.values():
        body = msgspec.json.decode(by_source[""].out)
        assert (body["reached"], body["because"]) == (False, "smoke-host-left-out")
    assert msgspec.json.decode(fact_outputs(screened("w7"), "w1", ())["SmokeStart"][""].out)["because"] == ""
