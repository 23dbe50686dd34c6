"""Writes verdicts on nodes through the API server, by the account of this pod."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from doctor.engine.texts import filled, joined
from doctor.session.notify.node_status import NodeVerdict
from doctor.transport import TransportError
from doctor.transport.kubernetes.api_server import MERGE, ApiServer, Conflict

_NODES = "/api/v1/nodes/"
_EVENTS = "/api/v1/namespaces/default/events"


def write_node_verdicts(verdicts: Sequence[NodeVerdict], parts: Collection[str], seconds: float) -> str:
    """Writes these parts of each verdict. Returns what could not be written, in one line; empty where all was.

    What one part lacks keeps no other from being written.
    """
    problems: dict[str, list[str]] = {}
    try:
        server = ApiServer(seconds)
        for item in verdicts:
            for problem in _write(server, item, parts):
                problems.setdefault(problem, []).append(item.node)
    except TransportError as error:
        return error.text
    several = len(verdicts) > 1
    return joined(
        "; ", [filled("{0} ({1})", text, _some(nodes)) if several else text for text, nodes in problems.items()]
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def _write(server: ApiServer, item: NodeVerdict, parts: Collection[str]) -> Iterator[str]:
    """What could not be written."""
    path, now = _NODES + quote(item.node, safe=""), datetime.now(timezone.utc)
    node: Mapping[str, Any] = {}
    if {"condition", "event", "taint"} & set(parts):
        try:
            node = server.request("GET", path)
        except TransportError as error:
            yield error.text
            parts = {"label"} & set(parts)  # which alone needs nothing of the node
    requests: list[tuple[str, str, Any, str]] = []
    if "condition" in parts:
        status = {"conditions": [item.condition(node, now)]}
        requests.append(("PATCH", f"{path}/status", {"status": status}, MERGE))
    if "label" in parts:
        requests.append(("PATCH", path, {"metadata": {"labels": item.labels(now)}}, MERGE))
    if "event" in parts and item.changes(node):
        requests.append(("POST", _EVENTS, item.event(now), "application/json"))
    for request in requests:
        try:
            server.request(*request)
        except TransportError as error:
            yield error.text
    if "taint" in parts:
        try:
            _write_taints(server, path, item)
        except TransportError as error:
            yield error.text


def _write_taints(server: ApiServer, path: str, item: NodeVerdict) -> None:
    """The list is one value for the API server: read, and written only to the version that was read.

    Raises: TransportError.
    """
    while True:
        node = server.request("GET", path)
        taints = item.taints(node)
        if taints is None:
            return
        version = node.get("metadata", {}).get("resourceVersion", "")
        try:
            server.request("PATCH", path, {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}, MERGE)
        except Conflict:
            continue  # its deadline ends this
        return
