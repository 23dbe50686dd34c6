"""What npu-topology-differs finds."""

from __future__ import annotations

from doctor.facts.npu_fabric import NpuTopology
from tests.checks.devices import fleet, of

look = of("npu_topology_differs")


def pairs(**more: str) -> NpuTopology:
    return NpuTopology(relations={"0-1": "HCCS", "0-2": "HCCS", "1-2": "HCCS", **more})


def test_a_pair_that_is_connected_in_another_way() -> None:
    (finding,) = look(fleet(pairs(), pairs(), pairs(**{"0-2": "SYS"})), None)
    assert str(finding) == "NPUs 0, 2 are connected by SYS; on 2 of 3 hosts by HCCS"
    assert finding.hosts == ("c",)
