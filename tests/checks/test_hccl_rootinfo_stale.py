"""What hccl-rootinfo-stale finds."""

from __future__ import annotations

from typing import Any

from doctor.facts.root_info import HcclRootInfo
from tests.checks.devices import inventory, of

look = of("hccl_rootinfo_stale")


def info(**more: Any) -> HcclRootInfo:
    healthy = {
        "problem": "",
        "count": 2,
        "listed": 2,
        "devices": (0, 1),
        "topology": "/topo.json",
        "topology_exists": True,
    }
    return HcclRootInfo(**{**healthy, **more})


def test_a_file_that_fits() -> None:
    assert look(info(), inventory(range(8))) == []
    assert look(info(listed=None, count=None, devices=()), None) == []  # only the topology, as the documentation has it


def test_what_hccl_stops_at() -> None:
    (finding,) = look(info(topology_exists=False), None)
    assert str(finding) == "/etc/hccl_rootinfo.json is stale: its topo_file_path does not exist"
    (finding,) = look(info(count=3), None)
    assert (finding.values["observed"], finding.values["expected"]) == (3, 2)
    (finding,) = look(info(devices=(0, 9)), inventory(range(8)))
    assert finding.values["observed"] == [9]
    (finding,) = look(info(problem="not JSON: x", topology_exists=False), None)
    assert "not JSON" in str(finding)
