"""One fault is one finding: what a trial found is withdrawn where a check that read the cause explains it."""

from __future__ import annotations

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.explained import EVERYONE, EXPLAINED_BY, withdraw_explained
from doctor.engine.result import Finding, Outcome, Severity


def outcome(check: str, *findings: Finding) -> Outcome:
    return Outcome(check, Severity.ERROR, "network", "a claim", findings=findings)


def finding(*hosts: str, peers: object = ()) -> Finding:
    return Finding("connections fail", hosts=list(hosts), peers=peers)


def test_the_relation_names_checks_that_exist() -> None:
    names = {check.name for check in load_checks()}
    assert {*EXPLAINED_BY, *(cause for causes in EXPLAINED_BY.values() for cause in causes)} <= names


@pytest.mark.parametrize(
    ("cause", "trial", "explained"),
    [
        (finding("a"), finding("a"), True),
        (finding("a"), finding("b"), False),
        (finding("a"), finding("a", "b"), False),
        (finding("a", peers=["b"]), finding("a", "b"), True),
        (finding("a", peers=EVERYONE), finding("a", "b"), True),
        (finding("a", peers="c"), finding("a", "b"), False),
    ],
)
def test_a_trial_is_withdrawn_only_where_the_cause_is_on_its_hosts(
    cause: Finding, trial: Finding, explained: bool
) -> None:
    first, second = withdraw_explained([outcome("net-unreachable", cause), outcome("peer-unreachable", trial)])
    assert first.findings == (cause,)
    assert (second.findings == ()) is explained
    assert {reason.root_cause for reason in second.unknown.values()} == ({"net-unreachable"} if explained else set())


def test_a_warning_explains_nothing_so_that_what_was_proved_is_not_unknown() -> None:
    milder = outcome("net-unreachable", finding("a").as_warning())
    first, second = withdraw_explained([milder, outcome("peer-unreachable", finding("a"))])
    assert (len(first.findings), len(second.findings), second.unknown) == (1, 1, {})


def test_every_check_that_explains_finds_errors() -> None:
    severities = {check.name: check.severity for check in load_checks()}
    assert {severities[cause] for causes in EXPLAINED_BY.values() for cause in causes} == {Severity.ERROR}


def test_without_the_cause_a_trial_stands() -> None:
    (only,) = withdraw_explained([outcome("peer-unreachable", finding("a"))])
    assert len(only.findings) == 1


@pytest.mark.parametrize(("fault", "withdrawn"), [("shared", True), ("loopback", False), ("route", False)])
def test_two_hosts_with_one_address_are_named_by_the_trial_that_names_both(fault: str, *, withdrawn: bool) -> None:
    by_interface = outcome("interface-unreachable", Finding("it takes it", hosts=["a"], fault=fault))
    first, second = withdraw_explained([by_interface, outcome("net-answered-by-other", finding("a", "b"))])
    assert (first.findings == ()) is withdrawn
    assert len(second.findings) == 1
