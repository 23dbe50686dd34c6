"""Lists of hosts in a variable, as schedulers write them. Each function takes the text and its place for messages."""

from __future__ import annotations

import json
import re

from doctor.engine.sanitize import quote
from doctor.engine.texts import filled
from doctor.hosts.hostfile import HostLine, merge_repeated, parse_hostfile
from doctor.hosts.nodeset import MAX_HOSTS, InventoryError, canonical_host, expand_nodeset, limit_hosts, validate_host

MAX_WORDS = 1_000_000
_LEADERS = ("chief", "master", "workerpool0")
"""Kinds of task whose first is number 0 of a TensorFlow cluster, before the workers."""


def node_set(text: str, place: str) -> list[HostLine]:
    """``n[1-4],m1``. Raises: InventoryError, also for a host that is listed twice."""
    hosts = expand_nodeset(text, place)
    distinct = {canonical_host(host) for host in hosts}
    if len(distinct) < len(hosts):
        counts = filled("lists {0} hosts, {1} of them distinct", len(hosts), len(distinct))
        raise InventoryError(filled("{0}: {1}; expected every host once", place, counts))
    return [HostLine(host, place, "node set") for host in hosts]


def node_set_of_slots(text: str, place: str) -> list[HostLine]:
    """``n[1-4],n1``, where a host may be repeated. Raises: InventoryError."""
    return merge_repeated(expand_nodeset(text, place), place, "node set")


def words(text: str, place: str) -> list[HostLine]:
    """``n1 n1 n2``, ``10.0.0.4;10.0.0.5``, ``10.0.0.4:8,10.0.0.5:8``, or a host a line. Raises: InventoryError."""
    return parse_hostfile("\n".join(_split_words(text, place, r"[\s,;]+")), place)


def pairs(text: str, place: str) -> list[HostLine]:
    """``n1 8 n2 8``: each host with its slots. Raises: InventoryError."""
    fields = _split_words(text, place, r"\s+")
    if len(fields) % 2 or not all(count.isdecimal() for count in fields[1::2]):
        raise InventoryError(
            filled("{0}: {1} is no list of hosts and slots; expected: host 8 host 8", place, quote(text))
        )
    lines = [f"{host} {count}" for host, count in zip(fields[::2], fields[1::2], strict=True)]
    return parse_hostfile("\n".join(lines), place)


def json_list(text: str, place: str) -> list[HostLine]:
    """``["algo-1", "algo-2"]``. Raises: InventoryError."""
    tree = _json(text, place)
    if not isinstance(tree, list) or not tree:
        raise InventoryError(
            filled('{0}: {1} is no list of hosts; expected JSON such as ["algo-1", "algo-2"]', place, quote(text))
        )
    limit_hosts(tree, place)
    return merge_repeated([validate_host(str(host), place) for host in tree], place, "JSON")


def cluster_spec(text: str, place: str) -> list[HostLine]:
    """``{"cluster": {"chief": ["h0:2222"], "worker": ["h1:2222"]}}``: leaders first; of TonY the cluster alone.

    Raises: InventoryError.
    """
    cluster = _cluster(_json(text, place))
    if not cluster:
        raise InventoryError(
            filled('{0}: {1} names no host; expected JSON with "cluster" and its tasks', place, quote(text))
        )
    addresses = [address for kind in task_kinds(cluster) for address in cluster[kind]]
    limit_hosts(addresses, place)
    return merge_repeated([validate_host(_without_port(str(word)), place) for word in addresses], place, "cluster")


def cluster_position(text: str) -> int | None:
    """The number of this task among the hosts of `cluster_spec`; None where the text does not say."""
    try:
        tree = _json(text, "")
    except InventoryError:
        return None
    cluster, task = _cluster(tree), tree.get("task") if isinstance(tree, dict) else None
    kind, index = (task.get("type"), task.get("index")) if isinstance(task, dict) else (None, None)
    if kind not in cluster or not re.fullmatch(r"[0-9]{1,6}", str(index), re.ASCII):
        return None
    kinds = task_kinds(cluster)
    return sum(len(cluster[other]) for other in kinds[: kinds.index(kind)]) + int(str(index))


def task_kinds(cluster: dict[str, list[object]]) -> list[str]:
    """The kinds of task of a cluster, that of its leader first."""
    return sorted(cluster, key=lambda kind: (kind not in _LEADERS, kind == "ps", kind))


def _cluster(tree: object) -> dict[str, list[object]]:
    cluster = tree.get("cluster", {} if "task" in tree else tree) if isinstance(tree, dict) else None
    if not isinstance(cluster, dict):
        return {}
    return {str(kind): tasks for kind, tasks in cluster.items() if isinstance(tasks, list) and tasks}


def _without_port(address: str) -> str:
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]+)?", address, re.ASCII)
    if bracketed:
        return bracketed[1]
    return re.sub(r":[0-9]{1,5}$", "", address) if address.count(":") == 1 else address


def _json(text: str, place: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InventoryError(
            filled("{0}: {1} is not JSON; expected JSON with the job's hosts", place, quote(text))
        ) from None


def _split_words(text: str, place: str, separators: str) -> list[str]:
    fields = [word for word in re.split(separators, text) if word]
    if not fields:
        raise InventoryError(filled("{0}: names no host; expected the job's hosts", place))
    if len(fields) > MAX_WORDS:
        raise InventoryError(
            filled("{0}: names more than {1} hosts; expected at most {2}", place, MAX_HOSTS, MAX_HOSTS)
        )
    return fields
