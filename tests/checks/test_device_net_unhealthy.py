from typing import Any

import pytest

from doctor import Finding, PerHost, Skip
from doctor.facts.hccn.link_state import DeviceHealth
from tests.checks.device_network import HOSTS, fleet, links, per, run_check, watching


def list_findings(word: str, family: str = "A2", hosts: tuple[str, ...] = HOSTS, **more: Any) -> list[Finding]:
    """NPU 3 of the last host says ``word``, all others that they are well."""
    good = DeviceHealth(by_npu=dict.fromkeys(range(8), "Success"))
    bad = DeviceHealth(by_npu={**good.by_npu, 3: word})  # type: ignore[dict-item]
    facts = {
        "health": PerHost({**per(hosts, good), hosts[-1]: bad}),
        "links": per(hosts, links()),
        "detect": per(hosts, watching("29.1.0.1")),
    }
    return run_check("device_net_unhealthy", **{**fleet(family, hosts), **facts, **more})


@pytest.mark.parametrize("word", ["Success", "Init"])
def test_calm(word: str) -> None:
    assert list_findings(word) == []


@pytest.mark.parametrize(
    "word",
    ["Socket fail", "Receive timeout", "Unreachable", "Time exceeded", "Fault", "Thread error", "Detect ip set"],
)
def test_every_other_word_is_a_fault(word: str) -> None:
    [finding] = list_findings(word)
    assert finding.hosts == ("h4",)
    assert str(finding) == f"NPU 3 reports net health {word} (detect address 29.1.0.1); expected Success"


def test_a_link_that_is_down_is_the_other_checks_business() -> None:
    assert list_findings("Fault", links=per(HOSTS, links(down=(3,)))) == []


def test_without_links_and_detect_addresses() -> None:
    [finding] = list_findings("Fault", links=None, detect=None)
    assert finding.values["watched"] == "unknown"


def test_inside_one_super_pod_it_does_not_matter() -> None:
    with pytest.raises(Skip):
        list_findings("Fault", "A3")
