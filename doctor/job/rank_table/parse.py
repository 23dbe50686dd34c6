"""Reads the known forms of a rank table into `RankTable`."""

from __future__ import annotations

import msgspec

from doctor.engine.sanitize import printable
from doctor.job.rank_table.model import Count, Form, Problem, RankTable, Server, SuperPod
from doctor.job.rank_table.parse_device import Places, kind, read_device
from doctor.job.rank_table.parse_group_list import group_list, numbered
from doctor.job.rank_table.strict_json import Members, NotARankTable, parse


def read(path: str, text: str) -> RankTable:
    """Raises: NotARankTable."""
    tree = parse(text)
    places = Places()
    form = _form(tree)
    if form in ("1.0", "1.2"):
        servers, counts = _server_list(tree, places, needed=form == "1.0")
    else:
        servers, counts = group_list(tree, places, lab=form == "lab")
    pods = _super_pods(tree, places) if form == "1.2" and "super_pod_list" in tree else None
    if form == "group_list":
        servers = numbered(servers)
    servers = _in_pods(servers, pods or ())
    status = places.text(tree, "", "status") or ""
    places.text(tree, "", "version", needed=False)
    return RankTable(path, form, status, servers, pods, counts, tuple(places.problems))


def _form(tree: Members) -> Form:
    version = tree.get("version")
    if version in ("1.0", "1.2"):
        return "1.0" if version == "1.0" else "1.2"
    if "version" not in tree and "group_list" in tree:
        return "lab" if "deploy_mode" in tree else "group_list"
    lists = [printable(name, 40) for name in tree if name.endswith("_list")]
    if "version" not in tree:
        reason = f"it has no version and no group_list, but {', '.join(lists[:4])}" if lists else "it has no version"
    else:
        reason = f"version {printable(version, 40) if isinstance(version, str) else kind(version)}"
    raise NotARankTable(reason, because="rank-table-version-unknown")


def _server_list(tree: Members, places: Places, *, needed: bool) -> tuple[tuple[Server, ...], tuple[Count, ...]]:
    servers = tuple(_server(entry, path, places) for path, entry in places.items(tree, "", "server_list"))
    counts: tuple[Count, ...] = ()
    if needed or "server_count" in tree:
        stated = places.number(tree, "", "server_count")
        listed = tree.get("server_list")
        if stated is not None and isinstance(listed, list):
            counts = (Count("server_count", stated, len(listed)),)
    return servers, counts


def _server(entry: Members, path: str, places: Places) -> Server:
    name = places.text(entry, path, "server_id") or ""
    host_ip = places.text(entry, path, "host_ip", needed=False) or ""
    if entry.get("host_ip") == "":
        places.problems.append(Problem("value", f"{path}.host_ip", "host_ip", "", "an address, or no such field"))
    devices = places.items(entry, path, "device")
    ranks = tuple(
        msgspec.structs.replace(
            read_device(device, place, places, name, host_ip), rank_id=places.number(device, place, "rank_id")
        )
        for place, device in devices
    )
    return Server(path, name, host_ip, ranks)


def _super_pods(tree: Members, places: Places) -> tuple[SuperPod, ...]:
    pods = []
    for path, entry in places.items(tree, "", "super_pod_list"):
        name = places.text(entry, path, "super_pod_id") or ""
        listed = [places.text(server, place, "server_id") for place, server in places.items(entry, path, "server_list")]
        pods.append(SuperPod(path, name, tuple(said for said in listed if said)))
    return tuple(pods)


def _in_pods(servers: tuple[Server, ...], pods: tuple[SuperPod, ...]) -> tuple[Server, ...]:
    owner = {name: pod.super_pod_id for pod in pods for name in pod.servers}
    return tuple(
        msgspec.structs.replace(
            s, ranks=tuple(msgspec.structs.replace(r, super_pod_id=owner.get(s.server_id, "")) for r in s.ranks)
        )
        for s in servers
    )
