"""A saved run restricted to some of its hosts. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.evaluate import FactCache
from doctor.engine.fact import Fact, Output
from doctor.engine.record import HostRecord, LaunchOptions, RankTableFile, Run
from doctor.engine.texts import filled
from doctor.facts.hccn.device_addresses import DeviceAddresses, VnicAddresses
from doctor.facts.hccn.pings import DevicePings, HccsPings
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.network import HostAddresses
from doctor.job import NotARankTable, read_rank_table
from doctor.job.variables import TABLE_VARIABLES
from doctor.rank_table.reduce import ReductionError, hosts_by_server, reduce_table

_NOT_TRIED = Output("error", err="was only tested with excluded hosts")


def subset(run: Run, hosts: Sequence[str], smoke: Mapping[str, Any] | None = None) -> Run:
    """The run of ``hosts`` alone, to be evaluated again: another majority, another rank table, fewer peers.

    What they said of the others is forgotten. The rank table is reduced; where that cannot be, the run's table is one
    that cannot be read, and why. ``smoke`` stands for the smoke run, which was made with all of them; see
    `doctor.preflight.spares`.
    """
    if tuple(hosts) == tuple(run.hosts):
        return run
    table = _table(run, hosts)
    return msgspec.structs.replace(
        run,
        source=filled("{0} of {1}", len(hosts), run.source),
        hosts=_records(run, hosts, bool(table)),
        probe_inputs=msgspec.structs.replace(run.probe_inputs, hosts=tuple(hosts)),
        launch=_launch(run.launch, hosts, table),
        rank_table=table,
        smoke=dict(run.smoke if smoke is None else smoke),
    )


def table_host_names(run: Run) -> dict[str, str]:
    """The inventory's names of the hosts that the rank table lists, by its server_ids and addresses."""
    try:
        table = read_rank_table("", run.rank_table.text)
    except NotARankTable:
        return {}
    return hosts_by_server(table, run.hosts, FactCache(run.hosts).fleet(HostAddresses))


def _table(run: Run, hosts: Sequence[str]) -> RankTableFile:
    """The rank table for ``hosts``: its text, or why there is none."""
    table = run.rank_table
    if not table or table.error:
        return table
    try:
        return RankTableFile(table.path, reduce_table(table.text, hosts, FactCache(run.hosts).fleet(HostAddresses)))
    except ReductionError as why:
        return RankTableFile(table.path, error=filled("it cannot be reduced to {0} hosts: {1}", len(hosts), why))


def _launch(launch: LaunchOptions, hosts: Collection[str], table: RankTableFile) -> LaunchOptions:
    """The settings for ``hosts``: the reduced table stands for the one that the environment names."""
    ranks = launch.ranks_per_host
    if isinstance(ranks, dict):
        ranks = {host: number for host, number in ranks.items() if host in hosts}
        launch = msgspec.structs.replace(launch, ranks_per_host=ranks)
    if table:
        environ = {name: value for name, value in launch.environ.items() if name not in TABLE_VARIABLES}
        launch = msgspec.structs.replace(launch, rank_table=table.path, environ=environ)
    return launch


def _records(run: Run, hosts: Sequence[str], reduced: bool) -> dict[str, HostRecord]:
    outputs = {host: dict(run.hosts[host].outputs) for host in hosts}
    others = set(run.hosts) - set(hosts)
    keep = {*hosts, run.probe_inputs.master_addr}
    for host_outputs in outputs.values():
        _without_names(host_outputs, others - keep)
        if reduced:
            # no host has the reduced table yet
            content = _read_output(host_outputs, "RankTableOnHost")
            if isinstance(content, dict) and content.get("path"):
                _write_output(host_outputs, "RankTableOnHost", {**content, "present": False, "sha256": ""})
    book = FactCache({host: run.hosts[host] for host in hosts})
    _without_pings(outputs, book, DevicePings)
    _without_pings(outputs, book, HccsPings)
    return {host: HostRecord(run.hosts[host].visit, outputs[host]) for host in hosts}


def _without_names(outputs: dict[str, dict[str, Output]], others: Collection[str]) -> None:
    """What the names of the others mean here is no matter any more."""
    content = _read_output(outputs, "HostNames")
    if isinstance(content, dict) and isinstance(content.get("names"), dict):
        self_name = content.get("own")
        names = {name: value for name, value in content["names"].items() if name == self_name or name not in others}
        _write_output(outputs, "HostNames", {**content, "names": names})


def _without_pings(outputs: dict[str, dict[str, dict[str, Output]]], book: FactCache, fact: type[Fact]) -> None:
    """The pings among the hosts of ``book``. Who is to ping one of them, and tried none of them, is not known."""
    name, hosts_by_address, pods = fact.__name__, _hosts_by_address(book, fact), book.fleet(SuperPodId)
    planned = fact.plan({need: book.fleet(need) for need in fact.needs})
    untried: list[str] = []
    covered_hosts: set[str] = set()
    for host, host_outputs in outputs.items():
        calls = _read_output(host_outputs, name)
        if not isinstance(calls, list):
            continue
        peers = [hosts_by_address.get((_pod(fact, host, pods), str(call[1])), set()) - {host} for call in calls]
        kept_calls = [call for call, to in zip(calls, peers, strict=True) if to]
        if kept_calls:
            _write_output(host_outputs, name, kept_calls)
            covered_hosts |= {host}.union(*peers)
        else:
            del host_outputs[name]
            untried.append(host)
    for host in set(untried) & planned.keys() - covered_hosts:
        outputs[host][name] = {"": _NOT_TRIED}


def _hosts_by_address(book: FactCache, fact: type[Fact]) -> dict[tuple[object, str], set[str]]:
    """Who has an address, by super pod: a virtual one means something in its own alone."""
    hosts_by_address: dict[tuple[object, str], set[str]] = {}
    pods = book.fleet(SuperPodId)
    for host, addresses in book.fleet(DeviceAddresses if fact is DevicePings else VnicAddresses).items():
        for port in addresses.by_npu.values():
            address = port.ip if fact is DevicePings else port.address.ip
            hosts_by_address.setdefault((_pod(fact, host, pods), str(address)), set()).add(host)
    return hosts_by_address


def _pod(fact: type[Fact], host: str, pods: Mapping[str, SuperPodId]) -> object:
    """One for all hosts where the addresses are of the device network."""
    return "" if fact is DevicePings else pods[host].id if host in pods else host


def _read_output(outputs: Mapping[str, Mapping[str, Output]], name: str) -> Any:
    """What an `ask` function returned, or None."""
    output = outputs.get(name, {}).get("")
    if output is None or output.ended != "exited":
        return None
    try:
        return msgspec.json.decode(output.out)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _write_output(outputs: dict[str, dict[str, Output]], name: str, value: Any) -> None:
    output = outputs[name][""]
    outputs[name] = {"": msgspec.structs.replace(output, out=msgspec.json.encode(value).decode())}
