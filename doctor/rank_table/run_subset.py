"""A saved run as if some of its hosts had never been looked at. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.evaluate import Book
from doctor.engine.fact import Fact, Output
from doctor.engine.record import HostRecord, Run
from doctor.facts.hccn import DeviceAddresses, SuperPod, VnicAddresses
from doctor.facts.hccn.hccs import HccsPings
from doctor.facts.network import HostAddresses
from doctor.facts.pings import DevicePings
from doctor.job import NotARankTable, read_rank_table
from doctor.job.launch_config import TABLE_VARIABLES
from doctor.rank_table.reduce import NotReduced, reduce, servers_of

_NOT_TRIED = Output("error", err="was tried with hosts alone that are left out")


def subset(run: Run, hosts: Sequence[str], smoke: Mapping[str, Any] | None = None) -> Run:
    """The run of ``hosts`` alone, to be judged again: another majority, another rank table, fewer peers.

    What they said of the others is forgotten. The rank table is reduced; where that cannot be, the run's table is one
    that cannot be read, and why. ``smoke`` stands for the smoke run, which was made with all of them; see
    `doctor.preflight.spares`.
    """
    if tuple(hosts) == tuple(run.hosts):
        return run
    table = _table(run, hosts)
    return msgspec.structs.replace(
        run,
        source=f"{len(hosts)} of {run.source}",
        hosts=_records(run, hosts, bool(table)),
        given={**run.given, "hosts": list(hosts)},
        launch=_launch(run.launch, hosts, table),
        rank_table=table,
        smoke=dict(run.smoke if smoke is None else smoke),
    )


def names_of(run: Run) -> dict[str, str]:
    """The inventory's names of the hosts that the rank table lists, by its server_ids and addresses."""
    try:
        table = read_rank_table("", run.rank_table.get("text", ""))
    except NotARankTable:
        return {}
    return servers_of(table, run.hosts, Book(run.hosts).fleet(HostAddresses))


def _table(run: Run, hosts: Sequence[str]) -> dict[str, str]:
    """The rank table for ``hosts``: ``path`` and ``text``, or ``error``."""
    if "text" not in run.rank_table:
        return run.rank_table
    path = run.rank_table["path"]
    try:
        return {"path": path, "text": reduce(run.rank_table["text"], hosts, Book(run.hosts).fleet(HostAddresses))}
    except NotReduced as why:
        return {"path": path, "error": f"it cannot be reduced to {len(hosts)} hosts: {why}"}


def _launch(launch: Mapping[str, Any], hosts: Collection[str], table: Mapping[str, str]) -> dict[str, Any]:
    """A reduced table is one that was given: the environment names the old one."""
    fewer = dict(launch)
    ranks = launch.get("ranks_per_host")
    if isinstance(ranks, dict):
        fewer["ranks_per_host"] = {host: number for host, number in ranks.items() if host in hosts}
    if table:
        fewer["rank_table"] = table["path"]
        environ = launch.get("environ") or {}
        fewer["environ"] = {name: value for name, value in environ.items() if name not in TABLE_VARIABLES}
    return fewer


def _records(run: Run, hosts: Sequence[str], reduced: bool) -> dict[str, HostRecord]:
    outputs = {host: dict(run.hosts[host].outputs) for host in hosts}
    others = set(run.hosts) - set(hosts)
    keep = {*hosts, str(run.given.get("master_addr", ""))}
    for said in outputs.values():
        _without_names(said, others - keep)
        if reduced:
            _without_copy(said)
    book = Book({host: run.hosts[host] for host in hosts})
    _without_pings(outputs, book, DevicePings)
    _without_pings(outputs, book, HccsPings)
    return {host: HostRecord(run.hosts[host].visit, outputs[host]) for host in hosts}


def _without_names(said: dict[str, dict[str, Output]], others: Collection[str]) -> None:
    """What the names of the others mean here is no matter any more."""
    found = _read(said, "HostNames")
    if isinstance(found, dict) and isinstance(found.get("names"), dict):
        own = found.get("own")
        names = {name: one for name, one in found["names"].items() if name == own or name not in others}
        _write(said, "HostNames", {**found, "names": names})


def _without_copy(said: dict[str, dict[str, Output]]) -> None:
    """No host has the reduced table yet."""
    found = _read(said, "RankTableOnHost")
    if isinstance(found, dict) and found.get("path"):
        _write(said, "RankTableOnHost", {**found, "present": False, "sha256": ""})


def _without_pings(outputs: dict[str, dict[str, dict[str, Output]]], book: Book, fact: type[Fact]) -> None:
    """The pings among the hosts of ``book``. Who is to ping one of them, and tried none of them, is not known."""
    name, ends, pods = fact.__name__, _ends(book, fact), book.fleet(SuperPod)
    planned = fact.plan({need: book.fleet(need) for need in fact.needs})
    untried: list[str] = []
    met: set[str] = set()
    for host, said in outputs.items():
        calls = _read(said, name)
        if not isinstance(calls, list):
            continue
        peers = [ends.get((_pod(fact, host, pods), str(call[1])), set()) - {host} for call in calls]
        left = [call for call, to in zip(calls, peers, strict=True) if to]
        if left:
            _write(said, name, left)
            met |= {host}.union(*peers)
        else:
            del said[name]
            untried.append(host)
    for host in set(untried) & planned.keys() - met:
        outputs[host][name] = {"": _NOT_TRIED}


def _ends(book: Book, fact: type[Fact]) -> dict[tuple[object, str], set[str]]:
    """Who has an address, by super pod: a virtual one means something in its own alone."""
    ends: dict[tuple[object, str], set[str]] = {}
    pods = book.fleet(SuperPod)
    for host, own in book.fleet(DeviceAddresses if fact is DevicePings else VnicAddresses).items():
        for port in own.by_npu.values():
            address = port.ip if fact is DevicePings else port.address.ip
            ends.setdefault((_pod(fact, host, pods), str(address)), set()).add(host)
    return ends


def _pod(fact: type[Fact], host: str, pods: Mapping[str, SuperPod]) -> object:
    """One for all hosts where the addresses are of the device network."""
    return "" if fact is DevicePings else pods[host].id if host in pods else host


def _read(said: Mapping[str, Mapping[str, Output]], name: str) -> Any:
    """What an `ask` function returned, or None."""
    output = said.get(name, {}).get("")
    if output is None or output.ended != "exited":
        return None
    try:
        return msgspec.json.decode(output.out)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _write(said: dict[str, dict[str, Output]], name: str, value: Any) -> None:
    output = said[name][""]
    said[name] = {"": msgspec.structs.replace(output, out=msgspec.json.encode(value).decode())}
