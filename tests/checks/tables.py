"""Rank tables as they are met in the wild, and the way to put one before a check."""

from __future__ import annotations

import json
from typing import Any

from doctor.engine.catalog import bundled_folder, load_check
from doctor.engine.check import Check
from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.result import Outcome
from doctor.job import LaunchConfig, NotARankTable, RankTable, RankTableFile, read_rank_table

Json = Any


def a1(hosts: int = 2, devices: int = 8) -> Json:
    """Version 1.0 as hccl_tools.py and merge_hccl.py write it: Atlas 800 9000, eight devices a host."""
    return _servers(
        [
            {
                "server_id": f"172.16.0.{host + 10}",
                "device": [
                    {
                        "device_id": str(n),
                        "device_ip": f"10.0.{n % 4}.{2 * host + n // 4 + 1}",
                        "rank_id": str(host * devices + n),
                    }
                    for n in range(devices)
                ],
                "host_nic_ip": "reserve",
            }
            for host in range(hosts)
        ]
    )


def a2(hosts: int = 2, devices: int = 8) -> Json:
    """Version 1.0 with host_ip and ports."""
    table = a1(hosts, devices)
    for number, server in enumerate(table["server_list"]):
        server["server_id"] = f"node_{number}"
        server["host_ip"] = f"172.16.0.{number + 110}"
        for n, device in enumerate(server["device"]):
            device.update(device_ip=f"10.20.{number}.{n + 8}", device_port="16667", host_port=str(16666 + n))
    return table


def a3(pods: int = 2, hosts: int = 2, devices: int = 16) -> Json:
    """Version 1.2: super pods, two dies a chip, SDIDs as the hardware codes them."""
    table = a2(pods * hosts, devices)
    table["version"] = "1.2"
    for number, server in enumerate(table["server_list"]):
        for n, device in enumerate(server["device"]):
            device["super_device_id"] = str(sdid(9 + number % hosts, n))
            device["backup_device_ip"] = f"10.20.{number}.{(n ^ 1) + 8}"
            device["backup_device_port"] = "16668"
    names = [server["server_id"] for server in table["server_list"]]
    table["super_pod_list"] = [
        {
            "super_pod_id": str(pod),
            "server_list": [{"server_id": name} for name in names[pod * hosts : (pod + 1) * hosts]],
        }
        for pod in range(pods)
    ]
    return table


def sdid(server: int, device: int) -> int:
    return server << 22 | device // 2 << 18 | device % 2 << 16 | device


def legacy(hosts: int = 2, devices: int = 8) -> Json:
    """The documented template two: a pod on each host, ranks numbered by HCCL."""
    pods = [
        {
            "pod_name": f"tf-{host}",
            "server_id": server["server_id"],
            "devices": [_id_and_ip(d) for d in server["device"]],
        }
        for host, server in enumerate(a1(hosts, devices)["server_list"])
    ]
    group = {
        "group_name": "hccl_world_group",
        "instance_count": str(hosts),
        "device_count": str(hosts * devices),
        "instance_list": pods,
    }
    return {"status": "completed", "group_count": "1", "group_list": [group]}


def lab(hosts: int = 1, devices: int = 8) -> Json:
    """The form of the early MindSpore tutorials: an instance for each device."""
    instances = [
        {"devices": [_id_and_ip(device)], "rank_id": device["rank_id"], "server_id": server["server_id"]}
        for server in a1(hosts, devices)["server_list"]
        for device in server["device"]
    ]
    group = {
        "device_num": str(hosts * devices),
        "server_num": str(hosts),
        "group_name": "",
        "instance_count": str(hosts * devices),
        "instance_list": instances,
    }
    return {
        "board_id": "0x0000",
        "chip_info": "910",
        "deploy_mode": "lab",
        "group_count": "1",
        "group_list": [group],
        "para_plane_nic_location": "device",
        "para_plane_nic_name": [f"eth{n}" for n in range(8)],
        "para_plane_nic_num": "8",
        "status": "completed",
    }


def _servers(servers: list[Json]) -> Json:
    return {"version": "1.0", "server_count": str(len(servers)), "server_list": servers, "status": "completed"}


def _id_and_ip(device: Json) -> Json:
    return {"device_id": device["device_id"], "device_ip": device["device_ip"]}


HEALTHY: dict[str, tuple[Json, str]] = {
    "a1": (a1(), "A1"),
    "a1-one-host": (a1(1), "A1"),
    "a2": (a2(), "A2"),
    "a3": (a3(), "A3"),
    "a3-one-pod": (a3(1), "A3"),
    "legacy": (legacy(), "A1"),
    "lab": (lab(2), "A1"),
}


def table(value: Json) -> RankTable:
    return read_rank_table("/job/rank_table.json", value if isinstance(value, str) else json.dumps(value))


def check(name: str) -> Check:
    return load_check(bundled_folder("checks") / f"{name.replace('-', '_')}.py")


def run_check(name: str, value: Json, product: str = "", path: str = "/job/rank_table.json", **environ: str) -> Outcome:
    """What the check says of the table alone, without hosts."""
    text = value if isinstance(value, str) else json.dumps(value)
    intent: dict[type, object] = {
        LaunchConfig: LaunchConfig.from_environment(environ, product=product),
        RankTableFile: RankTableFile(path, text),
    }
    try:
        intent[RankTable] = read_rank_table(path, text)
    except NotARankTable as why:
        intent[RankTable] = why.for_checks
    return evaluate_check(check(name), (), FactCache({}), intent)


def list_messages(outcome: Outcome) -> list[str]:
    """The findings in words, with what was seen and wanted."""
    return [
        str(finding)
        + "".join(f" | {key} {finding.values[key]}" for key in ("observed", "expected") if key in finding.values)
        for finding in outcome.findings
    ]
