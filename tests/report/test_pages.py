from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor import ERROR, Finding, PerHost, check
from doctor.engine.catalog import load_checks
from doctor.engine.check import Check
from doctor.engine.fact import Fact, ProbeAnswer, ask, read, run
from doctor.facts.visit import Reachability
from doctor.report.explain.checks import check_page, listing_json
from doctor.report.explain.examples import read_examples
from tests.readme import catalog_markdown
from tests.report import reports


def look_around(parameters: dict[str, object]) -> int:
    return 1


class Question(Fact, frozen=True):
    """What a function finds."""

    probe = ask(look_around, job=True, timeout=7)


class Files(Fact, frozen=True):
    """What two files hold."""

    probe = read("/etc/hosts", "/proc/sys/net/*")


class Command(Fact, frozen=True):
    """What a tool says of each NPU."""

    probe = run("hccn_tool -i $1 -ip -g", requires="hccn_tool", each="/dev/davinci[0-9]*", root=True, lane="hccn")


class Second(Fact, frozen=True):
    """What is asked once the files are known."""

    probe = run("true")
    needs = (Files,)

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Second:
        return cls()


@check(severity=ERROR, area="links")
def link_odd(
    question: PerHost[Question], command: PerHost[Command], second: PerHost[Second], reach: PerHost[Reachability]
) -> Iterator[Finding]:
    """No link is odd | or even.

    ## Why it matters
    Because
    it does.

    ## What to do
    {hint}
    Run `hccn_tool -i {npu}`.
    """
    yield from ()


PAGE = """link-odd
error, area links

Healthy condition: No link is odd | or even.

What to do
  Run `hccn_tool -i 0`.

Why it matters
  Because it does.

What runs on the hosts
  Command: What a tool says of each NPU
      $ hccn_tool -i $1 -ip -g
      (only where hccn_tool is installed; once for each /dev/davinci[0-9]*, $1 is its number;
      complete only as root; with --sudo through sudo -n; one hccn command at a time on a host; at
      most 10 s)
  Question: What a function finds
      runs the Python function look_around of tests.report.test_pages (2 lines)
      (runs where the job runs, inside the container of --within; at most 7 s)
  Reachability: Whether the collector ran on the host, and if not, why
      runs nothing: it is read from the connection to the host
  Files: What two files hold
      reads /etc/hosts
      reads /proc/sys/net/*
  Second: What is asked once the files are known
      $ true
      (at most 10 s; collected in a second round)
"""


def test_a_page_shows_every_probe() -> None:
    assert check_page(Check(link_odd)) == PAGE


def test_a_page_names_what_it_needs_to_know_of_the_job_and_its_file(tmp_path: Path) -> None:
    made_check = reports.make("rank-table-hole", ERROR, "ranks", "The table is whole.")
    assert "What runs on the hosts\n  Nothing.\n" in check_page(made_check)


OURS = load_checks()


@pytest.mark.parametrize("sample_check", OURS, ids=lambda ratio: ratio.name)
def test_every_check_has_a_page(sample_check: Check) -> None:
    output = check_page(sample_check, example=read_examples().get(sample_check.name))
    assert output.isprintable() or output.replace("\n", "").isprintable()
    for title in ("Why it matters", "What to do", "What runs on the hosts"):
        assert f"\n{title}\n  " in output


def test_the_list_as_json() -> None:
    document = json.loads(listing_json([Check(link_odd)]))
    assert document == {
        "schema": "doctor.list/1",
        "checks": [
            {
                "name": "link-odd",
                "severity": "error",
                "area": "links",
                "claim": "No link is odd | or even",
                "facts": ["Command", "Question", "Reachability", "Second"],
            }
        ],
    }


def test_the_table_of_the_readme() -> None:
    assert catalog_markdown([Check(link_odd), reports.CHECKS["cann-differs"]]) == (
        "### links\n\n| check | severity | healthy condition |\n|---|---|---|\n"
        "| `link-odd` | error | No link is odd \\| or even |\n\n"
        "### versions\n\n| check | severity | healthy condition |\n|---|---|---|\n"
        "| `cann-differs` | warning | All hosts have one CANN version |\n"
    )


def test_the_values_of_an_example_are_not_put_into_the_commands_of_other_cases() -> None:
    check = next(check for check in OURS if check.name == "host-settings-differ")
    text = check_page(check, example=read_examples()[check.name], width=200)
    assert "the package of kernel 5.15" in text and "`sysctl -w vm.nr_hugepages=<expected>`" in text
