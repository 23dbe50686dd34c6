"""Reads the old forms of a rank table: a group_list, with or without ``deploy_mode``."""

from __future__ import annotations

import msgspec

from doctor.job.rank_table.model import Count, Problem, Rank, Server
from doctor.job.rank_table.parse_device import Places, read_device
from doctor.job.rank_table.strict_json import Members


def group_list(tree: Members, places: Places, *, lab: bool) -> tuple[tuple[Server, ...], tuple[Count, ...]]:
    counts: list[Count] = []
    found: dict[str, list[Rank]] = {}
    first: dict[str, str] = {}
    _count(places, counts, tree, "", "group_count", "group_list")
    if lab:
        _device_side(tree, places)
    groups: set[str] = set()
    pods: set[str] = set()
    for path, group in places.items(tree, "", "group_list"):
        places.name(group, path, "group_name", groups)
        instances = places.items(group, path, "instance_list")
        _count(places, counts, group, path, "instance_count", "instance_list")
        hosts: set[str] = set()
        devices = 0
        for place, instance in instances:
            host, ranks = _instance(instance, place, places, None if lab else pods)
            first.setdefault(host, place)
            found.setdefault(host, []).extend(ranks)
            hosts.add(host)
            devices += len(ranks)
        sums = {"device_num": devices, "server_num": len(hosts)} if lab else {"device_count": devices}
        for name, number in sums.items():
            stated = places.number(group, path, name)
            counts += [Count(f"{path}.{name}", stated, number)] if stated is not None else []
    servers = tuple(Server(first[host], host, "", tuple(ranks)) for host, ranks in found.items())
    return servers, tuple(counts)


def _instance(entry: Members, path: str, places: Places, pods: set[str] | None) -> tuple[str, list[Rank]]:
    host = places.text(entry, path, "server_id") or ""
    ranks = [read_device(device, place, places, host) for place, device in places.items(entry, path, "devices")]
    if pods is not None:
        places.name(entry, path, "pod_name", pods)
        return host, ranks
    rank_id = places.number(entry, path, "rank_id")
    if len(ranks) > 1:
        places.problems.append(
            Problem("value", f"{path}.devices", "devices", f"{len(ranks)} devices", "one device a rank_id")
        )
    return host, [msgspec.structs.replace(rank, rank_id=rank_id) for rank in ranks[:1]] + ranks[1:]


def _device_side(tree: Members, places: Places) -> None:
    where = places.text(tree, "", "para_plane_nic_location")
    if where not in (None, "device"):
        name = "para_plane_nic_location"
        places.problems.append(Problem("value", name, name, where or "", "device"))


def _count(places: Places, counts: list[Count], where: Members, path: str, name: str, counted: str) -> None:
    stated, entries = places.number(where, path, name), where.get(counted)
    if stated is not None and isinstance(entries, list):
        counts.append(Count(f"{path}.{name}".lstrip("."), stated, len(entries)))


def numbered(servers: tuple[Server, ...]) -> tuple[Server, ...]:
    """Rank ids as HCCL gives them: by server_id in dictionary order, then by device."""
    order = sorted((s.server_id, -1 if r.device_id is None else r.device_id, r.path) for s in servers for r in s.ranks)
    ids = {path: number for number, (_, _, path) in enumerate(order)}
    return tuple(
        msgspec.structs.replace(s, ranks=tuple(msgspec.structs.replace(r, rank_id=ids[r.path]) for r in s.ranks))
        for s in servers
    )
