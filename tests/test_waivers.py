"""What a site waives: which findings that is, until when, and what it never hides."""

from __future__ import annotations

import re
from datetime import date

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from doctor.config.waivers import ConfigError, Waivers, apply_waivers, parse_waivers
from doctor.engine.exit_code import Exit, exit_code
from doctor.engine.result import Finding, Outcome, Reason, Report, Status
from doctor.report.layout.tally import tally
from tests.examples import examples
from tests.report import rendering
from tests.report import reports as example_reports
from tests.report.strategies import reports

CHECK_NAMES = [*example_reports.CHECKS]
DAY = date(2026, 11, 20)
GOOD = """
[[waive]]
check = "pid-limit-low"
hosts = "node[001-004],node009"
reason = "small by design"
until = 2026-12-31
"""


def read(text: str) -> Waivers:
    return parse_waivers(text, "doctor.toml", CHECK_NAMES)


def waiver(check: str = "pid-limit-low", hosts: str = "*", until: str = "2026-12-31", reason: str = "known") -> str:
    return f'[[waive]]\ncheck = "{check}"\nhosts = "{hosts}"\nreason = "{reason}"\nuntil = {until}\n'


def small(*hosts: str) -> Finding:
    return Finding("too small", hosts=hosts)


def judged(*findings: Finding, waive: str, **more: object) -> Report:
    """A report of one check with these findings, under these waivers."""
    return apply_waivers(
        example_reports.report(example_reports.outcome("pid-limit-low", *findings, **more)), read(waive), DAY
    )


def only(report: Report) -> Outcome:
    (outcome,) = report.outcomes
    return outcome


class TestReading:
    def test_a_waiver(self) -> None:
        (entry,) = read(GOOD).entries
        assert (entry.check, entry.reason, entry.until) == ("pid-limit-low", "small by design", date(2026, 12, 31))
        assert entry.hosts == {"node001", "node002", "node003", "node004", "node009"}

    def test_several_checks_share_a_table(self) -> None:
        text = GOOD.replace('check = "pid-limit-low"', 'checks = ["pid-limit-low", "link-down"]')
        assert [entry.check for entry in read(text).entries] == ["pid-limit-low", "link-down"]

    def test_a_long_list_of_hosts_is_counted_when_it_is_told(self) -> None:
        many = ",".join(f"node{number}" for number in range(0, 90, 2))
        assert [entry.hosts_text for entry in read(waiver(hosts=many) + waiver(hosts="a[1-2],  b")).entries] == [
            "45 hosts",
            "a[1-2], b",
        ]

    @pytest.mark.parametrize("hosts", ["", 'hosts = "*"'])
    def test_without_hosts_it_holds_for_all(self, hosts: str) -> None:
        text = re.sub(r"hosts = .*", hosts, GOOD)
        assert not read(text).entries[0].hosts

    def test_an_empty_file_waives_nothing(self) -> None:
        assert read("").entries == read("# nothing yet\n").entries == ()

    @pytest.mark.parametrize(
        ("was", "becomes", "output"),
        [
            ('"pid-limit-low"', '"pid-limit-lwo"', 'check: no check is named "pid-limit-lwo"; did you mean pid-limit'),
            ('"pid-limit-low"', '"zzz"', 'check: no check is named "zzz"; site checks need --checks DIR'),
            ('"pid-limit-low"', "3", 'check: "3"; expected the name of a check'),
            ('check = "pid-limit-low"', "", "check: is missing; expected the name of a check"),
            ("check =", "checks =", 'checks: "pid-limit-low"; expected names of checks'),
            ('check = "pid-limit-low"', "checks = []", "checks: .*expected names of checks"),
            ("hosts =", 'checks = ["link-down"]\nhosts =', "check and checks are both set; expected one of them"),
            ("hosts =", "host =", '"host": no such key; did you mean hosts?'),
            ("node[001-004]", "node[004-001]", r"hosts: .*node\[004-001\].*expected a range"),
            ("node009", "$(reboot)", r"hosts: .*\$\(reboot\)"),
            ('"node[001-004],node009"', '""', "hosts: no host is named"),
            ('"node[001-004],node009"', '["node001"]', "hosts: .*expected a node set"),
            ('"small by design"', '" "', "reason: .*expected why"),
            ("reason =", "# reason =", "reason: is missing; expected why"),
            ("2026-12-31", '"2026-12-31"', "until: .*expected its last day, without quotes"),
            ("2026-12-31", "2026-12-31T00:00:00Z", "until: .*expected its last day"),
            ("until =", "# until =", "until: is missing; expected its last day"),
        ],
    )
    def test_what_cannot_be_followed_is_refused_with_its_place(self, was: str, becomes: str, output: str) -> None:
        text = GOOD + GOOD.replace(was, becomes, 1)
        assert text != GOOD * 2
        with pytest.raises(ConfigError) as caught:
            read(text)
        assert re.match(rf"doctor\.toml: \[\[waive\]\] 2: {output.replace('?', '[?]')}", str(caught.value))

    @pytest.mark.parametrize(
        ("text", "output"),
        [
            ("[[waive]", "not TOML: .*line 1"),
            ("until = 2026-02-30", "not TOML"),
            ("x = " + "[" * 5000, "not TOML"),
            ("n = " + "9" * 5000, "not TOML|no such setting"),
            ("[waive]\ncheck = 'x'", r"waive: expected tables that begin with \[\[waive\]\]"),
            ("waive = [1]", r"waive: expected tables that begin with \[\[waive\]\]"),
            ("[[waiver]]", '"waiver": no such setting; did you mean waive?'),
        ],
    )
    def test_what_is_no_file_of_settings_is_refused(self, text: str, output: str) -> None:
        with pytest.raises(ConfigError, match=rf"\Adoctor\.toml: (?:{output})"):
            read(text)

    @settings(max_examples=examples(100), deadline=None)
    @given(
        st.text(max_size=60)
        | st.lists(st.sampled_from([*GOOD.splitlines(), "[[waive]]", "[", "'''", "\x00", "=", "1e9"])).map("\n".join)
        | st.builds("[[waive]]\n{} = {}".format, st.sampled_from(["check", "hosts", "until", "x"]), st.text(max_size=9))
    )
    @example('[[waive]]\n"\\u001b[31m\\n" = 1')
    def test_garbage_is_one_line_or_nothing(self, text: str) -> None:
        try:
            read(text)
        except ConfigError as error:
            assert str(error).isprintable()
            assert len(str(error)) < 700


class TestApplying:
    def test_a_waived_finding_fails_nothing_and_is_kept(self) -> None:
        report = judged(small("node001"), waive=GOOD)
        (kept,) = only(report).waived
        assert kept.finding == small("node001")
        assert (kept.reason, kept.until) == ("small by design", "2026-12-31")
        assert not only(report).findings
        assert only(report).status is Status.PASSED
        assert exit_code(report, strict=True, fail_on="warning") == Exit.HEALTHY

    def test_another_host_still_fails(self) -> None:
        report = judged(small("node001"), small("node005"), waive=GOOD)
        assert only(report).findings == (small("node005"),)
        assert exit_code(report) == Exit.FAILED

    def test_another_check_still_fails(self) -> None:
        report = example_reports.report(example_reports.outcome("link-down", small("node001")))
        assert exit_code(apply_waivers(report, read(GOOD), DAY)) == Exit.FAILED

    def test_a_finding_of_several_hosts_is_waived_when_all_of_them_are(self) -> None:
        assert only(judged(small("node001", "node002"), waive=GOOD)).waived
        assert only(judged(small("node001", "node005"), waive=GOOD)).findings == (small("node001", "node005"),)

    def test_two_waivers_may_cover_it_together_until_the_first_of_them_ends(self) -> None:
        two = waiver(hosts="node001", reason="a") + waiver(hosts="node005", until="2026-11-30", reason="b")
        (kept,) = only(judged(small("node001", "node005"), waive=two)).waived
        assert (kept.reason, kept.until) == ("a; b", "2026-11-30")

    def test_what_blames_no_host_is_waived_for_every_host_alone(self) -> None:
        assert only(judged(small(), waive=waiver(hosts="node[001-064]"))).findings
        assert only(judged(small(), waive=waiver())).waived

    def test_hosts_are_the_same_however_they_are_spelled(self) -> None:
        assert only(judged(small("NODE001"), waive=GOOD)).waived
        assert only(judged(small("fd00::1"), waive=waiver(hosts="fd00:0::1"))).waived

    def test_a_host_with_a_strange_name_is_not_waived_by_accident(self) -> None:
        assert only(judged(small("a:b"), waive=GOOD)).findings

    def test_it_holds_on_its_last_day_and_no_longer(self) -> None:
        assert only(judged(small("node001"), waive=waiver(until="2026-11-20"))).waived
        report = judged(small("node001"), waive=waiver(until="2026-11-19", reason="new ones come"))
        assert exit_code(report) == Exit.FAILED
        assert "waiver of pid-limit-low for every host expired on 2026-11-19: new ones come" in report.notes

    def test_an_expired_waiver_that_would_waive_nothing_is_not_worth_a_note(self) -> None:
        old = {"until": "2026-11-19"}
        assert not any("expired" in note for note in judged(waive=waiver(**old)).notes)
        assert not any("expired" in note for note in judged(small("node001"), waive=waiver("link-down", **old)).notes)

    def test_a_waiver_renewed_beside_the_expired_one_holds(self) -> None:
        report = judged(small("node001"), waive=waiver(until="2026-11-19") + waiver())
        assert only(report).waived
        assert not any("expired" in note for note in report.notes)

    def test_the_file_is_named(self) -> None:
        assert "settings: doctor.toml: 1 waiver" in judged(waive=waiver()).notes

    def test_a_waiver_that_nothing_needs_is_told(self) -> None:
        assert "waivers without a finding: pid-limit-low for node001" in judged(waive=waiver(hosts="node001")).notes

    @pytest.mark.parametrize(
        ("waive", "more"),
        [
            (waiver(check="link-down"), {}),
            (waiver(hosts="node001,other"), {}),
            (waiver(), {"unknown": {"node002": Reason("no answer")}}),
            (waiver(), {"evaluated_hosts": (), "complete": False, "skipped": {"": "no NPU"}}),
        ],
    )
    def test_of_what_was_not_looked_at_nobody_says_that_it_can_go(self, waive: str, more: dict[str, object]) -> None:
        assert not any("any more" in note for note in judged(waive=waive, **more).notes)

    def test_without_waivers_nothing_changes(self) -> None:
        assert apply_waivers(example_reports.folded(), Waivers(), DAY) == example_reports.folded()


class TestWhatItNeverHides:
    def test_what_is_unknown(self) -> None:
        report = judged(waive=waiver(), unknown={"node001": Reason("no answer")})
        assert exit_code(report) == Exit.UNKNOWN

    def test_a_check_that_broke(self) -> None:
        report = judged(small("node001"), waive=waiver(), crashed={"node002": "Traceback"})
        assert exit_code(report, on_unknown="ok") == Exit.UNKNOWN

    def test_what_is_unknown_because_of_a_host_that_is_not_reached_though_that_is_waived(self) -> None:
        """Whoever can do without the host leaves it out (--exclude); a waiver makes it no healthier."""
        report = apply_waivers(example_reports.dead_host(), read(waiver("host-unreachable", example_reports.DEAD)), DAY)
        assert exit_code(report) == Exit.UNKNOWN
        lines = rendering.plain(report, example_reports.PAGES).splitlines()
        assert "ok      1 check passed on 64 hosts" in lines
        assert "waived  host-unreachable on node009 (1/64): known (until 2026-12-31)" in lines
        assert "unknown 7 checks on node009 (1/64): not reached: connection refused" in lines
        assert lines[-1] == "UNKNOWN: 1 check waived; 7 checks unknown on node009"

    @settings(max_examples=examples(30), deadline=None)
    @given(reports(), st.sampled_from(["*", "node[00-05]", "node07"]))
    def test_every_finding_is_either_left_or_waived_and_nothing_else_changes(self, report: Report, hosts: str) -> None:
        text = "\n".join(waiver(f"check-{number}", hosts) for number in (0, 1, 2))
        after = apply_waivers(
            report, parse_waivers(text, "doctor.toml", [f"check-{number}" for number in range(6)]), DAY
        )
        for old, new in zip(report.outcomes, after.outcomes, strict=True):
            fresh = [waived.finding for waived in new.waived[len(old.waived) :]]
            assert sorted(map(repr, (*new.findings, *fresh))) == sorted(map(repr, old.findings))
            assert (old.unknown, old.crashed, old.skipped, old.evaluated_hosts) == (
                new.unknown,
                new.crashed,
                new.skipped,
                new.evaluated_hosts,
            )
        if exit_code(after, strict=True) == Exit.HEALTHY:
            assert not any(outcome.findings or outcome.unknown or outcome.crashed for outcome in after.outcomes)


class TestReports:
    def test_a_check_with_nothing_but_waived_findings_has_not_passed(self) -> None:
        report = judged(small("node001"), waive=GOOD)
        counts = tally(report)
        assert (counts.waived, counts.passed, counts.findings, counts.blamed) == (1, 0, 0, 0)
        lines = rendering.plain(report, example_reports.PAGES).splitlines()
        assert "waived  pid-limit-low on node001 (1/64): small by design (until 2026-12-31)" in lines
        assert not any(line.startswith("ok ") for line in lines)
        assert lines[-1] == "HEALTHY: 1 check waived"

    def test_nor_has_one_that_could_not_look_everywhere(self) -> None:
        dead = example_reports.outcome("host-unreachable", small(example_reports.DEAD))
        blind = {example_reports.DEAD: Reason("not reached", "host-unreachable")}
        low = example_reports.outcome("pid-limit-low", small("node001"), unknown=blind)
        output = rendering.plain(
            apply_waivers(example_reports.report(dead, low), read(GOOD), DAY), example_reports.PAGES
        )
        assert example_reports.PAGES["pid-limit-low"].claim not in output

    def test_a_check_that_fails_elsewhere_is_told_both_ways(self) -> None:
        lines = rendering.plain(
            judged(small("node001"), small("node005"), waive=GOOD), example_reports.PAGES
        ).splitlines()
        assert lines[0] == "FAIL    pid-limit-low on node005 (1/64): too small"
        assert lines[-1] == "FAILED: 1 error on node005; 1 check waived"
