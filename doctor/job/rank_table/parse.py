"""Reads the known forms of a rank table into `RankTable`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.rank_table.model import Form, Rank, RankTable, RankTableProblem, Server, StatedCount, SuperPod
from doctor.job.rank_table.other_forms import other_form
from doctor.job.rank_table.strict_json import JsonObject, NotARankTable, NumberText, parse_json


def read_table(path: str, text: str) -> RankTable:
    """Raises: NotARankTable."""
    tree = parse_json(text)
    reader = TreeReader()
    form = _detect_form(tree)
    if form in ("1.0", "1.2"):
        servers, counts = _read_server_list(tree, reader, needed=form == "1.0")
    else:
        servers, counts = read_group_list(tree, reader, lab=form == "lab")
    pods = _read_super_pods(tree, reader) if form == "1.2" and "super_pod_list" in tree else None
    if form == "group_list":
        servers = assign_rank_ids(servers)
    servers = _assign_super_pods(servers, pods or ())
    status = reader.text(tree, "", "status") or ""
    reader.text(tree, "", "version", needed=False)
    return RankTable(path, form, status, servers, pods, counts, tuple(reader.problems))


def _detect_form(tree: JsonObject) -> Form:
    version = tree.get("version")
    form = other_form(tree)
    if form:
        raise NotARankTable(
            "version 2.0" if form == "2.0" else filled("a table of {0}", form),
            root_cause="rank-table-form-invalid",
            form=form,
        )
    if version in ("1.0", "1.2"):
        return "1.0" if version == "1.0" else "1.2"
    if "version" not in tree and "group_list" in tree:
        return "lab" if "deploy_mode" in tree else "group_list"
    lists = [printable(name, 40) for name in tree if name.endswith("_list")]
    if "version" not in tree:
        reason = (
            filled("it has no version and no group_list, but {0}", ", ".join(lists[:4]))
            if lists
            else "it has no version"
        )
    else:
        reason = filled("version {0}", printable(version, 40) if isinstance(version, str) else json_type_name(version))
    raise NotARankTable(reason, root_cause="rank-table-version-unknown")


def _read_server_list(
    tree: JsonObject, reader: TreeReader, *, needed: bool
) -> tuple[tuple[Server, ...], tuple[StatedCount, ...]]:
    servers = tuple(_read_server(entry, path, reader) for path, entry in reader.items(tree, "", "server_list"))
    counts: tuple[StatedCount, ...] = ()
    if needed or "server_count" in tree:
        stated = reader.number(tree, "", "server_count")
        listed = tree.get("server_list")
        if stated is not None and isinstance(listed, list):
            counts = (StatedCount("server_count", stated, len(listed)),)
    return servers, counts


def _read_server(entry: JsonObject, path: str, reader: TreeReader) -> Server:
    name = reader.text(entry, path, "server_id") or ""
    host_ip = reader.text(entry, path, "host_ip", needed=False) or ""
    if entry.get("host_ip") == "":
        reader.problems.append(
            RankTableProblem("value", f"{path}.host_ip", "host_ip", "", "an address, or no such field")
        )
    devices = reader.items(entry, path, "device")
    ranks = tuple(
        msgspec.structs.replace(
            read_device(device, place, reader, name, host_ip), rank_id=reader.number(device, place, "rank_id")
        )
        for place, device in devices
    )
    return Server(path, name, host_ip, ranks)


def _read_super_pods(tree: JsonObject, reader: TreeReader) -> tuple[SuperPod, ...]:
    pods = []
    for path, entry in reader.items(tree, "", "super_pod_list"):
        name = reader.text(entry, path, "super_pod_id") or ""
        listed = [reader.text(server, place, "server_id") for place, server in reader.items(entry, path, "server_list")]
        pods.append(SuperPod(path, name, tuple(server_id for server_id in listed if server_id)))
    return tuple(pods)


def _assign_super_pods(servers: tuple[Server, ...], pods: tuple[SuperPod, ...]) -> tuple[Server, ...]:
    owner = {name: pod.super_pod_id for pod in pods for name in pod.servers}
    return tuple(
        msgspec.structs.replace(
            s, ranks=tuple(msgspec.structs.replace(r, super_pod_id=owner.get(s.server_id, "")) for r in s.ranks)
        )
        for s in servers
    )


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


PORT_FIELDS = ("device_port", "host_port", "backup_device_port", "device_vnic_port")


class TreeReader:
    """Takes values out of the JSON tree; notes what is missing or of another kind, and continues."""

    def __init__(self) -> None:
        self.problems: list[RankTableProblem] = []

    def text(self, where: JsonObject, path: str, name: str, *, needed: bool = True) -> str | None:
        """A scalar as text. Numbers are taken too, and noted: HCCL accepts text only."""
        place = f"{path}.{name}".lstrip(".")
        if name not in where:
            if needed:
                self.problems.append(RankTableProblem("missing", place, name))
            return None
        value = where[name]
        if isinstance(value, NumberText):
            self.problems.append(
                RankTableProblem("unquoted", place, name, printable(value, 40), f'"{printable(value, 40)}"')
            )
        elif not isinstance(value, str):
            self.problems.append(RankTableProblem("value", place, name, json_type_name(value), "a text"))
            return None
        return printable(value)

    def number(self, where: JsonObject, path: str, name: str) -> int | None:
        text = self.text(where, path, name)
        if text is None or re.fullmatch(r"[0-9]{1,10}", text, re.ASCII):
            return None if text is None else int(text)
        self.problems.append(
            RankTableProblem("value", f"{path}.{name}".lstrip("."), name, text, "a whole number from 0")
        )
        return None

    def unique_text(self, where: JsonObject, path: str, field: str, taken: set[str]) -> None:
        """A text that no other object may have."""
        text = self.text(where, path, field)
        if text in taken:
            self.problems.append(RankTableProblem("value", f"{path}.{field}", field, text, "a unique name"))
        elif text is not None:
            taken.add(text)

    def items(self, where: JsonObject, path: str, name: str) -> list[tuple[str, JsonObject]]:
        place = f"{path}.{name}".lstrip(".")
        value = where.get(name)
        if name not in where:
            self.problems.append(RankTableProblem("missing", place, name))
        elif not isinstance(value, list) or not value:
            observed = "an empty list" if value == [] else json_type_name(value)
            self.problems.append(RankTableProblem("value", place, name, observed, "a list with at least one entry"))
        return list(self._iter_objects(value, place, name)) if isinstance(value, list) else []

    def _iter_objects(self, entries: list[Any], place: str, name: str) -> Iterator[tuple[str, JsonObject]]:
        for number, entry in enumerate(entries):
            if isinstance(entry, JsonObject):
                yield f"{place}[{number}]", entry
            else:
                self.problems.append(
                    RankTableProblem(
                        "value", f"{place}[{number}]", name, json_type_name(entry), "an object in braces {}"
                    )
                )


def json_type_name(value: Any) -> str:
    """The name of a JSON value's type."""
    names = {bool: "true or false", type(None): "null", list: "a list", JsonObject: "an object"}
    return names.get(type(value), "a number" if isinstance(value, NumberText) else "a text")


def read_device(entry: JsonObject, path: str, reader: TreeReader, host: str, host_ip: str = "") -> Rank:
    """One entry but for its rank_id, which stands elsewhere in the old forms."""
    texts = {
        name: reader.text(entry, path, name, needed=False)
        for name in ("device_ip", "backup_device_ip", "super_device_id", *PORT_FIELDS)
    }
    return Rank(
        path,
        host,
        host_ip,
        device_id=reader.number(entry, path, "device_id"),
        device_ips=split_list(texts["device_ip"]),
        backup_ips=split_list(texts["backup_device_ip"]),
        super_device_id=texts["super_device_id"],
        ports={name: port for name in PORT_FIELDS if (port := texts[name]) is not None},
    )


def split_list(text: str | None) -> tuple[str, ...]:
    """The parts of a list with commas, without spaces around them; none for None and the empty text."""
    return tuple(part.strip() for part in text.split(",")) if text else ()
