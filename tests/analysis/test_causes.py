"""A cause takes its consequences with it where the relation that was declared holds, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from doctor.analysis.causes import EVERYONE, TRIALS, resolve_causes
from doctor.engine.catalog import load_checks
from doctor.engine.result import ERROR, Finding, Outcome, Reason, Report, Severity, Status, Waived
from doctor.session.policy import apply_policy
from tests.test_faults import ROWS

HOSTS = ("a", "b", "c")
CHECKS = {check.name: check for check in load_checks()}


def linked(
    findings: Mapping[str, Sequence[Finding]], relations: Mapping[str, Mapping[str, Sequence[str]]]
) -> dict[str, list[str]]:
    """What each finding of each check follows from."""
    outcomes = tuple(
        Outcome(name, ERROR, "links", name, tuple(finding_list)) for name, finding_list in findings.items()
    )
    checks = [SimpleNamespace(name=name, follows_from=relation) for name, relation in relations.items()]
    report = resolve_causes(Report("here", HOSTS, outcomes), checks)
    return {outcome.check: [finding.follows_from for finding in outcome.findings] for outcome in report.outcomes}


def on(*hosts: str, **values: Any) -> Finding:
    return Finding("text", hosts=hosts, **values)


def trials(*hosts: str) -> tuple[Outcome, ...]:
    """The checks of the network test, which passed on these hosts."""
    return tuple(Outcome(name, ERROR, "network", name, (), hosts, complete=True) for name in TRIALS)


def unread_rules(outcomes: Sequence[Outcome], **reasons: Reason) -> Outcome:
    unread = Outcome("firewall-blocks-job", ERROR, "firewall", "open", unknown=reasons)
    return apply_policy(Report("here", HOSTS, (unread, *outcomes)), None, [], {}).outcomes[0]


def test_what_was_tried_and_passed_settles_what_could_not_be_read() -> None:
    by_trial, other = Reason("only root may read", by_trial=True), Reason("the command failed")
    outcome = unread_rules(trials("a", "b"), a=by_trial, b=other, c=by_trial)
    assert outcome.unknown == {"b": other, "c": by_trial}
    assert outcome.skipped["a"].endswith("all passed; not evaluated: only root may read")
    assert unread_rules(trials("a"), a=by_trial).status is Status.SKIPPED


@pytest.mark.parametrize(
    "changed",
    [
        {"findings": (on("a"),)},
        {"findings": (on(),)},
        {"waived": (Waived(on("a"), "known", "2099-01-01"),)},
        {"unknown": {"a": Reason("1 of 3 attempts were not made in time")}},
        {"skipped": {"": "only one host"}, "complete": False},
        {"complete": False},
        {"evaluated_hosts": ("b",)},
    ],
)
@pytest.mark.parametrize("check", TRIALS)
def test_a_trial_that_did_not_pass_on_the_host_settles_nothing(check: str, changed: dict[str, Any]) -> None:
    whole = {outcome.check: outcome for outcome in trials("a")}
    outcomes = {**whole, check: msgspec.structs.replace(whole[check], **changed)}
    reason = Reason("only root may read", by_trial=True)
    assert unread_rules(tuple(outcomes.values()), a=reason).unknown == {"a": reason}
    assert unread_rules([outcome for outcome in whole.values() if outcome.check != check], a=reason).unknown


@pytest.mark.parametrize("check", TRIALS)
def test_a_trial_is_judged_by_what_was_tried_alone(check: str) -> None:
    """An ordinary user may not read a firewall: what names the rule that blocks must make no trial unknown."""
    assert [need.parameter for need in CHECKS[check].needs if not need.advisory] == ["answers"]


BY_NPU = {"unreachable": {"link-down": ("npu",)}}


def test_the_same_host_and_device_is_a_consequence() -> None:
    findings = {"link-down": [on("a", npu=1, npus=[1, 2])], "unreachable": [on("a", npu=1), on("a", npu=2)]}
    assert linked(findings, BY_NPU)["unreachable"] == ["link-down", "link-down"]


@pytest.mark.parametrize(
    "independent",
    [on("b", npu=1), on("a", npu=3), on("a", npu=1, npus=[1, 3]), on("a", "b", npu=1), on("a"), on(npu=1)],
    ids=["other host", "other device", "one device more", "one host more", "no device", "no host"],
)
def test_what_the_cause_does_not_explain_stands_on_its_own(independent: Finding) -> None:
    findings = {"link-down": [on("a", npu=1, npus=[1])], "unreachable": [on("a", npu=1), independent]}
    assert linked(findings, BY_NPU)["unreachable"] == ["link-down", ""]


def test_causes_on_each_host_together_explain_a_finding_on_all_of_them() -> None:
    relation = {"interface": {"loopback": ("address",)}}
    causes = [on("a", address="127.0.1.1"), on("b", address="127.0.1.1")]
    consequence = on("a", "b", address="127.0.1.1")
    assert linked({"loopback": causes, "interface": [consequence]}, relation)["interface"] == ["loopback"]
    assert linked({"loopback": causes[:1], "interface": [consequence]}, relation)["interface"] == [""]
    other = on("a", "b", address="172.17.0.1")
    assert linked({"loopback": causes, "interface": [other]}, relation)["interface"] == [""]


def test_of_a_pair_either_end_is_enough() -> None:
    findings = {"link-down": [on("a", npu=1)], "unreachable": [on("a", "b", npu=1, cut_parts=[["a"], ["b"]])]}
    assert linked(findings, BY_NPU)["unreachable"] == ["link-down"]


def test_of_a_fleet_that_is_cut_all_parts_but_one_have_to_be_explained() -> None:
    cut = on("a", "b", "c", "d", npu=1, cut_parts=[["a", "b"], ["c"], ["d"]])
    down = [on(host, npu=1) for host in "cd"]
    assert linked({"link-down": down, "unreachable": [cut]}, BY_NPU)["unreachable"] == ["link-down"]
    assert linked({"link-down": down[:1], "unreachable": [cut]}, BY_NPU)["unreachable"] == [""]
    apart = [on("a", npu=1), on("c", npu=1)]
    assert linked({"link-down": apart, "unreachable": [cut]}, BY_NPU)["unreachable"] == [""]


def test_a_value_may_have_another_name_at_the_cause_and_keys_of_a_mapping_count() -> None:
    relation = {"file": {"unset": ("npu", "observed=settings")}}
    cause = on("a", npus=[3], settings=["address", "netmask"])
    explained, more = on("a", npu=3, observed={"address": "x"}), on("a", npu=3, observed={"address": "x", "gateway": 1})
    assert linked({"unset": [cause], "file": [explained, more]}, relation)["file"] == ["unset", ""]


def test_a_cause_in_the_job_itself_explains_every_host_where_values_agree() -> None:
    findings = {"job": [on(port=5)], "taken": [on("a", port=5), on("b", port=6)]}
    assert linked(findings, {"taken": {"job": ("port",)}})["taken"] == ["job", ""]
    assert linked(findings, {"taken": {"job": ()}})["taken"] == ["", ""]


def test_a_chain_hangs_on_its_first_cause_and_a_circle_on_none() -> None:
    relations: dict[str, Mapping[str, Sequence[str]]] = {"second": {"first": ()}, "third": {"second": ()}}
    findings = {name: [on("a")] for name in ("first", "second", "third")}
    assert linked(findings, relations)["third"] == ["first"]
    circle = linked(findings, {**relations, "first": {"third": ()}})
    assert circle == {"first": [""], "second": [""], "third": [""]}


def test_a_waived_cause_explains_nothing() -> None:
    waived = Outcome("link-down", ERROR, "links", "", waived=(Waived(on("a", npu=1), "known", "2099-01-01"),))
    outcome = Outcome("unreachable", ERROR, "links", "", (on("a", npu=1),))
    report = resolve_causes(
        Report("here", HOSTS, (waived, outcome)),
        [SimpleNamespace(name="unreachable", follows_from=BY_NPU["unreachable"])],
    )
    assert report.outcomes[1].findings[0].follows_from == ""


def test_declared_relations_name_checks_and_have_no_circle() -> None:
    above = {name: (*check.follows_from, *check.explained_by) for name, check in CHECKS.items()}
    for name, declared in above.items():
        reached, todo = set(), list(declared)
        while todo:
            cause = todo.pop()
            assert cause in CHECKS, f"{name} follows from {cause}, which is no check"
            assert cause != name, f"{name} follows from itself"
            todo += [further for further in above[cause] if further not in reached]
            reached.add(cause)


def test_every_declared_relation_is_seen_in_a_fault_of_a_real_host() -> None:
    """A relation that no fault in a host has shown is a guess."""
    observed = {(name, row.check) for row in ROWS for name in row.also}
    declared = {(name, cause) for name, check in CHECKS.items() for cause in check.follows_from}
    assert declared - observed == set()


TRIAL = {"trial": {"cause": ()}}


def resolved(*outcomes: Outcome, explained_by: Mapping[str, Mapping[str, Sequence[str]]] = TRIAL) -> list[Outcome]:
    checks = [SimpleNamespace(name=name, explained_by=relation) for name, relation in explained_by.items()]
    return list(resolve_causes(Report("here", HOSTS, outcomes), checks).outcomes)


def failed(check: str, *findings: Finding) -> Outcome:
    return Outcome(check, ERROR, "network", "a claim", findings)


@pytest.mark.parametrize(
    ("cause", "trial", "explained"),
    [
        (on("a"), on("a"), True),
        (on("a"), on("b"), False),
        (on("a"), on("a", "b"), False),
        (on("a", peers=["b"]), on("a", "b"), True),
        (on("a", peers=EVERYONE), on("a", "b"), True),
        (on("a", peers="c"), on("a", "b"), False),
        (on("a").as_warning(), on("a"), False),
    ],
)
def test_a_trial_is_unknown_only_where_an_error_is_on_its_hosts(
    cause: Finding, trial: Finding, explained: bool
) -> None:
    first, second = resolved(failed("cause", cause), failed("trial", trial))
    assert first.findings == (cause,)
    assert second.status is (Status.UNKNOWN if explained else Status.FAILED)
    assert {reason.root_cause for reason in second.unknown.values()} == ({"cause"} if explained else set())


NOT_STANDING = {
    "ignored": (),
    "waived": (Outcome("cause", ERROR, "a", "", waived=(Waived(on("a"), "known", "2099-01-01"),)),),
    "skipped": (Outcome("cause", ERROR, "a", "", skipped={"a": "left out"}),),
    "passed": (Outcome("cause", ERROR, "a", "", evaluated_hosts=("a",), complete=True),),
    "warning": (Outcome("cause", Severity.WARNING, "a", "", (on("a"),)),),
}


@pytest.mark.parametrize("consequence", [on("a"), on("a").because_of("cause"), on("b").because_of("cause")])
@pytest.mark.parametrize("state", NOT_STANDING)
def test_a_cause_that_does_not_stand_explains_nothing(state: str, consequence: Finding) -> None:
    outcome = resolved(*NOT_STANDING[state], failed("trial", consequence))[-1]
    assert (outcome.status, outcome.findings) == (Status.FAILED, (consequence,))


def test_what_an_analysis_calls_a_consequence_is_unknown_on_any_host_and_says_why() -> None:
    *_, outcome = resolved(failed("cause", on("a")), failed("other", on("b").because_of("absent", "cause")))
    assert (outcome.status, outcome.unknown["b"].root_cause) == (Status.UNKNOWN, "cause")
    assert outcome.unknown["b"].text == "cause explains it: text"


def test_an_explained_cause_explains_further_while_its_own_cause_stands() -> None:
    chain = [failed("cause", on("a")), failed("trial", on("a")), failed("third", on("c").because_of("trial"))]
    assert [outcome.status for outcome in resolved(*chain)] == [Status.FAILED, Status.UNKNOWN, Status.UNKNOWN]
    assert [outcome.status for outcome in resolved(*chain[1:])] == [Status.FAILED, Status.UNKNOWN]


def test_of_findings_that_explain_each_other_one_stands() -> None:
    outcomes = resolved(failed("first", on("a").because_of("second")), failed("second", on("a").because_of("first")))
    assert sorted(outcome.status.value for outcome in outcomes) == ["failed", "unknown"]


def test_a_finding_never_explains_its_own_check() -> None:
    (outcome,) = resolved(failed("same", on("a"), on("b").because_of("same")))
    assert len(outcome.findings) == 2


@pytest.mark.parametrize(("fault", "withdrawn"), [("shared", True), ("loopback", False), ("route", False)])
def test_two_hosts_with_one_address_are_named_by_the_trial_that_names_both(fault: str, *, withdrawn: bool) -> None:
    outcomes = failed("interface-unreachable", on("a", fault=fault)), failed("net-answered-by-other", on("a", "b"))
    first, second = resolve_causes(Report("", HOSTS, outcomes), CHECKS.values()).outcomes
    assert (first.findings == ()) is withdrawn
    assert len(second.findings) == 1


def test_every_check_that_explains_a_trial_finds_errors() -> None:
    causes = {cause for check in CHECKS.values() for cause in check.explained_by}
    assert {CHECKS[cause].severity for cause in causes} == {ERROR}
