"""Builds a rank table from the hosts' facts; none if any host is incomplete. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from doctor.engine.fact import Fact
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.hccn.super_pod import SuperDevices, SuperPodId
from doctor.facts.network import HostAddresses
from doctor.facts.npu import NpuInventory, NpuProduct
from doctor.job import LaunchConfig
from doctor.rank_table.build_parts import (
    FactFinder,
    FactLookup,
    HostSuperPod,
    addresses_of,
    family_of,
    ips_of,
    npus_of,
    pods_of,
    server_id,
)

REQUIRED_FACTS: tuple[type[Fact], ...] = (
    NpuInventory,
    NpuProduct,
    DeviceAddresses,
    HostAddresses,
    SuperPodId,
    SuperDevices,
)
"""The data of a rank table."""


class BuiltRankTable(msgspec.Struct, frozen=True):
    """A rank table, and what is in it."""

    text: str
    version: str
    family: str
    hosts: int
    npus: int


class _HostEntry(msgspec.Struct, frozen=True):
    """The table's entry of one host."""

    server_id: str
    npus: tuple[int, ...]
    addresses: Mapping[int, str]
    pod: HostSuperPod | None
    ip: str


def build_rank_table(
    hosts: Sequence[str],
    lookup: FactLookup,
    launch: LaunchConfig = LaunchConfig(),
    devices: Sequence[int] = (),
    names: Mapping[str, str] = {},
) -> BuiltRankTable:
    """The table of all NPUs of ``hosts``, or of those in ``devices`` on each; ranks follow the hosts, then the numbers.

    ``names``: what each host calls itself, for one whose name here means every host to itself. The table has yet to
    pass the checks of tables.

    Raises: doctor.rank_table.build_parts.RankTableBuildError.
    """
    finder = FactFinder(lookup)
    npus = npus_of(finder, hosts, devices)
    product = family_of(finder, npus, launch)
    pods = pods_of(finder, npus) if product == "A3" else {}
    addresses = addresses_of(finder, hosts, npus, launch, product, pods)
    ips = ips_of(finder, npus)
    ids = {host: server_id(finder, host, ips.get(host, ""), names) for host in hosts}
    finder.raise_problems()
    entries = [_HostEntry(ids[host], npus[host], addresses.get(host, {}), pods.get(host), ips[host]) for host in hosts]
    version = "1.2" if product == "A3" else "1.0"
    return BuiltRankTable(_to_json(entries, version), version, product, len(hosts), sum(map(len, npus.values())))


def _to_json(hosts: Sequence[_HostEntry], version: str) -> str:
    """As JSON, in which every scalar is text."""
    ranks = iter(range(sum(len(host.npus) for host in hosts)))
    table: dict[str, object] = {
        "status": "completed",
        "version": version,
        "server_count": str(len(hosts)),
        "server_list": [_server(host, ranks) for host in hosts],
    }
    if version == "1.2":
        listed: dict[str, list[dict[str, str]]] = {}
        for host in hosts:
            assert host.pod
            listed.setdefault(str(host.pod.super_pod.id), []).append({"server_id": host.server_id})
        table["super_pod_list"] = [{"super_pod_id": pod, "server_list": servers} for pod, servers in listed.items()]
    return msgspec.json.format(msgspec.json.encode(table), indent=2).decode() + "\n"


def _server(host: _HostEntry, ranks: Iterator[int]) -> dict[str, object]:
    """``host_ip`` is a field of A3's alone."""
    entry: dict[str, object] = {"server_id": host.server_id}
    if host.pod and host.ip:
        entry["host_ip"] = host.ip
    entry["device"] = [_device(host, npu, next(ranks)) for npu in host.npus]
    return entry


def _device(host: _HostEntry, npu: int, rank: int) -> dict[str, str]:
    entry = {"device_id": str(npu)}
    if npu in host.addresses:
        entry["device_ip"] = host.addresses[npu]
    if host.pod:
        entry["super_device_id"] = str(host.pod.sdids[npu])
    return {**entry, "rank_id": str(rank)}
