"""What nvlink-down finds."""

from __future__ import annotations

from doctor.facts.gpu import NvLinks
from tests.checks.gpu_hosts import cards
from tests.checks.looked import fleet, judged, said

FULL = NvLinks(active=dict.fromkeys(range(4), 18), inactive={})
ILL = NvLinks(active={0: 18, 1: 16, 2: 18, 3: 18}, inactive={1: (4, 5)})


def test_all_links() -> None:
    assert said(judged("nvlink-down", fleet(3, FULL, cards()))) == []


def test_the_gpus_of_one_host_are_compared_behind_switches() -> None:
    assert said(judged("nvlink-down", {"w1": [ILL, cards()]})) == [
        ("w1", "GPU 1 has 16 active NVLinks; its peers have 18")
    ]


def test_a_bridge_that_joins_only_some_gpus_is_no_fault() -> None:
    bridged = NvLinks(active={0: 12, 1: 12, 2: 0, 3: 0}, inactive={2: (0, 1), 3: (0, 1)})
    assert said(judged("nvlink-down", fleet(3, bridged, cards(switches=0)))) == []
    assert said(judged("nvlink-down", fleet(1, bridged, cards(switches=0)))) == []


def test_other_hosts_are_the_norm_without_switches() -> None:
    hosts = {**fleet(3, FULL, cards(switches=0)), "w4": [ILL, cards(switches=0)]}
    assert said(judged("nvlink-down", hosts)) == [("w4", "GPU 1 has 16 active NVLinks; its peers have 18")]
