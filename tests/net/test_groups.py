"""Groups come from names for each host, or from Slurm's topology.conf."""

from __future__ import annotations

import pytest

from doctor.net.host_groups import group_by, switches_of_topology

TOPOLOGY = """
# two leaves under a spine
SwitchName=leaf1 Nodes=node[1-2],gpu1
switchname=leaf2 nodes=node[3-4] LinkSpeed=100
SwitchName=spine Switches=leaf[1-2]
SwitchName=core Switches=spine,leaf3
SwitchName=leaf3 Nodes=node[5-6]
"""
HOSTS = ["node1", "node2", "node3", "node4", "node5", "node6"]


def test_switches_hold_what_hangs_below_them() -> None:
    groups = switches_of_topology(TOPOLOGY, HOSTS)
    assert [(group.label, group.hosts) for group in groups] == [
        ("switch leaf1", (0, 1)),
        ("switch leaf2", (2, 3)),
        ("switch leaf3", (4, 5)),
        ("switch spine", (0, 1, 2, 3)),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "SwitchName=a Switches=a Nodes=node1",
        "SwitchName=a Switches=b\nSwitchName=b Switches=a",
        "SwitchName=a Nodes=node[1-",
        "SwitchName=a Nodes=node[1-99999999999]",
        "SwitchName=a Nodes=node[1-99999]",
        "SwitchName=a Nodes=@all",
        "SwitchName= Nodes=node1,node2",
        "=" * 5000,
    ],
)
def test_what_is_not_understood_makes_no_group(text: str) -> None:
    assert switches_of_topology(text, HOSTS) == ()


def test_hosts_of_unknown_place_are_in_no_group() -> None:
    groups = group_by("subnet", ["10.0.0.0/24", None, "10.0.0.0/24", "", "10.0.1.0/24"])
    assert [(group.label, group.hosts) for group in groups] == [("subnet 10.0.0.0/24", (0, 2))]


def test_lines_beyond_the_limit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time grows with the square of their number: 60 s for a chain of switches in a file of 1 MiB."""
    monkeypatch.setattr("doctor.net.host_groups.MAX_SWITCHES", 2)
    assert [group.label for group in switches_of_topology(TOPOLOGY, HOSTS)] == ["switch leaf1", "switch leaf2"]


def test_a_file_whose_node_sets_name_a_great_many_is_left_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doctor.net.host_groups._MOST_NAMES", 3)
    text = "SwitchName=x Switches=b[1-9]\n" + TOPOLOGY
    assert switches_of_topology(text, HOSTS) == ()
