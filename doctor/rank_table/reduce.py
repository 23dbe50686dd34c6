"""A rank table for fewer hosts: the others' entries taken out, the ranks numbered anew, all else as it was."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from doctor.engine.sanitize import printable
from doctor.job.host_matching import HasAddresses, placed
from doctor.job.rank_table.model import RankTable, few
from doctor.job.rank_table.parse import read
from doctor.job.rank_table.strict_json import Members, NotARankTable, Unquoted, parse


class NotReduced(Exception):
    """One line: why the table cannot be made smaller, and what was expected."""


def reduce(text: str, hosts: Collection[str], addresses: Mapping[str, HasAddresses] | None = None) -> str:
    """The table in ``text`` for ``hosts`` alone, which are matched to its entries as everywhere (`placed`).

    Ranks keep their order and get the numbers 0 to n-1; counts say what is left. A number that stood in quotes still
    does, and what is not known here is kept. The status is kept, too: a table that was not completed is not now.

    Raises: NotReduced.
    """
    try:
        tree, table = parse(text), read("", text)
    except NotARankTable as why:
        raise NotReduced(f"{why}; expected version 1.0 or 1.2, or a group_list without version") from None
    keep = _kept(table, hosts, addresses)
    if table.form in ("1.0", "1.2"):
        _server_list(tree, keep)
    else:
        _group_list(tree, keep)
    if table.numbered:
        _renumber(_entries(tree, table.form == "lab"))
    return _written(tree, text)


def servers_of(
    table: RankTable, hosts: Collection[str], addresses: Mapping[str, HasAddresses] | None = None
) -> dict[str, str]:
    """The inventory's name of each host that the table lists, by its server_id and by its host_ip."""
    here, _ = placed(table, hosts, addresses)
    return {
        word: host
        for host, servers in here.items()
        for server in servers
        for word in (server.server_id, server.host_ip)
        if word
    }


def _kept(table: RankTable, hosts: Collection[str], addresses: Mapping[str, HasAddresses] | None) -> set[str]:
    """The server_ids of ``hosts``. Raises: NotReduced."""
    here, _ = placed(table, hosts, addresses)
    strange = [host for host in hosts if host not in here]
    if strange:
        raise NotReduced(f"it does not list {', '.join(few(strange, 4))}; expected an entry for every host that stays")
    if not hosts:
        raise NotReduced("no host stays; expected at least one")
    keep = {server.server_id for servers in here.values() for server in servers}
    others = [s for s in table.servers if s.server_id in keep and not any(s in own for own in here.values())]
    if "" in keep or others:
        raise NotReduced("entries have the same server_id, or none; expected one of its own for every host")
    return keep


def _server_list(tree: Members, keep: set[str]) -> None:
    tree["server_list"] = _only(tree["server_list"], keep)
    _count(tree, "server_count", len(tree["server_list"]))
    if "super_pod_list" not in tree:
        return
    for pod in _objects(tree["super_pod_list"]):
        pod["server_list"] = _only(pod.get("server_list"), keep)
    tree["super_pod_list"] = [pod for pod in _objects(tree["super_pod_list"]) if pod["server_list"]]


def _group_list(tree: Members, keep: set[str]) -> None:
    for group in _objects(tree["group_list"]):
        kept = group["instance_list"] = _only(group.get("instance_list"), keep)
        devices = sum(len(_objects(instance.get("devices"))) for instance in kept)
        _count(group, "instance_count", len(kept))
        _count(group, "device_count", devices)
        _count(group, "device_num", devices)
        _count(group, "server_num", len({str(instance["server_id"]) for instance in kept}))
    tree["group_list"] = [group for group in _objects(tree["group_list"]) if group["instance_list"]]
    _count(tree, "group_count", len(tree["group_list"]))


def _only(entries: Any, keep: set[str]) -> list[Members]:
    """The objects of hosts that stay. The reader's spelling of a server_id is the one that counts."""
    found = [(one, one.get("server_id")) for one in _objects(entries)]
    return [one for one, said in found if isinstance(said, str) and printable(said) in keep]


def _objects(entries: Any) -> list[Members]:
    return [one for one in entries if isinstance(one, Members)] if isinstance(entries, list) else []


def _count(where: Members, name: str, number: int) -> None:
    """A count that is there says what is there now."""
    if name in where:
        where[name] = _as(where[name], number)


def _as(before: Any, number: int) -> str:
    """The number as the one before it was written: with quotes or without."""
    return Unquoted(number) if isinstance(before, Unquoted) else str(number)


def _entries(tree: Members, lab: bool) -> list[Members]:
    """The objects that hold a rank_id."""
    if lab:
        return [one for group in _objects(tree["group_list"]) for one in _objects(group["instance_list"])]
    return [one for server in _objects(tree["server_list"]) for one in _objects(server.get("device"))]


def _renumber(entries: list[Members]) -> None:
    numbers = []
    for entry in entries:
        said = entry.get("rank_id")
        if not (isinstance(said, str) and re.fullmatch(r"[0-9]{1,10}", said, re.ASCII)):
            raise NotReduced("a rank_id is missing or no whole number; expected one in every entry that stays")
        numbers.append(int(said))
    if len(set(numbers)) < len(numbers):
        raise NotReduced("a rank_id is there twice; expected each once, for their order is kept")
    place = {number: rank for rank, number in enumerate(sorted(numbers))}
    for entry, number in zip(entries, numbers, strict=True):
        entry["rank_id"] = _as(entry["rank_id"], place[number])


def _written(tree: Members, text: str) -> str:
    """As JSON, indented as ``text`` is."""
    indent = re.search(r"\n([ \t]*)\S", text)
    try:
        plain = msgspec.json.encode(_plain(tree))
        steps = min(max(len(indent[1].expandtabs(4)), 1), 8) if indent else 0
        return msgspec.json.format(plain, indent=steps).decode() + "\n"
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise NotReduced("it holds what is no JSON text or number; expected plain JSON") from None


def _plain(value: Any) -> Any:
    """The tree with each number as it was spelt."""
    if isinstance(value, Unquoted):
        return msgspec.Raw(value.encode())
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value
