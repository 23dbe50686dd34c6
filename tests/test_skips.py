"""What DOCTOR_SKIP leaves out, and the trace of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.config.waivers import ConfigError, Skips, apply_skips, read_skips
from doctor.engine.exit_code import Exit, exit_code
from doctor.engine.result import Report, Status
from tests.examples import examples
from tests.report import rendering
from tests.report import reports as example_reports
from tests.report.strategies import NAMES, reports

pytestmark = pytest.mark.every

CHECK_NAMES = [*example_reports.CHECKS]


def skips(text: str) -> Skips:
    return read_skips({"DOCTOR_SKIP": text}, CHECK_NAMES)


@pytest.mark.parametrize("text", ["link-down,cann-differs", " cann-differs  link-down,", "link-down\ncann-differs"])
def test_names_are_parted_by_commas_or_white_space(text: str) -> None:
    assert skips(text) == Skips(
        names=frozenset({"link-down", "cann-differs"}), text="DOCTOR_SKIP=cann-differs,link-down"
    )


def test_without_it_nothing_is_left_out() -> None:
    assert read_skips({}, CHECK_NAMES) == skips("") == skips(" , ") == Skips()
    assert apply_skips(example_reports.folded(), Skips()) == example_reports.folded()


def test_all_is_all_whatever_else_is_there() -> None:
    assert skips("link-down,all") == Skips(all=True, text="DOCTOR_SKIP=all")


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("link-donw", 'DOCTOR_SKIP: no check is named "link-donw"; did you mean link-down?'),
        ("al", 'DOCTOR_SKIP: no check is named "al"; did you mean all?'),
        ("zzz", 'DOCTOR_SKIP: no check is named "zzz"; `doctor list` lists all checks'),
    ],
)
def test_a_name_that_is_not_known_is_refused(text: str, output: str) -> None:
    with pytest.raises(ConfigError) as caught:
        skips(text)
    assert str(caught.value).startswith(output)


def test_a_check_that_is_left_out_is_neither_failed_nor_passed_and_is_named() -> None:
    report = apply_skips(example_reports.folded(), skips("driver-differs,link-down"))
    assert exit_code(example_reports.folded()) == Exit.FAILED
    assert exit_code(report) == Exit.HEALTHY
    (left_out,) = [outcome for outcome in report.outcomes if outcome.check == "driver-differs"]
    assert left_out.status is Status.SKIPPED
    lines = rendering.plain(report, example_reports.PAGES).splitlines()
    assert "skip    driver-differs: DOCTOR_SKIP names it" in lines
    assert "note    DOCTOR_SKIP: skipped: driver-differs" in lines


def test_what_a_check_that_is_left_out_would_explain_stays_unknown() -> None:
    assert exit_code(apply_skips(example_reports.dead_host(), skips("host-unreachable"))) == Exit.UNKNOWN


def test_nothing_is_healthy_when_everything_is_left_out() -> None:
    assert exit_code(apply_skips(example_reports.healthy(), skips("all"))) == Exit.NOTHING


@settings(max_examples=examples(30), deadline=None)
@given(reports(), st.frozensets(st.sampled_from(NAMES)))
def test_only_what_is_named_is_touched(report: Report, names: frozenset[str]) -> None:
    after = apply_skips(report, Skips(names=names))
    for old, new in zip(report.outcomes, after.outcomes, strict=True):
        assert (new == old) if old.check not in names else (new.status is Status.SKIPPED and not new.waived)
