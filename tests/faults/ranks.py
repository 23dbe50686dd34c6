"""Faults in what the job intends: a rank table of the live fleet with one thing wrong, or a setting out of range."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from doctor.engine.fact import Visit
from doctor.engine.record import SCHEMA, HostRecord, LaunchOptions, Run
from tests.checks.tables import sdid
from tests.faults import Prepared, Row

Json = Any
Spoil = Callable[[Json], Json]


def table_of(fleet: Any) -> Json:
    """The rank table that a careful user would write for these hosts: version 1.2 where they form a super pod."""
    servers, rank = [], 0
    for host in fleet.hosts:
        devices = []
        output = fleet.enter(host, "cd /run/npu; for n in [0-9]*; do echo $n $(cat $n/ip 2>/dev/null); done").stdout
        for number, *ip in sorted((line.split() for line in output.splitlines()), key=lambda parts: int(parts[0])):
            address = {"device_ip": ip[0]} if ip else {}
            devices.append({"device_id": number, **address, "rank_id": str(rank)})
            rank += 1
        servers.append({"server_id": host, "host_ip": fleet.addresses[host], "device": devices})
    table = {"version": "1.0", "status": "completed", "server_count": str(len(servers)), "server_list": servers}
    return super_pod(table) if "device_ip" not in servers[0]["device"][0] else table


def super_pod(table: Json) -> Json:
    table["version"] = "1.2"
    for number, server in enumerate(table["server_list"]):
        for device in server["device"]:
            device["super_device_id"] = str(sdid(number, int(device["device_id"])))
    names = [{"server_id": server["server_id"]} for server in table["server_list"]]
    table["super_pod_list"] = [{"super_pod_id": "0", "server_list": names}]
    return table


def prepare(spoil: Spoil, name: str, fleet: Any, folder: Path, healthy: bool) -> Prepared:
    """Writes the table, spoilt or not, and names it on the command line."""
    table = table_of(fleet)
    if not healthy:
        table = spoil(table)
    path = folder / ("rank_table.json" if healthy else name)
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    return Prepared(["--rank-table", str(path), "--hosts", ",".join(fleet.hosts)])


def table(check: str, spoil: Spoil, *, name: str = "rank_table.json", **more: Any) -> Row:
    """A row about the table."""
    return Row(check, "", prepare=partial(prepare, spoil, name), **{"blamed": (), **more})


def device(host: int, number: int, **fields: Any) -> Spoil:
    """Sets fields of one device's entry; None takes a field out."""

    def spoil(table: Json) -> Json:
        entry = table["server_list"][host]["device"][number]
        for field, value in fields.items():
            entry.pop(field, None)
            if value is not None:
                entry[field] = value
        return table

    return spoil


def top(**fields: Any) -> Spoil:
    return lambda table: {**table, **fields}


def server(host: int, **fields: Any) -> Spoil:
    def spoil(table: Json) -> Json:
        table["server_list"][host].update(fields)
        return table

    return spoil


def swapped(field: str, first: tuple[int, int], second: tuple[int, int]) -> Spoil:
    """Exchanges a field of two devices."""

    def spoil(table: Json) -> Json:
        a, b = (table["server_list"][host]["device"][number] for host, number in (first, second))
        a[field], b[field] = b[field], a[field]
        return table

    return spoil


def copied(field: str, source: tuple[int, int], target: tuple[int, int]) -> Spoil:
    """Gives one device the value of another."""

    def spoil(table: Json) -> Json:
        a, b = (table["server_list"][host]["device"][number] for host, number in (source, target))
        b[field] = a[field]
        return table

    return spoil


def first_devices(host: int, count: int) -> Spoil:
    """Only ``count`` devices of a host take part; the ranks stay contiguous."""

    def spoil(table: Json) -> Json:
        table["server_list"][host]["device"] = table["server_list"][host]["device"][:count]
        entries = [entry for item in table["server_list"] for entry in item["device"]]
        for rank, entry in enumerate(entries):
            entry["rank_id"] = str(rank)
        return table

    return spoil


def reversed_hosts(table: Json) -> Json:
    """The hosts in reverse order, ranks following."""
    table["server_list"].reverse()
    return first_devices(0, 8)(table)


def without(field: str) -> Spoil:
    return lambda table: {name: value for name, value in table.items() if name != field}


def pods_without_last(table: Json) -> Json:
    table["super_pod_list"][0]["server_list"].pop()
    return table


def by_variable(fleet: Any, folder: Path, healthy: bool) -> Prepared:
    """The table is named by RANK_TABLE_FILE, absolutely or relative to the working directory."""
    path = folder / "rank_table.json"
    path.write_text(json.dumps(table_of(fleet)))
    output = str(path) if healthy else os.path.relpath(path, Path(__file__).parents[2])
    return Prepared(["--hosts", ",".join(fleet.hosts)], {"RANK_TABLE_FILE": output})


def on_every_host(fleet: Any, folder: Path, healthy: bool) -> Prepared:
    """The hosts have the file too, at the same place."""
    prepared = prepare(lambda table: table, "rank_table.json", fleet, folder, True)
    for host in fleet.hosts:
        text = (folder / "rank_table.json").read_text()
        fleet.write(host, str(folder / "rank_table.json"), text if healthy or host != fleet.hosts[2] else text + " ")
    return prepared


def with_world_size(fleet: Any, folder: Path, healthy: bool) -> Prepared:
    """WORLD_SIZE as the table has it, or as another job had it."""
    arguments = prepare(lambda table: table, "rank_table.json", fleet, folder, True).arguments
    return Prepared(arguments, {"WORLD_SIZE": "32" if healthy else "64"})


def setting(check: str, healthy: Mapping[str, str], spoilt: Mapping[str, str], **more: Any) -> Row:
    """A row about the job's environment on the controller."""

    def choose(fleet: Any, folder: Path, is_healthy: bool) -> Prepared:
        return Prepared(["--hosts", ",".join(fleet.hosts)], healthy if is_healthy else spoilt)

    return Row(check, "", prepare=choose, **{"blamed": (), **more})


def line(check: str, healthy: str, spoilt: str, also: tuple[str, ...] = ()) -> Row:
    """A row about the launch line."""

    def choose(fleet: Any, folder: Path, is_healthy: bool) -> Prepared:
        return Prepared(["--hosts", ",".join(fleet.hosts), "--", *(healthy if is_healthy else spoilt).split()])

    return Row(check, "", prepare=choose, blamed=(), also=also)


def program_line(fleet: Any, folder: Path, healthy: bool) -> Prepared:
    """A launch whose program is a file that every host has; the fault takes it from one."""
    launch = ["torchrun", "--nnodes", "4", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{fleet.hosts[0]}:29400"]
    return Prepared(["--hosts", ",".join(fleet.hosts), "--", *launch, "/usr/share/common-licenses/BSD"])


def code_line(fleet: Any, folder: Path, healthy: bool) -> Prepared:
    """A launch whose program is a file of Python that every host has; the fault adds a line on one."""
    launch = ["torchrun", "--nnodes", "4", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{fleet.hosts[0]}:29400"]
    return Prepared(
        ["--hosts", ",".join(fleet.hosts), "--", *launch, str(min(Path("/usr/lib").glob("python3*/this.py")))]
    )


def told_ranks(fleet: Any, folder: Path, healthy: bool) -> Prepared:
    """Node files of hosts of which two have the same RANK."""
    by_host = {host: {"RANK": str(number)} for number, host in enumerate(fleet.hosts)}
    if not healthy:
        by_host[fleet.hosts[1]]["RANK"] = "0"
    return saved(fleet, by_host, folder / f"ranks-{healthy}.json")


def merged_run(fleet: Any, folder: Path, healthy: bool) -> Prepared:
    """A run as `doctor merge --save` keeps it; tests/test_node.py makes one of what real hosts were told."""
    by_host = {host: {"MASTER_ADDR": fleet.hosts[0], "WORLD_SIZE": "32"} for host in fleet.hosts}
    by_host[fleet.hosts[1]]["MASTER_ADDR"] = fleet.hosts[0 if healthy else 3]
    return saved(fleet, by_host, folder / f"told-{healthy}.json")


def saved(fleet: Any, by_host: dict[str, dict[str, str]], path: Path) -> Prepared:
    """A saved run with each host's own environment."""
    hosts = {host: HostRecord(Visit(local=True)) for host in fleet.hosts}
    run = Run(
        SCHEMA, "4 hosts, by node files", "2026-01-01T00:00:00Z", 1.0, hosts, launch=LaunchOptions(by_host=by_host)
    )
    path.write_bytes(msgspec.json.encode(run))
    return Prepared(["--from", str(path)])


ROWS = [
    table(
        "rank-table-not-json",
        lambda table: json.dumps(table)[:-2] + ",]}",
        says="a comma before the closing bracket",
    ),
    table(
        "rank-table-form-invalid",
        lambda _: {"version": "2.0", "rank_count": 2, "rank_list": [{"rank_id": 0, "local_id": 0, "device_id": 0}]},
        says="the 2.0 table breaks a rule of its form at",
        healthy_first=False,
    ),
    table("rank-table-version-unknown", top(version="3.0"), says="version 3.0"),
    table("rank-table-not-completed", top(status="initializing"), values={"observed": "initializing"}),
    table(
        "rank-table-field-missing",
        device(1, 3, rank_id=None),
        values={"places": ["server_list[1].device[3].rank_id"]},
    ),
    table("rank-table-number-unquoted", device(1, 3, rank_id=11), values={"observed": "11", "expected": '"11"'}),
    table("rank-table-counts-wrong", top(server_count="5"), values={"observed": 5, "expected": 4}),
    table("rank-table-ranks-not-contiguous", device(3, 7, rank_id="99"), values={"ranks": ["99"]}),
    table("rank-table-ranks-interleave", swapped("rank_id", (0, 2), (1, 2)), blamed=[0, 1], values={"last": 10}),
    table("rank-table-server-repeated", server(1, server_id="127.0.0.1"), values={"ids": ["127.0.0.1"]}),
    table(
        "rank-table-device-repeated",
        copied("device_id", (1, 2), (1, 3)),
        blamed=[1],
        values={"device": 2, "ranks": ["rank 10", "rank 11"]},
    ),
    table(
        "rank-table-address-invalid",
        device(2, 5, device_ip="29.1.300.1"),
        blamed=[2],
        values={"observed": ["29.1.300.1 (rank 21)"]},
    ),
    table("rank-table-address-repeated", copied("device_ip", (0, 4), (2, 4)), blamed=[0, 2], says="device 4"),
    table("rank-table-families-mixed", device(2, 5, device_ip="fd00::7"), blamed=[2], values={"version": 6}),
    table("rank-table-ports-wrong", device(2, 5, device_port="70000"), values={"observed": ["70000 (rank 21)"]}),
    table("rank-table-a1-layout", first_devices(1, 3), fleet="a1", values={"count": 3}, blamed=(1,)),
    table("rank-table-super-pod-wrong", pods_without_last, fleet="a3", blamed=[3], values={"which": ["sb0004"]}),
    table(
        "rank-table-super-device-repeated",
        copied("super_device_id", (0, 1), (1, 1)),
        fleet="a3",
        blamed=[1],
        values={"ranks": ["rank 1", "rank 17"], "places": ["server_list[1].device[1]"]},
        also=("rank-table-super-device-differs",),
    ),
    table(
        "rank-table-super-device-differs",
        device(1, 4, super_device_id=str(sdid(1, 5))),
        fleet="a3",
        blamed=[1],
        values={"rank": "rank 20", "observed": "device 5", "expected": "device 4"},
    ),
    table("rank-table-super-pod-absent", without("super_pod_list"), fleet="a3", says="no super_pod_list"),
    table("rank-table-order-not-lexical", reversed_hosts, values={"observed": "sb0004", "expected": "sb0001"}),
    table("rank-table-path-refused", lambda table: table, name="rank_table.txt", says="does not end in .json"),
    Row(
        "rank-table-path-relative",
        "",
        blamed=(),
        values={"variable": "RANK_TABLE_FILE"},
        prepare=by_variable,
        also=("rank-table-differs-between-hosts",),
    ),
    table(
        "rank-table-address-differs",
        swapped("device_ip", (1, 0), (1, 1)),
        blamed=[1],
        says="device 0 has 29.1.102.200, not 29.1.102.201",
    ),
    table("rank-table-device-missing", device(1, 3, device_id="12"), blamed=[1], values={"missing": ["12"]}),
    table(
        "rank-table-host-unknown",
        server(3, server_id="elsewhere", host_ip="10.99.0.1"),
        blamed=[3],
        values={"which": ["sb0004"]},
    ),
    Row("rank-table-differs-between-hosts", "", host=2, prepare=on_every_host),
    Row(
        "rank-table-world-size-differs", "", blamed=(), values={"observed": 64, "expected": 32}, prepare=with_world_size
    ),
    Row(
        "launch-differs",
        "",
        clause="rendezvous address",
        fleet="cpu",
        prepare=merged_run,
        values={"variable": "MASTER_ADDR", "observed": "sb0004"},
    ),
    Row(
        "launch-differs",
        "f=$(ls /usr/lib/python3*/this.py | head -n 1)\ncp $f /run/this.py\necho 'x = 1' >>/run/this.py\n"
        "mount --bind /run/this.py $f",
        "umount /usr/lib/python3*/this.py",
        clause="same program",
        fleet="cpu",
        prepare=code_line,
        values={"count": 3, "total": 4},
    ),
    Row("rank-numbers-wrong", "", fleet="cpu", prepare=told_ranks, blamed=[0, 1], values={"variable": "RANK"}),
    setting(
        "launch-sizes-contradict",
        {"WORLD_SIZE": "32", "SLURM_STEP_NUM_TASKS": "4"},
        {"WORLD_SIZE": "33", "SLURM_STEP_NUM_TASKS": "4"},
        values={"first": "WORLD_SIZE", "observed": 33, "second": "SLURM_STEP_NUM_TASKS"},
    ),
    setting(
        "launch-size-wrong",
        {"WORLD_SIZE": "32"},
        {"WORLD_SIZE": "33"},
        values={"option": "WORLD_SIZE", "observed": 33, "expected": "32 devices"},
    ),
    line("launch-size-wrong", "torchrun --nnodes 4 --nproc-per-node 8 t.py", "torchrun --nnodes 5 t.py"),
    line(
        "master-address-local",
        "torchrun --nnodes 4 --master-addr sb0001 t.py",
        "torchrun --nnodes 4 --master-addr localhost t.py",
        also=("master-address-wrong",),
    ),
    Row(
        "launch-program-missing",
        "mkdir -p /run/none; mount --bind /run/none /usr/share/common-licenses",
        "umount /usr/share/common-licenses",
        prepare=program_line,
        values={"path": "/usr/share/common-licenses/BSD"},
    ),
    line("launch-option-refused", "torchrun --nnodes 4 t.py", "torchrun --nnodes four t.py"),
    setting(
        "hccl-dfs-config-unsuitable",
        {"HCCL_DFS_CONFIG": "cluster_heartbeat:on"},
        {"HCCL_DFS_CONFIG": "cluster_heartbeat:off"},
        values={"item": "cluster_heartbeat"},
    ),
    setting(
        "launch-variable-misspelt",
        {"HCCL_CONNECT_TIMEOUT": "300"},
        {"HCCL_CONECT_TIMEOUT": "300"},
        values={"variable": "HCCL_CONECT_TIMEOUT", "expected": "HCCL_CONNECT_TIMEOUT"},
    ),
    setting(
        "visible-devices-wrong",
        {"ASCEND_RT_VISIBLE_DEVICES": "0,1"},
        {"ASCEND_RT_VISIBLE_DEVICES": "0,9"},
        blamed=[0, 1, 2, 3],
        values={"absent": [9]},
    ),
    setting(
        "launch-settings-invalid",
        {"HCCL_CONNECT_TIMEOUT": "300"},
        {"HCCL_CONNECT_TIMEOUT": "5"},
        clause="HCCL",
        values={"variable": "HCCL_CONNECT_TIMEOUT", "observed": "5"},
    ),
    setting(
        "launch-timeouts-disordered",
        {"HCCL_CONNECT_TIMEOUT": "300", "HCCL_EXEC_TIMEOUT": "1800"},
        {"HCCL_CONNECT_TIMEOUT": "3600", "HCCL_EXEC_TIMEOUT": "1800"},
        values={"observed": "3600 s"},
    ),
]
