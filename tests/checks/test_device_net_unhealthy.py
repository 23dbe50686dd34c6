from typing import Any

import pytest

from doctor import Finding, PerHost, Skip
from doctor.facts.hccn import DeviceHealth
from tests.checks.device_network import HOSTS, fleet, judged, links, per, watching


def found(word: str, family: str = "A2", hosts: tuple[str, ...] = HOSTS, **more: Any) -> list[Finding]:
    """NPU 3 of the last host says ``word``, all others that they are well."""
    good = DeviceHealth(by_npu=dict.fromkeys(range(8), "Success"))
    bad = DeviceHealth(by_npu={**good.by_npu, 3: word})  # type: ignore[dict-item]
    given = {
        "health": PerHost({**per(hosts, good), hosts[-1]: bad}),
        "links": per(hosts, links()),
        "detect": per(hosts, watching("29.1.0.1")),
    }
    return judged("device_net_unhealthy", **{**fleet(family, hosts), **given, **more})


@pytest.mark.parametrize("word", ["Success", "Init"])
def test_calm(word: str) -> None:
    assert found(word) == []


@pytest.mark.parametrize(
    "word",
    ["Socket fail", "Receive timeout", "Unreachable", "Time exceeded", "Fault", "Thread error", "Detect ip set"],
)
def test_every_other_word_is_a_fault(word: str) -> None:
    [one] = found(word)
    assert one.hosts == ("h4",)
    assert str(one) == f"NPU 3 reports net health {word} (detect address 29.1.0.1); expected Success"


def test_a_link_that_is_down_is_the_other_checks_business() -> None:
    assert found("Fault", links=per(HOSTS, links(down=(3,)))) == []


def test_without_links_and_detect_addresses() -> None:
    [one] = found("Fault", links=None, detect=None)
    assert one.values["watched"] == "unknown"


def test_inside_one_super_pod_it_does_not_matter() -> None:
    with pytest.raises(Skip):
        found("Fault", "A3")
