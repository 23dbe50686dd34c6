"""Pages show real values: an example finding for each check, and `<like this>` what only the reader knows."""

from __future__ import annotations

import re

import pytest

from doctor.cli.saved_pages import saved_page
from doctor.engine.catalog import load_checks
from doctor.engine.check import Check
from doctor.engine.output_encoding import display_width
from doctor.engine.result import Finding
from doctor.remedy.catalog import load_playbooks, playbooks_for
from doctor.report.explain.checks import check_page
from doctor.report.explain.examples import EXAMPLES, fill_placeholders, read_examples
from doctor.report.layout.advice import mark_personal_words
from doctor.report.layout.formatting import laid_out
from tests.example_values import example, needed_names
from tests.report import reports

CHECKS = load_checks()
ROWS = read_examples()
PLAYBOOKS = load_playbooks()


def test_the_table_has_a_row_for_each_check_and_no_other() -> None:
    checks = {check.name for check in CHECKS}
    assert checks - set(ROWS) == set(), "once its fault or test finds something: python -m tests.example_values"
    assert set(ROWS) - checks == set(), "examples of checks that are gone: python -m tests.example_values"


def unbreakable(line: str) -> bool:
    """A command in backticks, or a line that is a URL."""
    return "`" in line or ("://" in line and len(line.split()) == 1)


OF_THE_RUN = {"host", "all_hosts", "rank_table", "device", "peer", "usual"}
"""Values that a check leaves to the report: see `doctor.session.remedy_values`; `usual` has a watched program."""


@pytest.mark.parametrize("check", [check for check in CHECKS if check.name in ROWS], ids=lambda check: check.name)
class TestEveryCheck:
    def test_has_values_for_every_placeholder_of_its_page_and_message(self, check: Check) -> None:
        row = ROWS[check.name]
        assert needed_names(check, row.template) - OF_THE_RUN <= set(row.values)
        assert not re.search(r"\{\w+\}", row.message)

    def test_has_no_value_that_runs_into_a_word(self, check: Check) -> None:
        for name in re.findall(r"(?<=[a-z])\{(\w+)\}", ROWS[check.name].template):
            assert not ROWS[check.name].values[name][:1].isalpha()

    def test_has_a_page_without_placeholders_that_fits_the_terminal(self, check: Check) -> None:
        for width in (80, 120):
            page = check_page(check, playbooks_for(PLAYBOOKS, check.name), ROWS[check.name], width)
            advice = page.partition("\nWhat to do\n")[2].partition("\n\n")[0]
            assert not re.search(r"\{[a-z_]+\}", advice)
            assert not re.search(r"`[^`]*(\bPID\b|\w=\.\.\.)[^`]*`", advice)
            what_runs, what_mends = page.find("\nWhat runs on the hosts\n"), page.find("\nFixes ")
            assert what_mends == -1 or what_runs < what_mends
            prose = page[:what_runs].splitlines()
            assert [line for line in prose if display_width(line) > width and not unbreakable(line)] == []
            assert (
                laid_out(saved_page(check.name), width) == page.rpartition("\nCheck file: ")[0]
            )  # what `doctor explain` shows at once


def test_what_only_a_person_knows_is_marked_in_commands_alone() -> None:
    text = "Name the PID: `kill PID; export HCCL_IF_BASE_PORT=...`, `ping NAME`, `fuser -v /dev/shm/NAME` ..."
    assert mark_personal_words(text) == (
        "Name the PID: `kill <pid>; export HCCL_IF_BASE_PORT=<value>`, `ping <name>`, `fuser -v /dev/shm/<name>` ..."
    )
    assert mark_personal_words("`sysctl net.NAMES PIDS`") == "`sysctl net.NAMES PIDS`"


def test_a_sites_own_check_gets_plausible_values_or_the_names() -> None:
    assert fill_placeholders("{host}: {port}, {lamp_post}, {peers}", {}) == "node001: 60000, <lamp post>, node002"
    assert fill_placeholders("{host}: {lamp}", {"host": "h7", "lamp": "{host}"}) == "h7: {host}"


def test_a_page_of_a_site_cannot_write_to_the_terminal() -> None:
    check = reports.make("rank-table-hole", CHECKS[0].severity, "ranks", "All\x1b[31m is \x07well.")
    assert check_page(check).replace("\n", "").isprintable()


def test_the_generator_takes_the_finding_that_fills_most() -> None:
    check = next(check for check in CHECKS if check.name == "hccl-port-taken")
    poor, rich = Finding("{owner}", owner=""), Finding("{owner}", owner="w2 holds it", port=1, pid=2)
    row = example(check, [poor, rich])
    assert row.values == {"owner": "node002 holds it", "port": "1", "pid": "2"}
    assert EXAMPLES["host"] == "node001"
