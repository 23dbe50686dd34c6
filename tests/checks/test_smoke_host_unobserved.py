from __future__ import annotations

from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_host_unobserved"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "unobserved")


def test_the_host_that_the_controller_lost() -> None:
    text = "no message from w2 for 14 s, while its ranks completed collectives with the other hosts"
    finding, page = only_finding(NAME, ran(4, 2, trouble("unobserved", 2, 3, text=text)))
    assert finding.hosts == ("w2",)
    assert text in str(finding)
    assert "ssh w2 uptime" in page
