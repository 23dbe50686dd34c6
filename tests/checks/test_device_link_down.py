from typing import Any

import pytest

from doctor import Finding, PerHost, Skip
from doctor.engine.fact import Unreadable
from doctor.facts.visit import Reachability
from tests.checks.device_network import HOSTS, fleet, links, per, run_check

ALL_DOWN = links(down=tuple(range(8)))


def list_findings(family: str, one_host: Any, hosts: tuple[str, ...] = HOSTS, **more: Any) -> list[Finding]:
    """Three hosts with all links up, and ``one_host``."""
    facts = PerHost({**per(hosts, links()), hosts[-1]: one_host})
    return run_check("device_link_down", links=facts, **{**fleet(family, hosts), **more})


@pytest.mark.parametrize("family", ["A1", "A2"])
def test_all_up(family: str) -> None:
    assert list_findings(family, links()) == []


@pytest.mark.parametrize("family", ["A1", "A2"])
def test_those_that_are_down_are_named(family: str) -> None:
    [finding] = list_findings(family, links(down=(2, 5)))
    assert finding.hosts == ("h4",)
    assert str(finding) == "link down on NPU 2 and 5; expected all 8 up"
    assert finding.values["numbers"] == "2 5"


@pytest.mark.parametrize("family", ["A1", "A2", "A3"])
def test_one_host_has_no_use_for_links(family: str) -> None:
    with pytest.raises(Skip):
        list_findings(family, ALL_DOWN, ("h1",))


def test_inside_one_super_pod_links_may_be_down() -> None:
    with pytest.raises(Skip):
        list_findings("A3", ALL_DOWN)


@pytest.mark.parametrize(("failure", "ends"), [("", Skip), ("refused", Unreadable)])
def test_a_host_without_npus_is_no_part_of_the_job(failure: str, ends: type[Exception]) -> None:
    """A login host beside those of one super pod; one that was not reached may have NPUs."""
    reached = Reachability(failure="", text="", hint="")
    login = Reachability(failure=failure, text="", hint="")
    with pytest.raises(ends):
        list_findings("A3", ALL_DOWN, reach=PerHost({**per(HOSTS, reached), "login": login}))


def test_between_super_pods_they_may_not() -> None:
    [finding] = list_findings("A3", ALL_DOWN, **fleet("A3", pods=2))
    assert finding.hosts == ("h4",)


def test_a3_without_super_pod_ids_cannot_be_told() -> None:
    assert list_findings("A3", links(), pods=None) == []
    with pytest.raises(Unreadable, match="h4"):
        list_findings("A3", ALL_DOWN, pods=None)
