"""Switches by the labels of the pods' nodes. The API server's part is played by a script in the place of kubectl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from doctor.hosts.selection import PodAccess
from doctor.net.host_groups import switches_of_topology
from doctor.transport.kubernetes.topology import LABELS, switch_lines, switches_of_pods

PODS = {"w-0": "n1", "w-1": "n2", "w-2": "n3", "w-3": "n4"}
LEAF, SPINE, _ = LABELS[0]
LABELLED = {
    "n1": {LEAF: "s1", SPINE: "t1"},
    "n2": {LEAF: "s1", SPINE: "t1"},
    "n3": {LEAF: "s2", SPINE: "t1"},
    "n4": {LEAF: "s3", SPINE: "t2"},
}


def cluster(folder: Path, labels_by_node: dict[str, Any], code: int = 0) -> PodAccess:
    """Answers a list by one label as the API server does: two to a page."""
    items = [{"metadata": {"name": name, "labels": labels}} for name, labels in labels_by_node.items()]
    script = folder / "kubectl"
    script.write_text(
        "#!/usr/bin/env python3\nimport json, sys\nfrom urllib.parse import parse_qs, urlsplit\n"
        f"query, items = parse_qs(urlsplit(sys.argv[-1]).query), {items!r}\n"
        "items = [item for item in items if query['labelSelector'][0] in item['metadata']['labels']]\n"
        "first = int(query.get('continue', ['0'])[0])\n"
        "more = str(first + 2) if len(items) > first + 2 else ''\n"
        f"print(json.dumps({{'items': items[first:first + 2], 'metadata': {{'continue': more}}}})); sys.exit({code})\n"
    )
    script.chmod(0o755)
    return PodAccess(kubectl=(str(script),), nodes=PODS)


def test_leaf_and_spine_are_groups_of_the_network_test(tmp_path: Path) -> None:
    text = switches_of_pods(cluster(tmp_path, LABELLED))
    groups = {group.label: group.hosts for group in switches_of_topology(text, list(PODS))}
    assert groups == {"switch s1": (0, 1), "switch t1": (0, 1, 2)}


def test_the_newer_labels(tmp_path: Path) -> None:
    low, high = LABELS[1][:2]
    labels = {"n1": {low: "a", high: "c"}, "n2": {low: "a", high: "c"}, "n3": {low: "b", high: "c"}, "n4": {low: "b"}}
    text = switches_of_pods(cluster(tmp_path, labels))
    groups = {group.label: group.hosts for group in switches_of_topology(text, list(PODS))}
    assert groups == {"switch a": (0, 1), "switch b": (2, 3), "switch c": (0, 1, 2)}


@pytest.mark.parametrize("labels", [{}, {"n1": {"topology.kubernetes.io/zone": "z"}}])
def test_without_such_labels_nothing_is_known(tmp_path: Path, labels: dict[str, Any]) -> None:
    assert switches_of_pods(cluster(tmp_path, labels)) == ""


def test_a_user_who_may_not_read_nodes_has_no_groups_and_no_complaint(tmp_path: Path) -> None:
    assert switches_of_pods(cluster(tmp_path, LABELLED, code=1)) == ""


def test_a_strange_answer(tmp_path: Path) -> None:
    script = tmp_path / "kubectl"
    for answer in ("[", json.dumps({"items": 3}), json.dumps({"items": [{"metadata": {"labels": 1}}]}), "\x00"):
        script.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
        script.chmod(0o755)
        assert switches_of_pods(PodAccess(kubectl=(str(script),), nodes=PODS)) == ""


def test_a_value_that_no_label_can_have_is_no_switch() -> None:
    labels = {"n1": {LEAF: "s1 Switches=x\nSwitchName=y"}, "n2": {LEAF: ""}}
    assert switch_lines(PODS, labels, LABELS[0]) == ""
