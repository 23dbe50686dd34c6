"""A rank table for fewer hosts: the others' entries taken out, the ranks numbered anew, all else as it was."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.host_matching import HasAddresses, match_servers
from doctor.job.rank_table.model import RankTable, limit_items
from doctor.job.rank_table.parse import read_table
from doctor.job.rank_table.strict_json import JsonObject, NotARankTable, NumberText, parse_json


class ReductionError(Exception):
    """One line: why the table cannot be made smaller, and what was expected."""


def reduce_table(text: str, hosts: Collection[str], addresses: Mapping[str, HasAddresses] | None = None) -> str:
    """The table in ``text`` for ``hosts`` alone, which are matched to its entries as everywhere (`match_servers`).

    Ranks keep their order and get the numbers 0 to n-1; counts say what is left. A number that stood in quotes still
    does, and what is not known here is kept. The status is kept, too: a table that was not completed is not now.

    Raises: NotReduced.
    """
    try:
        tree, table = parse_json(text), read_table("", text)
    except NotARankTable as why:
        raise ReductionError(filled("{0}; expected version 1.0 or 1.2, or a group_list without version", why)) from None
    keep = _kept_server_ids(table, hosts, addresses)
    if table.form in ("1.0", "1.2"):
        _server_list(tree, keep)
    else:
        _group_list(tree, keep)
    if table.has_rank_ids:
        _renumber(_rank_entries(tree, table.form == "lab"))
    return _to_json(tree, text)


def hosts_by_server(
    table: RankTable, hosts: Collection[str], addresses: Mapping[str, HasAddresses] | None = None
) -> dict[str, str]:
    """The inventory's name of each host that the table lists, by its server_id and by its host_ip."""
    servers_by_host, _ = match_servers(table, hosts, addresses)
    return {
        word: host
        for host, servers in servers_by_host.items()
        for server in servers
        for word in (server.server_id, server.host_ip)
        if word
    }


def _kept_server_ids(
    table: RankTable, hosts: Collection[str], addresses: Mapping[str, HasAddresses] | None
) -> set[str]:
    """The server_ids of ``hosts``. Raises: NotReduced."""
    servers_by_host, _ = match_servers(table, hosts, addresses)
    strange = [host for host in hosts if host not in servers_by_host]
    if strange:
        raise ReductionError(
            filled(
                "it does not list {0}; expected an entry for every remaining host", ", ".join(limit_items(strange, 4))
            )
        )
    if not hosts:
        raise ReductionError("no host remains; expected at least one")
    keep = {server.server_id for servers in servers_by_host.values() for server in servers}
    others = [
        s
        for s in table.servers
        if s.server_id in keep and not any(s in host_servers for host_servers in servers_by_host.values())
    ]
    if "" in keep or others:
        raise ReductionError("entries have the same server_id, or none; expected a unique one for every host")
    return keep


def _server_list(tree: JsonObject, keep: set[str]) -> None:
    tree["server_list"] = _kept_entries(tree["server_list"], keep)
    _set_count(tree, "server_count", len(tree["server_list"]))
    if "super_pod_list" not in tree:
        return
    for pod in _objects(tree["super_pod_list"]):
        pod["server_list"] = _kept_entries(pod.get("server_list"), keep)
    tree["super_pod_list"] = [pod for pod in _objects(tree["super_pod_list"]) if pod["server_list"]]


def _group_list(tree: JsonObject, keep: set[str]) -> None:
    for group in _objects(tree["group_list"]):
        kept = group["instance_list"] = _kept_entries(group.get("instance_list"), keep)
        devices = sum(len(_objects(instance.get("devices"))) for instance in kept)
        _set_count(group, "instance_count", len(kept))
        _set_count(group, "device_count", devices)
        _set_count(group, "device_num", devices)
        _set_count(group, "server_num", len({str(instance["server_id"]) for instance in kept}))
    tree["group_list"] = [group for group in _objects(tree["group_list"]) if group["instance_list"]]
    _set_count(tree, "group_count", len(tree["group_list"]))


def _kept_entries(entries: Any, keep: set[str]) -> list[JsonObject]:
    """The objects of hosts that stay. The reader's spelling of a server_id is the one that counts."""
    entry_ids = [(entry, entry.get("server_id")) for entry in _objects(entries)]
    return [entry for entry, server_id in entry_ids if isinstance(server_id, str) and printable(server_id) in keep]


def _objects(entries: Any) -> list[JsonObject]:
    return [entry for entry in entries if isinstance(entry, JsonObject)] if isinstance(entries, list) else []


def _set_count(where: JsonObject, name: str, number: int) -> None:
    """A count in the table becomes the count of the reduced table."""
    if name in where:
        where[name] = _spelled_like(where[name], number)


def _spelled_like(before: Any, number: int) -> str:
    """The number as the one before it was written: with quotes or without."""
    return NumberText(number) if isinstance(before, NumberText) else str(number)


def _rank_entries(tree: JsonObject, lab: bool) -> list[JsonObject]:
    """The objects that hold a rank_id."""
    if lab:
        return [entry for group in _objects(tree["group_list"]) for entry in _objects(group["instance_list"])]
    return [entry for server in _objects(tree["server_list"]) for entry in _objects(server.get("device"))]


def _renumber(entries: list[JsonObject]) -> None:
    numbers = []
    for entry in entries:
        rank_id = entry.get("rank_id")
        if not (isinstance(rank_id, str) and re.fullmatch(r"[0-9]{1,10}", rank_id, re.ASCII)):
            raise ReductionError("a rank_id is missing or not a whole number; expected one in every remaining entry")
        numbers.append(int(rank_id))
    if len(set(numbers)) < len(numbers):
        raise ReductionError("duplicate rank_id; expected each once, since their order is kept")
    place = {number: rank for rank, number in enumerate(sorted(numbers))}
    for entry, number in zip(entries, numbers, strict=True):
        entry["rank_id"] = _spelled_like(entry["rank_id"], place[number])


def _to_json(tree: JsonObject, text: str) -> str:
    """As JSON, indented as ``text`` is."""
    indent = re.search(r"\n([ \t]*)\S", text)
    try:
        encoded = msgspec.json.encode(_as_spelled(tree))
        steps = min(max(len(indent[1].expandtabs(4)), 1), 8) if indent else 0
        return msgspec.json.format(encoded, indent=steps).decode() + "\n"
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ReductionError("it contains values that are not JSON; expected plain JSON") from None


def _as_spelled(value: Any) -> Any:
    """The tree with each number as it was spelt."""
    if isinstance(value, NumberText):
        return msgspec.Raw(value.encode())
    if isinstance(value, dict):
        return {name: _as_spelled(member) for name, member in value.items()}
    return [_as_spelled(member) for member in value] if isinstance(value, list) else value
