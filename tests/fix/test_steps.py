"""Which playbooks are for what was found, and which steps that makes."""

from __future__ import annotations

import pytest

from doctor.fix.select import choose_playbooks, ready_steps
from doctor.remedy.playbook import PlaybookStep
from tests.fix.books import book, file, outcome, reason, report, run, sample_finding, waived


def test_every_host_gets_what_treats_its_findings() -> None:
    choice = choose_playbooks(
        report(outcome("short", sample_finding("a1"), sample_finding("a3"))), [book(), book("other", ["else"])]
    )
    assert {host: [treatment.playbook.name for treatment in some] for host, some in choice.by_host.items()} == {
        "a1": ["mend"],
        "a3": ["mend"],
    }
    assert choice.untreated == ()


def test_a_finding_of_several_hosts_is_treated_on_each() -> None:
    choice = choose_playbooks(
        report(outcome("short", sample_finding("a1", "a2"))), [book("mend", ["short"], run(sh='tell "$host" "$hosts"'))]
    )
    done = {host: ready_steps(some, host)[0].filled_step.values for host, some in choice.by_host.items()}
    assert done == {"a1": {"host": "a1", "hosts": "a1\na2"}, "a2": {"host": "a2", "hosts": "a1\na2"}}


def test_what_nothing_treats_is_left_and_said_to_be() -> None:
    (untreated,) = choose_playbooks(report(outcome("short", sample_finding("a1"))), []).untreated
    assert (untreated.host, untreated.check, untreated.kind) == ("a1", "short", "none")


def test_what_must_be_named_is_done_only_when_it_is() -> None:
    books, observed_report = [book("off", explicit=True)], report(outcome("short", sample_finding("a1")))
    (untreated,) = choose_playbooks(observed_report, books).untreated
    assert (untreated.kind, untreated.reason) == ("explicit", "only when named: doctor fix off")
    assert choose_playbooks(observed_report, books, ["short"]).by_host == {}
    assert list(choose_playbooks(observed_report, books, ["off"]).by_host) == ["a1"]


def test_names_choose_among_what_was_found() -> None:
    observed_report = report(
        outcome("short", sample_finding("a1")), outcome("long", sample_finding("a2"), area="links")
    )
    books = [book(), book("both", ["short", "long"])]
    names = {
        word: {
            (host, treatment.playbook.name)
            for host, some in choose_playbooks(observed_report, books, [word]).by_host.items()
            for treatment in some
        }
        for word in ("short", "links", "both")
    }
    assert names["short"] == {("a1", "mend"), ("a1", "both")}
    assert names["links"] == {("a2", "both")}
    assert names["both"] == {("a1", "both"), ("a2", "both")}


def test_work_for_hands_is_told_with_its_steps() -> None:
    hands = book("reseat", ["short"], PlaybookStep(1, "Reseat the optic of NPU {npu}"), who="vendor")
    (untreated,) = choose_playbooks(report(outcome("short", sample_finding("a1", npu=3))), [hands]).untreated
    assert (untreated.kind, untreated.who, untreated.manual_steps) == (
        "hands",
        "vendor",
        ("Reseat the optic of NPU 3",),
    )


def test_what_is_the_jobs_own_has_no_host_to_be_done_on() -> None:
    choice = choose_playbooks(report(outcome("short", sample_finding())), [book()])
    assert choice.by_host == {}
    assert [(untreated.host, untreated.kind) for untreated in choice.untreated] == [("", "hands")]


def test_what_cannot_be_filled_in_is_left_and_says_why() -> None:
    bad = book("mend", ["short"], file(path="/etc/{observed}"))
    (untreated,) = choose_playbooks(
        report(outcome("short", sample_finding("a1", observed="../shadow"))), [bad]
    ).untreated
    assert untreated.kind == "unfit"
    assert "../shadow" in untreated.reason


def test_waived_and_unknown_hosts_are_left() -> None:
    outcomes = outcome(
        "short", waived=(waived(sample_finding("a1")),), unknown={"a2": reason("sudo: password=hunter2 wrong")}
    )
    remaining = {
        (untreated.host, untreated.kind): untreated.reason
        for untreated in choose_playbooks(report(outcomes), [book()]).untreated
    }
    assert remaining[("a1", "waived")].startswith("waived until 2027-01-01")
    assert remaining[("a2", "unknown")] == "sudo: password=[hidden] wrong"


def test_every_step_is_made_for_all_findings_before_the_next_and_once() -> None:
    steps = (run(1, 'write "$npu"', 'unwrite "$npu"'), run(2, "reload", "reload"))
    observed_report = report(
        outcome("short", sample_finding("a1", npu=0), sample_finding("a1", npu=1), sample_finding("a1", npu=1))
    )
    choice = choose_playbooks(observed_report, [book("mend", ["short"], *steps)])
    steps = ready_steps(choice.by_host["a1"], "a1")
    assert [act.filled_step.values.get("npu") for act in steps] == ["0", "1", None]
    assert steps[-1].filled_step.run == "reload"


def test_a_value_is_never_a_part_of_a_command() -> None:
    evil = "$(touch /x); '`reboot`'"
    step = run(sh='echo "$observed"')
    choice = choose_playbooks(
        report(outcome("short", sample_finding("a1", observed=evil))), [book("mend", ["short"], step)]
    )
    (act,) = ready_steps(choice.by_host["a1"], "a1")
    assert (act.filled_step.run, act.filled_step.values) == (step.run, {"observed": evil})


@pytest.mark.parametrize("evil", ["a\nb", "\x1b[2J", "a\0b", "-rf", "a\u2028b", "\x85"])
def test_a_value_with_a_control_character_or_like_an_option_is_no_variable(evil: str) -> None:
    step = run(sh='echo "$observed"')
    choice = choose_playbooks(
        report(outcome("short", sample_finding("a1", observed=evil))), [book("mend", ["short"], step)]
    )
    assert choice.by_host == {}
    assert choice.untreated[0].kind == "unfit"


def test_what_a_host_printed_before_is_a_variable_too() -> None:
    step = run(1, 'set "$before" "$observed"')
    choice = choose_playbooks(
        report(outcome("short", sample_finding("a1", observed="{before}"))), [book("mend", ["short"], step)]
    )
    (act,) = ready_steps(choice.by_host["a1"], "a1")
    filled = act.with_before("$expected; x")
    assert (filled.run, filled.values) == (step.run, {"observed": "{before}", "before": "$expected; x"})
