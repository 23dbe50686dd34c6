"""Green is the proof, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.engine.result import Outcome
from doctor.facts.firewall.job import UNCLEAR_RULE
from doctor.fix.verify import Verification, finding_keys, new_findings, verify
from tests.fix.books import outcome, reason, report, sample_finding


def test_what_was_not_there_before_is_new() -> None:
    before = finding_keys(report(outcome("short", sample_finding("a1"))))
    now = report(
        outcome("short", sample_finding("a1", "a2")), outcome("long", sample_finding("a1"), sample_finding("a3"))
    )
    assert [
        (new_finding.host, new_finding.check, new_finding.state)
        for new_finding in new_findings(now, before, ("a1", "a2"))
    ] == [
        ("a2", "short", "new"),
        ("a1", "long", "new"),
    ]


@pytest.mark.parametrize(
    ("rules", "unrelated"),
    [(["-A INPUT -j DROP (chain INPUT)"], True), (["-A OUTPUT -m owner -j REJECT (chain OUTPUT)"], False), ([], False)],
)
def test_a_verdict_that_another_rule_leaves_open_does_not_stop_the_rollout(rules: list[str], unrelated: bool) -> None:
    text = f"whether it is open {UNCLEAR_RULE}, from outside: -A OUTPUT -m owner -j REJECT (chain OUTPUT)"
    before = {("a1", "short"): [sample_finding("a1", rules=rules)]}
    (verification,) = verify(report(outcome(unknown={"a1": reason(text)})), {"a1": ["short"]}, ["a1"], ["a1"], before)
    assert (verification.state, verification.unrelated) == ("unknown", unrelated)
    (verification,) = verify(report(outcome(unknown={"a1": reason("lost")})), {"a1": ["short"]}, ["a1"], ["a1"], before)
    assert not verification.unrelated


def proof(
    sample_outcome: Outcome, mended: tuple[str, ...] = ("a1",), planned: tuple[str, ...] = ("a1", "a2")
) -> Verification:
    (verification,) = verify(report(sample_outcome), {"a1": ["short"]}, mended, planned)
    return verification


@pytest.mark.parametrize(
    ("sample_outcome", "state"),
    [
        (outcome(), "green"),
        (outcome("short", sample_finding("a3")), "green"),
        (outcome("short", sample_finding("a1")), "red"),
        (outcome("short", sample_finding("a1", "a3")), "red"),
        (outcome("short", sample_finding("a1", "a2")), "waits"),
        (outcome("short", sample_finding("a1", "a2"), sample_finding("a1")), "red"),
        (outcome(unknown={"a1": reason("lost")}), "unknown"),
        (outcome(unknown={"": reason("no host was seen")}), "unknown"),
        (outcome(crashed={"a1": "Traceback"}), "unknown"),
        (outcome(evaluated_hosts=("a2",), skipped={"a1": "does not apply"}), "unknown"),
        (outcome(evaluated_hosts=("a2",)), "unknown"),
    ],
)
def test_a_check_that_is_run_again(sample_outcome: Outcome, state: Any) -> None:
    assert proof(sample_outcome).state == state


def test_what_waits_is_red_when_all_are_mended() -> None:
    assert proof(outcome("short", sample_finding("a1", "a2")), mended=("a1", "a2")).state == "red"


def test_a_check_that_was_not_run_again_proves_nothing() -> None:
    (verification,) = verify(report(), {"a1": ["short"]}, ["a1"], ["a1"])
    assert (verification.state, verification.reason) == ("unknown", "the check was not run again")
