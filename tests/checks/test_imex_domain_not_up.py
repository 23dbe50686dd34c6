"""What imex-domain-not-up finds."""

from __future__ import annotations

from doctor.facts.nvlink import ImexDomain
from tests.checks.run_check import messages, run_check


def test_a_domain_that_is_up() -> None:
    up = ImexDomain(state="UP", nodes={"10.0.0.1": "READY", "10.0.0.2": "READY"})
    assert messages(run_check("imex-domain-not-up", {"w1": [up]})) == []


def test_a_member_that_is_away() -> None:
    degraded = ImexDomain(state="DEGRADED", nodes={"10.0.0.1": "READY", "10.0.0.2": "UNAVAILABLE"})
    outcome = run_check("imex-domain-not-up", {"w1": [degraded]})
    assert messages(outcome) == [("w1", "the IMEX domain of 2 hosts is DEGRADED; expected UP")]
    assert outcome.findings[0].values["away"] == ["10.0.0.2"]
