"""The switches between pods, by labels of their nodes: for the groups of the network test.

Sources: NVIDIA Topograph, "Node Labels and Annotations": network.topology.nvidia.com/leaf, spine, core; from 1.0 on
fabric.topograph.run/tier-N, where tier 0 is the switch that is closest to the node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice

from doctor.engine.grouping import lists_by_key
from doctor.hosts.selection import PodAccess
from doctor.transport import TransportError
from doctor.transport.kubernetes.pods import ApiObject, Page, list_objects

LABELS = (
    tuple(f"network.topology.nvidia.com/{tier}" for tier in ("leaf", "spine", "core")),
    tuple(f"fabric.topograph.run/tier-{number}" for number in range(8)),
)
"""Labels of one author, from the lowest switches to the highest."""
_MOST_NODES = 20_000
_VALUE = re.compile(r"[A-Za-z0-9][\w.-]{0,62}", re.ASCII)


def switches_of_pods(access: PodAccess) -> str:
    """The switches in the form of Slurm's topology.conf; empty where no label names any, or labels may not be read."""
    for labels in LABELS:
        try:
            text = switch_lines(access.nodes, _labels_of_nodes(access.kubectl, labels[0]), labels)
        except TransportError:
            return ""  # they are no more than a help: the test itself does not need them
        if text:
            return text
    return ""


def switch_lines(
    nodes: Mapping[str, str], labels_by_node: Mapping[str, Mapping[str, str]], labels: Sequence[str]
) -> str:
    """One line for each switch, with the pods below it. ``nodes``: of each pod.

    >>> switch_lines({"w-0": "n1", "w-1": "n2"}, {"n1": {"leaf": "s1"}, "n2": {"leaf": "s1"}}, ["leaf"])
    'SwitchName=s1 Nodes=w-0,w-1'
    """
    values = ((pod, [labels_by_node.get(node, {}).get(label, "") for label in labels]) for pod, node in nodes.items())
    below = lists_by_key((value, pod) for pod, own in values for value in dict.fromkeys(filter(_VALUE.fullmatch, own)))
    return "\n".join(f"SwitchName={switch} Nodes={','.join(pods)}" for switch, pods in below.items())


def _labels_of_nodes(program: Sequence[str], label: str) -> dict[str, Mapping[str, str]]:
    """Of each node that has the label. Raises: TransportError."""
    nodes = list_objects(program, "/api/v1/nodes", label, Page[ApiObject])
    return {node.name: node.labels for node in islice(nodes, _MOST_NODES)}
