"""What appeared, stayed, went and is out of sight between two runs; what is not known is never gone."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings

from doctor.engine import language
from doctor.engine.exit_code import exit_code
from doctor.engine.result import Finding, Outcome, Reason, Report, Waived
from doctor.report.diff.compare import ReportDifference, compare
from doctor.report.diff.render import render, render_json, render_markdown
from tests.examples import examples
from tests.report import reports as example_reports
from tests.report.strategies import reports
from tests.report.test_markdown import check_tame
from tests.schemas import schema_file

HOSTS = example_reports.HOSTS[:4]
VALID = jsonschema.Draft202012Validator(json.loads(schema_file("diff").read_text("utf-8")))


def down(host: str, npu: int = 0) -> Finding:
    return Finding("the link of NPU {npu} is down", hosts=(host,), npu=npu)


def links(*findings: Finding, **more: Any) -> Outcome:
    return example_reports.outcome("link-down", *findings, **{"evaluated_hosts": HOSTS, **more})


def run(*outcomes: Outcome, hosts: tuple[str, ...] = HOSTS) -> Report:
    return example_reports.report(*outcomes, hosts=hosts)


def kinds(difference: ReportDifference) -> list[tuple[str, tuple[str, ...], str]]:
    return [(change.kind, change.hosts, change.reason) for change in difference.changes]


def test_appeared_stayed_and_gone() -> None:
    difference = compare(
        run(links(down("node001"), down("node002"))), run(links(down("node002"), down("node003"), down("node004")))
    )
    assert kinds(difference) == [
        ("appeared", ("node003", "node004"), ""),
        ("stayed", ("node002",), ""),
        ("gone", ("node001",), ""),
    ]


def test_a_message_with_a_plural_is_in_the_reader_s_language_and_english_for_programs() -> None:
    template = "the OOM killer killed {count} processes in the last 24 hours, last {name} ({pid}) {age}"
    killed = Finding(template, hosts=HOSTS[:1], count=1, name="python", pid=7, age="3 min ago")
    language.select("zh", {})
    try:
        difference = compare(run(links(killed)), run(links(killed)))
        text, document = render(difference, 10), json.loads(render_json(difference, 10))
    finally:
        language.select("en", {})
    assert "OOM killer" not in text and "python" in text
    assert [change["message"].split(" killed")[0] for change in document["changes"]] == ["the OOM killer"]
    VALID.validate(document)


def test_what_the_check_could_not_look_at_again_is_not_gone() -> None:
    old = run(links(down("node001")))
    blind = run(links(evaluated_hosts=HOSTS[1:], unknown={"node001": Reason("no answer")}))
    crashed = run(links(evaluated_hosts=HOSTS[1:], crashed={"node001": "Traceback"}))
    skipped = run(links(evaluated_hosts=HOSTS[1:], skipped={"node001": "no NPU"}))
    assert kinds(compare(old, blind)) == [("unseen", ("node001",), "no answer")]
    assert kinds(compare(old, crashed)) == [("unseen", ("node001",), "the check crashed")]
    assert kinds(compare(old, skipped)) == [("unseen", ("node001",), "not checked: no NPU")]
    assert kinds(compare(old, run(example_reports.outcome("cann-differs", evaluated_hosts=HOSTS)))) == [
        ("unseen", ("node001",), "the check was not run")
    ]
    assert kinds(compare(old, run(links(evaluated_hosts=HOSTS[1:]), hosts=HOSTS[1:]))) == [
        ("unseen", ("node001",), "the host is not in this run")
    ]


def test_what_was_not_known_before_says_so_when_it_is_found() -> None:
    new = run(links(down("node001")))
    blind = run(links(evaluated_hosts=HOSTS[1:], unknown={"node001": Reason("no answer")}))
    assert kinds(compare(blind, new)) == [("appeared", ("node001",), "unknown before: no answer")]
    assert kinds(compare(run(links(evaluated_hosts=HOSTS[1:]), hosts=HOSTS[1:]), new)) == [
        ("appeared", ("node001",), "the host was not in the run before")
    ]


def test_a_finding_that_blames_no_host() -> None:
    hole = Finding("ranks {ranks} are missing", ranks=[4])
    table = example_reports.outcome("rank-table-hole", evaluated_hosts=())
    outcome = example_reports.outcome("rank-table-hole", hole, evaluated_hosts=())
    assert kinds(compare(run(outcome), run(table))) == [("gone", (), "")]
    assert kinds(compare(run(table), run(outcome))) == [("appeared", (), "")]
    unread = example_reports.outcome(
        "rank-table-hole", evaluated_hosts=(), complete=False, unknown={"": Reason("not JSON")}
    )
    assert kinds(compare(run(outcome), run(unread))) == [("unseen", (), "not JSON")]


def test_fewer_of_the_same_stay_and_are_counted() -> None:
    (change,) = compare(run(links(down("node001", 0), down("node001", 1))), run(links(down("node001", 1)))).changes
    assert (change.kind, change.count_before, change.count_now) == ("stayed", 2, 1)


def test_waived_now_and_waived_no_longer() -> None:
    put = Waived(down("node001"), "spare ordered", "2026-12-31")
    failing, waived = run(links(down("node001"))), run(links(waived=(put,)))
    assert kinds(compare(failing, waived)) == [("waived", ("node001",), "until 2026-12-31: spare ordered")]
    assert kinds(compare(waived, failing)) == [("appeared", ("node001",), "it was waived before")]


def test_hosts_and_checks_that_came_and_went() -> None:
    difference = compare(
        run(links(evaluated_hosts=HOSTS[:2]), hosts=HOSTS[:2]),
        run(example_reports.outcome("cann-differs", evaluated_hosts=HOSTS[1:3]), hosts=HOSTS[1:3]),
    )
    assert (difference.hosts_added, difference.hosts_removed) == (("node003",), ("node001",))
    assert (difference.checks_added, difference.checks_removed) == (("cann-differs",), ("link-down",))


def test_unknown_that_became_known_and_the_other_way_round() -> None:
    dark = run(links(evaluated_hosts=HOSTS[1:], unknown={"node001": Reason("no answer")}))
    light = run(links())
    (cleared,) = compare(dark, light).became_known
    (darkened,) = compare(light, dark).became_unknown
    assert cleared == darkened
    assert (cleared.checks, cleared.hosts, cleared.reason) == (("link-down",), ("node001",), "no answer")
    assert not compare(dark, dark).became_unknown + compare(dark, dark).became_known


def test_in_words() -> None:
    put = Waived(down("node004"), "spare ordered", "2026-12-31")
    old = run(links(down("node001"), down("node002"), down("node004")))
    new = run(links(down("node002"), down("node003"), waived=(put,)))
    text = render(compare(old, new), 10)
    assert text == (
        "appeared FAIL link-down on node003 (1/4): the link of NPU 0 is down\n"
        "stayed   FAIL link-down on node002 (1/4): the link of NPU 0 is down\n"
        "waived   FAIL link-down on node004 (1/4): the link of NPU 0 is down (until 2026-12-31: spare ordered)\n"
        "gone     FAIL link-down on node001 (1/4): the link of NPU 0 is down\n"
        "findings 1 appeared, 1 stayed, 0 unseen, 1 waived, 1 gone\n"
        "before   FAILED: 1 error on 3 of 4 hosts (2026-11-20 10:15:02 UTC)\n"
        "now      FAILED: 1 error on 2 of 4 hosts; 1 check waived (2026-11-20 10:15:02 UTC)\n"
    )


def test_in_chinese_each_line_begins_with_a_chinese_word() -> None:
    language.select("zh", {})
    try:
        text = render(compare(run(links(down("node001"), down("node002"))), run(links(down("node002")))), 10)
    finally:
        language.select("en", {})
    assert [line.partition(" ")[0] for line in text.splitlines()[:2]] == ["仍存在", "已消失"]


PAIRS = [(name, other) for name in ("folded", "unknown", "hostile", "crashed") for other in ("dead_host", "hostile")]


@pytest.mark.parametrize(("first", "other"), PAIRS)
def test_every_form_of_it(first: str, other: str) -> None:
    difference = compare(example_reports.ALL[first](), example_reports.ALL[other]())
    document = json.loads(render_json(difference, 10))
    VALID.validate(document)
    assert document["exit"] == 10
    check_tame(render_markdown(difference, 10))
    text = render(difference, 10)
    assert all(line.isprintable() for line in text.splitlines())
    assert text == render(difference, 10)


def test_the_schema_can_refuse() -> None:
    document = json.loads(render_json(compare(example_reports.folded(), example_reports.unknown()), 10))
    assert not VALID.is_valid({**document, "extra": 1})
    assert not VALID.is_valid({**document, "changes": [{**document["changes"][0], "kind": "better"}]})


@settings(max_examples=examples(40), deadline=None)
@given(reports(), reports())
def test_any_two_reports_compare(old: Report, new: Report) -> None:
    difference = compare(old, new)
    VALID.validate(json.loads(render_json(difference, exit_code(new))))
    render(difference, 0)
    same = compare(new, new)
    assert {change.kind for change in same.changes} <= {"stayed"}
    assert not same.became_unknown + same.became_known


def test_many_hosts_are_quick_and_bounded() -> None:
    hosts = tuple(f"n{number:04d}" for number in range(1000))
    findings = [down(host, number % 50) for number, host in enumerate(hosts)]
    new = example_reports.report(example_reports.outcome("link-down", *findings, evaluated_hosts=hosts), hosts=hosts)
    old = msgspec.structs.replace(new, outcomes=(example_reports.outcome("link-down", evaluated_hosts=hosts),))
    lines = render(compare(old, new), 10).splitlines()
    assert len(lines) < 30
    assert "... and 42 more of link-down (-f json has all)" in lines[8]


@pytest.mark.parametrize(
    "template",
    ["{observed[x]}", "{observed.__class__}", "{observed:>999999999}", "{observed!r}", "{0}", "{", "{observed", "}"],
)
def test_a_template_of_a_saved_report_names_values_and_does_nothing_else(template: str) -> None:
    """A report of somebody else's may hold any; what is no plain name stays as it stands."""
    assert str(Finding(template, observed=1)) == template
    assert str(Finding("{{{observed}}}", observed=1)) == "{1}"
