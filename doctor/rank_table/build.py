"""Builds a rank table from the hosts' facts; none if any host is incomplete. Pure.

That of some hosts of a run is reduced, checked by our own checks, and counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from doctor.engine.catalog import bundled_folder, load_check
from doctor.engine.check import Check
from doctor.engine.evaluate import FactCache, Intent, evaluate_check
from doctor.engine.fact import Fact
from doctor.engine.record import Run
from doctor.engine.result import Severity
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.hccn.super_pod import SuperDevices, SuperPodId
from doctor.facts.network import HostAddresses
from doctor.facts.npu import NpuInventory, NpuProduct
from doctor.job import LaunchConfig, NotARankTable, RankTable, RankTableFile, match_servers, read_rank_table
from doctor.rank_table.build_parts import (
    BuildProblem,
    FactFinder,
    FactLookup,
    HostSuperPod,
    RankTableBuildError,
    addresses_of,
    family_of,
    ips_of,
    npus_of,
    pods_of,
    server_id,
)
from doctor.rank_table.reduce import ReductionError
from doctor.rank_table.run_subset import subset

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


def verify(file: RankTableFile, launch: LaunchConfig = LaunchConfig()) -> tuple[str, ...]:
    """The failed checks of the table, one line each; empty when it is valid.

    Every check that needs nothing but the table is asked. Warnings stand against no table, and neither does what
    cannot be known without hosts; what cannot be read does.
    """
    intent: dict[type, object] = {RankTableFile: file, LaunchConfig: launch}
    try:
        intent[RankTable] = read_rank_table(file.path, file.text)
    except NotARankTable as why:
        intent[RankTable] = why.for_checks
    checks = (load_check(path) for path in sorted(bundled_folder("checks").glob("rank_table_*.py")))
    return tuple(line for check in checks if needs_table_only(check) for line in _check_problems(check, intent))


def needs_table_only(check: Check) -> bool:
    """The check needs only the rank table, and no fact of a host."""
    needs = {need.type for need in check.needs if not need.optional}
    return bool(needs & {RankTable, RankTableFile}) and needs <= {RankTable, RankTableFile, LaunchConfig}


def _check_problems(check: Check, intent: Intent) -> Iterable[str]:
    outcome = evaluate_check(check, (), FactCache({}), intent)
    if outcome.crashed:
        yield filled("{0}: the check crashed", check.name)
    elif outcome.findings and outcome.found_severity is Severity.ERROR:
        yield strip_control_chars(f"{check.name}: {outcome.findings[0]}")
    else:
        yield from (
            strip_control_chars(filled("{0}: {1}", check.name, why.text))
            for why in outcome.unknown.values()
            if why.root_cause.startswith("rank-table-")
        )


def reduce_verified(run: Run, hosts: Sequence[str], path: str) -> str:
    """The run's rank table for ``hosts``, fit to be written to ``path``; empty when the run has none.

    Raises: NotReduced.
    """
    table = subset(run, hosts).rank_table
    if table.error:
        raise ReductionError(table.error)
    if not table.text:
        return ""
    link = os.readlink(path) if os.path.islink(path) else ""
    product = LaunchConfig.from_options(run.launch).product
    problems = verify(RankTableFile(path, table.text, link_target=link), LaunchConfig(product=product))
    if problems:
        more = filled(", and {0} more", len(problems) - 1) if len(problems) > 1 else ""
        raise ReductionError(filled("the reduced rank table fails doctor's own checks: {0}{1}", problems[0], more))
    return table.text


def build_verified(
    hosts: Sequence[str],
    lookup: FactLookup,
    path: str,
    launch: LaunchConfig,
    devices: Sequence[int],
    names: Mapping[str, str],
) -> BuiltRankTable:
    """A validated table built from the hosts' facts, for ``path``.

    Raises: NotMade.
    """
    built = build_rank_table(hosts, lookup, launch, devices, names)
    link = os.readlink(path) if os.path.islink(path) else ""
    job = LaunchConfig(product=built.family, env=launch.env)  # type: ignore[arg-type]
    problems = verify(RankTableFile(path, built.text, link_target=link), job)
    if problems:
        raise RankTableBuildError([BuildProblem(line, True) for line in problems])
    return built


def slots_of(run: Run) -> dict[str, int]:
    """Ranks of each host: from the inventory or the command line, else as the rank table lists them."""
    ranks_per_host = run.launch.ranks_per_host
    if isinstance(ranks_per_host, int):
        return dict.fromkeys(run.hosts, ranks_per_host)
    if isinstance(ranks_per_host, dict):
        return ranks_per_host
    try:
        table = read_rank_table("", run.rank_table.text)
    except NotARankTable:
        return {}
    servers_by_host, _ = match_servers(table, run.hosts, FactCache(run.hosts).fleet(HostAddresses))
    return {host: sum(len(server.ranks) for server in servers) for host, servers in servers_by_host.items()}
