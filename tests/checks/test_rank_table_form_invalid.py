"""rank-table-form-invalid: tables of version 2.0, of vLLM and of MindIE."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.result import Status
from tests.checks.tables import Json, a1, list_messages, run_check

NAME = "rank-table-form-invalid"


def version_2(ranks: int = 2) -> Json:
    """As in HCCL documentation, rank_table_config_a5.md (github.com/hicann/hccl), with EIDs and a host address."""
    return {
        "status": "completed",
        "version": "2.0",
        "rank_count": ranks,
        "rank_list": [
            {
                "rank_id": n,
                "device_id": n,
                "local_id": n,
                "level_list": [
                    {
                        "net_layer": 0,
                        "net_instance_id": "superpod_0_0",
                        "net_type": "TOPO_FILE_DESC",
                        "net_attr": "",
                        "rank_addr_list": [
                            {
                                "addr_type": "EID",
                                "addr": f"{0x100000DFDF0020 + n:032x}",
                                "ports": ["0/4"],
                                "plane_id": "0",
                            }
                        ],
                    },
                    {
                        "net_layer": 3,
                        "net_instance_id": "cluster",
                        "net_type": "CLOS",
                        "rank_addr_list": [{"addr_type": "IPV4", "addr": f"10.0.100.{n + 101}", "ports": ["d2h"]}],
                    },
                ],
            }
            for n in range(ranks)
        ],
    }


def vllm() -> Json:
    """As gen_ranktable.py of github.com/vllm-project/vllm-ascend writes it."""

    def entry(n: int) -> Json:
        return {
            "server_id": f"10.0.0.{n // 2 + 1}",
            "device_id": str(n % 2),
            "device_ip": f"10.1.0.{n + 1}",
            "cluster_id": str(n + 1),
        }

    return {
        "version": "1.2",
        "server_count": "2",
        "prefill_device_list": [entry(0), entry(1)],
        "decode_device_list": [entry(2), entry(3)],
        "status": "completed",
    }


def mindie() -> Json:
    """As the controller of MindIE reads it: coordinator, controller, and a group of servers."""
    device = {"device_id": "0", "device_ip": "10.1.0.1", "device_logical_id": "0", "rank_id": "0"}
    server = {"server_id": "10.0.0.3", "server_ip": "10.0.0.3", "device": [device]}
    groups = [
        {"group_id": "0", "server_count": "1", "server_list": [{"server_ip": "10.0.0.1"}]},
        {"group_id": "1", "server_count": "1", "server_list": [{"server_ip": "10.0.0.2"}]},
        {"group_id": "2", "server_count": "1", "server_list": [server]},
    ]
    return {"version": "1.0", "status": "completed", "server_group_list": groups}


SOUND = {"2.0": version_2(), "vLLM": vllm(), "MindIE": mindie()}


@pytest.mark.parametrize("form", SOUND)
def test_a_sound_table_is_no_finding_of_any_check(form: str) -> None:
    names = [check.name for check in load_checks() if check.name.startswith("rank-table-")]
    outcomes = {name: run_check(name, SOUND[form], path="/job/t.json") for name in names if "differs" not in name}
    assert outcomes[NAME].status is Status.PASSED
    assert {name: outcome.status for name, outcome in outcomes.items() if outcome.findings or outcome.unknown} == {}


BROKEN: list[tuple[str, tuple[Any, ...], Any, str]] = [
    ("2.0", ("rank_count",), 3, "rank_count | observed ['3'] | expected 2, as many as are listed"),
    ("2.0", ("status",), "initializing", "status | observed ['initializing'] | expected completed"),
    ("2.0", ("rank_list", 1, "rank_id"), 0, "rank_list[1].rank_id | observed ['0']"),
    ("2.0", ("rank_list", 1, "rank_id"), 2, "rank_list | observed ['no rank 1']"),
    ("2.0", ("rank_list", 0, "local_id"), 65, "rank_list[0].local_id | observed ['65']"),
    ("2.0", ("rank_list", 0, "level_list"), [], "rank_list[0].level_list | observed ['no list']"),
    (
        "2.0",
        ("rank_list", 0, "level_list", 0, "net_layer"),
        1,
        "expected layers from 0 on, in ascending order",
    ),
    ("2.0", ("rank_list", 0, "level_list", 0, "rank_addr_list", 0, "addr"), "00", "expected 32 hexadecimal digits"),
    ("2.0", ("rank_list", 0, "level_list", 1, "rank_addr_list", 0, "addr"), "10.0.0.999", "of the stated type"),
    ("vLLM", ("decode_device_list", 1, "device_id"), "0", "decode_device_list[1].device_id | observed ['0']"),
    ("vLLM", ("decode_device_list", 1, "cluster_id"), "1", "decode_device_list[1].cluster_id | observed ['1']"),
    ("vLLM", ("decode_device_list", 0, "device_ip"), "10.1.0.300", "expected an IPv4 or IPv6 address"),
    ("vLLM", ("prefill_device_list",), [], "prefill_device_list | observed ['no list']"),
    ("MindIE", ("server_group_list", 2, "server_count"), "2", "expected 1, as many as are listed"),
    ("MindIE", ("server_group_list", 2, "server_list", 0, "server_ip"), "host", "server_ip | observed ['host']"),
    ("MindIE", ("server_group_list", 1, "group_id"), "0", "server_group_list[1].group_id | observed ['0']"),
    ("MindIE", ("status",), "initializing", "status | observed ['initializing'] | expected completed"),
]


@pytest.mark.parametrize(("form", "place", "value", "expected"), BROKEN)
def test_a_broken_rule_is_named_with_its_place(form: str, place: tuple[Any, ...], value: Any, expected: str) -> None:
    table = copy.deepcopy(SOUND[form])
    node: Any = table
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    (finding,) = list_messages(run_check(NAME, table))
    assert finding.startswith(f"the {form} table breaks a rule of its form at ") and expected in finding


def test_the_address_of_the_host_layer_may_be_empty() -> None:
    """As in tables of MindCluster (github.com/Ascend/mind-cluster)."""
    table = copy.deepcopy(SOUND["2.0"])
    table["rank_list"][0]["level_list"][1]["rank_addr_list"][0]["addr"] = ""
    assert run_check(NAME, table).status is Status.PASSED


def test_tables_of_hccl_are_left_to_the_other_checks() -> None:
    assert run_check(NAME, a1()).status is Status.SKIPPED
    assert run_check(NAME, "{").status is Status.SKIPPED
