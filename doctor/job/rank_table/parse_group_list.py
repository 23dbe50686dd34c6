"""Reads the old forms of a rank table: a group_list, with or without ``deploy_mode``."""

from __future__ import annotations

import msgspec

from doctor.engine.texts import filled
from doctor.job.rank_table.model import Rank, RankTableProblem, Server, StatedCount
from doctor.job.rank_table.parse_device import TreeReader, read_device
from doctor.job.rank_table.strict_json import JsonObject


def read_group_list(
    tree: JsonObject, reader: TreeReader, *, lab: bool
) -> tuple[tuple[Server, ...], tuple[StatedCount, ...]]:
    """Servers and stated counts of a table with ``group_list``; ``lab``: the form with ``deploy_mode``."""
    counts: list[StatedCount] = []
    ranks_by_host: dict[str, list[Rank]] = {}
    first: dict[str, str] = {}
    _append_count(reader, counts, tree, "", "group_count", "group_list")
    if lab:
        _require_device_nic(tree, reader)
    groups: set[str] = set()
    pods: set[str] = set()
    for path, group in reader.items(tree, "", "group_list"):
        reader.unique_text(group, path, "group_name", groups)
        instances = reader.items(group, path, "instance_list")
        _append_count(reader, counts, group, path, "instance_count", "instance_list")
        hosts: set[str] = set()
        devices = 0
        for place, instance in instances:
            host, ranks = _read_instance(instance, place, reader, None if lab else pods)
            first.setdefault(host, place)
            ranks_by_host.setdefault(host, []).extend(ranks)
            hosts.add(host)
            devices += len(ranks)
        sums = {"device_num": devices, "server_num": len(hosts)} if lab else {"device_count": devices}
        for name, number in sums.items():
            stated = reader.number(group, path, name)
            counts += [StatedCount(f"{path}.{name}", stated, number)] if stated is not None else []
    servers = tuple(Server(first[host], host, "", tuple(ranks)) for host, ranks in ranks_by_host.items())
    return servers, tuple(counts)


def _read_instance(entry: JsonObject, path: str, reader: TreeReader, pods: set[str] | None) -> tuple[str, list[Rank]]:
    host = reader.text(entry, path, "server_id") or ""
    ranks = [read_device(device, place, reader, host) for place, device in reader.items(entry, path, "devices")]
    if pods is not None:
        reader.unique_text(entry, path, "pod_name", pods)
        return host, ranks
    rank_id = reader.number(entry, path, "rank_id")
    if len(ranks) > 1:
        reader.problems.append(
            RankTableProblem(
                "value", f"{path}.devices", "devices", filled("{0} devices", len(ranks)), "one device a rank_id"
            )
        )
    return host, [msgspec.structs.replace(rank, rank_id=rank_id) for rank in ranks[:1]] + ranks[1:]


def _require_device_nic(tree: JsonObject, reader: TreeReader) -> None:
    where = reader.text(tree, "", "para_plane_nic_location")
    if where not in (None, "device"):
        name = "para_plane_nic_location"
        reader.problems.append(RankTableProblem("value", name, name, where or "", "device"))


def _append_count(
    reader: TreeReader, counts: list[StatedCount], where: JsonObject, path: str, name: str, counted: str
) -> None:
    stated, entries = reader.number(where, path, name), where.get(counted)
    if stated is not None and isinstance(entries, list):
        counts.append(StatedCount(f"{path}.{name}".lstrip("."), stated, len(entries)))


def assign_rank_ids(servers: tuple[Server, ...]) -> tuple[Server, ...]:
    """Rank ids as HCCL gives them: by server_id in dictionary order, then by device."""
    order = sorted((s.server_id, -1 if r.device_id is None else r.device_id, r.path) for s in servers for r in s.ranks)
    ids = {path: number for number, (_, _, path) in enumerate(order)}
    return tuple(
        msgspec.structs.replace(s, ranks=tuple(msgspec.structs.replace(r, rank_id=ids[r.path]) for r in s.ranks))
        for s in servers
    )
