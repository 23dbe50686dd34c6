"""What the job is meant to be: rank tables in every form, launch settings, and the hosts that entries mean."""

from __future__ import annotations

import copy
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.engine.catalog import bundled_folder
from doctor.engine.fact import Unreadable
from doctor.engine.result import Status
from doctor.job import (
    EnvSetting,
    LaunchConfig,
    NotARankTable,
    PortRange,
    RankTable,
    invalid_settings,
    limit_items,
    match_servers,
    product_family,
    read_rank_table,
)
from doctor.job.rank_table import load_rank_table
from doctor.job.rank_table.strict_json import parse_json, repeated_keys
from tests.checks.tables import HEALTHY, a1, a2, a3, check, lab, legacy, list_messages, run_check, table
from tests.examples import examples

ALONE = [
    path.stem
    for path in sorted(bundled_folder("checks").glob("rank_table_*.py"))
    if not any(need.fleet and not need.optional for need in check(path.stem).needs)
]
"""The checks that judge the file alone."""


@pytest.mark.parametrize("name", HEALTHY)
def test_a_sound_table_needs_no_product(name: str) -> None:
    """`doctor check --rank-table FILE --no-hosts` has nothing that it does not know."""
    outcomes = {stem: run_check(stem.replace("_", "-"), HEALTHY[name][0]) for stem in ALONE}
    assert {stem: outcome.status for stem, outcome in outcomes.items() if outcome.unknown or outcome.findings} == {}


# Reading


def test_forms() -> None:
    assert [table(value).form for value in (a1(), a2(), a3(), legacy(), lab())] == [
        "1.0",
        "1.0",
        "1.2",
        "group_list",
        "lab",
    ]


def test_a_rank_has_all_that_its_entry_says() -> None:
    rank = table(a3()).ranks[17]
    assert rank.path == "server_list[1].device[1]"
    assert (rank.host, rank.host_ip, rank.rank_id, rank.device_id) == ("node_1", "172.16.0.111", 17, 1)
    assert (rank.device_ips, rank.backup_ips) == (("10.20.1.9",), ("10.20.1.8",))
    assert (rank.super_device_id, rank.super_pod_id) == (str(10 << 22 | 1 << 16 | 1), "0")
    assert rank.ports == {"device_port": "16667", "host_port": "16667", "backup_device_port": "16668"}
    assert str(rank) == "rank 17"


def test_numbers_are_read_and_noted() -> None:
    value = a1(1, 2)
    value["server_count"] = 1
    value["server_list"][0]["device"][1]["rank_id"] = 1
    read = table(value)
    assert [rank.rank_id for rank in read.ranks] == [0, 1]
    assert {(problem.kind, problem.path) for problem in read.problems} == {
        ("unquoted", "server_count"),
        ("unquoted", "server_list[0].device[1].rank_id"),
    }


def test_problems_have_their_places() -> None:
    value = a1(2, 2)
    del value["server_list"][1]["device"][0]["rank_id"]
    value["server_list"][0]["device"][1] = None
    value["server_list"][0]["device"][0]["device_id"] = "two"
    read = table(value)
    assert [(problem.kind, problem.path, problem.observed) for problem in sorted(read.problems)] == [
        ("missing", "server_list[1].device[0].rank_id", ""),
        ("value", "server_list[0].device[0].device_id", "two"),
        ("value", "server_list[0].device[1]", "null"),
    ]
    with pytest.raises(Unreadable, match="rank_id") as caught:
        read.require_fields("rank_id")
    assert caught.value.root_cause == "rank-table-field-missing"


def test_a_group_list_is_numbered_as_hccl_does() -> None:
    value = legacy(1, 4)
    pods = value["group_list"][0]["instance_list"]
    pods.insert(0, {"pod_name": "late", "server_id": "172.16.0.9", "devices": [{"device_id": "3"}, {"device_id": "1"}]})
    assert [(rank.host, rank.device_id, rank.rank_id) for rank in table(value).ranks] == [
        ("172.16.0.9", 3, 5),
        ("172.16.0.9", 1, 4),
        *[("172.16.0.10", n, n) for n in range(4)],
    ]


def test_instances_of_one_host_are_one_server() -> None:
    assert [len(server.ranks) for server in table(lab(2)).servers] == [8, 8]


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ('{\n  "a": [1,\n  2,\n  ]\n}', 3, 4, "a comma before the closing bracket"),
        ('{"a": 1, }', 1, 8, "a comma before the closing bracket"),
        ('{"a": 1 // one\n}', 1, 9, "a comment"),
        ('{"a": 1, // one\n"b": 2}', 1, 10, "a comment"),
        ('{"a": 1\n# one\n}', 2, 1, "a comment"),
        ("{'a': 1}", 1, 2, "single quotes"),
        ('{"a": “1”}', 1, 7, "the character “"),
        ('{"a"： 1}', 1, 5, "the character ："),
        ('{"a": 1}\n{"b": 2}', 2, 1, "the file may contain two tables"),
        ('{"a": [1,\n2', 2, 1, "ends too early"),
        ("", 0, 0, "empty"),
        ("\ufeff \n", 0, 0, "empty"),
        ("[1]", 0, 0, "not an object"),
        ("[" * 100_000, 0, 0, "nested too deeply"),
        ('{"a": "\n"}', 1, 8, "invalid control character"),
    ],
)
def test_what_is_not_json(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(NotARankTable) as caught:
        read_rank_table("t.json", text)
    error = caught.value
    assert reason in str(error)
    assert (error.line, error.column, error.root_cause) == (line, column, "rank-table-not-json")
    assert len(str(error)) < 300 and error.excerpt.isprintable()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"version": "2.0", "server_list": []}, "version 2.0"),
        ({"version": "1.1", "server_list": []}, "version 1.1"),
        ({"version": None}, "version null"),
        ({"server_list": []}, "it has no version and no group_list, but server_list"),
        ({}, "it has no version"),
        ({"version": "\x1b[2J" + "x" * 999}, "version \\x1b[2J"),
    ],
)
def test_unknown_versions_are_named(value: Any, reason: str) -> None:
    with pytest.raises(NotARankTable) as caught:
        table(value)
    assert str(caught.value).startswith(reason) and len(str(caught.value)) < 100
    assert caught.value.root_cause == "rank-table-version-unknown"


def test_byte_order_mark_is_passed_over() -> None:
    assert table("\ufeff" + json.dumps(a1())).ranks


def test_repeated_keys_have_their_places() -> None:
    tree = parse_json('{"a": 1, "a": 2, "b": [{"c": 1, "c": 2, "c": 3}]}')
    assert repeated_keys(tree) == ["a", "b[0].c"]
    assert tree["a"] == "2"


def test_names_from_the_file_are_safe_to_print() -> None:
    value = a1(1, 1)
    value["server_list"][0]["server_id"] = "\x1b[31mevil\n" + "x" * 1000
    (server,) = table(value).servers
    assert server.server_id.startswith("\\x1b[31mevil\\n") and len(server.server_id) < 300


def test_files_that_cannot_be_read() -> None:
    def raise_not_found(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory")

    assert load_rank_table("t.json", raise_not_found).error == "No such file or directory"
    assert "UTF-16" in load_rank_table("t.json", lambda path: b"\xff\xfe{".decode()).error
    assert read_rank_table("t.json", json.dumps(a1())).ranks


def test_few() -> None:
    assert limit_items(range(9)) == [str(n) for n in range(9)]
    assert limit_items(range(20), 2) == ["0", "1", "18 more"]


# Every check of the file alone


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("sample", HEALTHY)
def test_healthy_tables_have_no_findings(sample: str, name: str) -> None:
    value, product = HEALTHY[sample]
    outcome = run_check(name, value, product)
    assert outcome.status in (Status.PASSED, Status.SKIPPED), (list_messages(outcome), outcome)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
fields = [
    "status",
    "version",
    "server_count",
    "server_list",
    "group_list",
    "super_pod_list",
    "deploy_mode",
    "group_count",
]
tables = st.dictionaries(
    st.sampled_from(fields), json_values | st.sampled_from(["1.0", "1.2", "completed"]), max_size=8
)


def _judge_all(text: str, path: str = "/t.json") -> None:
    """No check breaks, whatever the file holds, and what is said of it is bounded."""
    for name in ALONE:
        outcome = run_check(name, text, path=path)
        assert not outcome.crashed, outcome.crashed
        assert len(outcome.findings) < 60
        assert all(len(message) < 3000 for message in list_messages(outcome))


@given(json_values | tables)
@settings(max_examples=examples(60), deadline=None)
def test_any_json_is_judged(value: Any) -> None:
    _judge_all(json.dumps(value))


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@settings(max_examples=examples(60), deadline=None)
def test_any_bytes_are_judged(data: bytes) -> None:
    file = load_rank_table("/t.json", lambda path: data.decode())
    if not file.error:
        _judge_all(file.text)
    _judge_all(data.decode("utf-8", "replace"))


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in _places(inner, (*path, key)))]


SMALL = {
    "a1": (a1(2, 4), "A1"),
    "a2": (a2(2, 2), "A2"),
    "a3": (a3(2, 1, 2), "A3"),
    "legacy": (legacy(2, 2), "A1"),
    "lab": (lab(2, 2), "A1"),
}
FREE = {"server_id", "group_name", "pod_name", "super_pod_id", "backup_device_ip"}
IGNORED = {"host_nic_ip", "board_id", "chip_info", "para_plane_nic_name", "para_plane_nic_num", "deploy_mode"}


@given(st.sampled_from(sorted(SMALL)), st.data())
@settings(max_examples=examples(80), deadline=None)
def test_a_table_with_something_broken_is_never_healthy(sample: str, data: st.DataObject) -> None:
    """One value of a right table becomes nonsense: some check fails, and none breaks."""
    value, product = copy.deepcopy(SMALL[sample])
    place = data.draw(st.sampled_from([place for place in _places(value) if place and not IGNORED.intersection(place)]))
    target = value
    for key in place[:-1]:
        target = target[key]
    wrong = [None, [], {}, True, -7, [[]]]
    wrong += [] if place[-1] in FREE else ["nonsense", "9" * 5000, ""]
    target[place[-1]] = data.draw(st.sampled_from(wrong))
    outcomes = [run_check(name, value, product) for name in ALONE]
    assert not any(outcome.crashed for outcome in outcomes)
    assert any(outcome.findings for outcome in outcomes), (place, target)


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_swapped_and_doubled_ids_are_found(data: st.DataObject) -> None:
    """Of the ids that must be unique, one becomes a copy of another."""
    value = a3(2, 2, 4)
    field, check_name = data.draw(
        st.sampled_from(
            [
                ("rank_id", "rank_table_ranks_not_contiguous"),
                ("device_id", "rank_table_device_repeated"),
                ("device_ip", "rank_table_address_repeated"),
                ("super_device_id", "rank_table_super_device_repeated"),
                ("host_port", "rank_table_ports_wrong"),
            ]
        )
    )
    server = data.draw(st.integers(0, 3))
    first, other = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=2, unique=True))
    devices = value["server_list"][server]["device"]
    devices[first][field] = devices[other][field]
    assert run_check(check_name, value, "A3").status is Status.FAILED


@pytest.mark.parametrize("name", ALONE)
def test_nothing_is_healthy_in_a_table_that_lists_nothing(name: str) -> None:
    allowed = {
        "rank_table_not_json",
        "rank_table_version_unknown",
        "rank_table_not_completed",
        "rank_table_path_refused",
    }
    outcome = run_check(name, {"version": "1.0", "status": "completed"}, "A1")
    assert outcome.status is not Status.PASSED or name in allowed


@pytest.mark.parametrize("name", ALONE)
def test_nothing_is_healthy_in_a_file_that_is_no_table(name: str) -> None:
    outcome = run_check(name, "{", "A1")
    if name not in ("rank_table_path_refused", "rank_table_path_relative"):
        assert outcome.status is Status.FAILED if name == "rank_table_not_json" else Status.UNKNOWN
        assert all(reason.root_cause == "rank-table-not-json" for reason in outcome.unknown.values())


# Launch


def test_defaults() -> None:
    launch = LaunchConfig.from_environment({})
    assert (launch.master_addr, launch.master_port, launch.world_size, launch.product) == ("", 29500, None, None)
    assert launch.hccl_ports == (PortRange(60000, 60031),)
    assert launch.problems == ()


def test_from_the_environment() -> None:
    launch = LaunchConfig.from_environment(
        {
            "MASTER_ADDR": "node1",
            "MASTER_PORT": "6000",
            "WORLD_SIZE": "16",
            "HCCL_IF_BASE_PORT": "50000",
            "RANK_TABLE_FILE": "./rank_table.json",
            "PATH": "/bin",
            "HCCL_SECRET_TOKEN": "x",
            "MASTER_KEY": "x",
            "HCCL_ALGO": "",
        },
        product="a2",
        python="/opt/python3",
    )
    assert (launch.framework, launch.master_addr, launch.master_port, launch.world_size) == ("torch", "node1", 6000, 16)
    assert launch.hccl_ports == (PortRange(50000, 50031),)
    assert (launch.rank_table_path, launch.rank_table_variable) == ("./rank_table.json", "RANK_TABLE_FILE")
    assert (launch.product, launch.python) == ("A2", "/opt/python3")
    assert set(launch.env) == {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "HCCL_IF_BASE_PORT", "RANK_TABLE_FILE"}


def test_options_win() -> None:
    launch = LaunchConfig.from_environment(
        {"MASTER_ADDR": "a", "MASTER_PORT": "1", "RANK_TABLE_FILE": "/e.json"},
        master_addr="b",
        master_port=2,
        rank_table="o.json",
        world_size=4,
        ranks_per_host={"n1": 8},
    )
    assert (launch.master_addr, launch.master_port, launch.world_size) == ("b", 2, 4)
    assert (launch.rank_table_path, launch.rank_table_variable, launch.ranks_per_host) == ("o.json", "", {"n1": 8})


def test_mindspore() -> None:
    launch = LaunchConfig.from_environment({"MS_SCHED_HOST": "10.0.0.1", "MS_WORKER_NUM": "8"})
    assert (launch.framework, launch.master_addr, launch.master_port, launch.world_size) == (
        "mindspore",
        "10.0.0.1",
        8118,
        8,
    )


@pytest.mark.parametrize(
    ("value", "ports"),
    [
        ("61000", (PortRange(61000, 61000),)),
        ("60050-60100,60000", (PortRange(60000, 60000), PortRange(60050, 60100))),
        ("auto", ()),
        ("nonsense", (PortRange(60000, 60031),)),
    ],
)
def test_the_port_range_wins_over_the_base_port(value: str, ports: tuple[PortRange, ...]) -> None:
    assert LaunchConfig.from_environment({"HCCL_HOST_SOCKET_PORT_RANGE": value}).hccl_ports == ports


def test_wrong_values_are_kept_as_problems() -> None:
    launch = LaunchConfig.from_environment({"MASTER_PORT": "70000", "HCCL_IF_BASE_PORT": "12"}, product="A7")
    assert launch.problems == (
        EnvSetting("--product", "A7", "one of A1, A2, A3"),
        EnvSetting("HCCL_IF_BASE_PORT", "12", "a whole number from 1024 to 65520"),
        EnvSetting("MASTER_PORT", "70000", "a whole number from 1 to 65535"),
    )
    assert (launch.master_port, launch.hccl_base_port) == (29500, 60000)


RIGHT = {
    "ASCEND_RT_VISIBLE_DEVICES": ["0", "0,1,2,7", "8,15"],
    "HCCL_BUFFSIZE": ["1", "200"],
    "HCCL_CONNECT_TIMEOUT": ["120", "7200"],
    "HCCL_DETERMINISTIC": ["true", "FALSE", "strict"],
    "HCCL_EVENT_TIMEOUT": ["0", "2147483647"],
    "HCCL_EXEC_TIMEOUT": ["0", "1836", "2147483647", "0.05"],
    "HCCL_HOST_SOCKET_PORT_RANGE": ["60000,60050-60100,60150-60160", "auto"],
    "HCCL_IF_BASE_PORT": ["1024", "65520"],
    "HCCL_IF_IP": ["10.0.0.1", "2001:db8::1"],
    "HCCL_OP_EXPANSION_MODE": ["AI_CPU", "HOST"],
    "HCCL_OP_RETRY_ENABLE": ["L1:1,L2:0", "L0:0, L1:1, L2:1"],
    "HCCL_RDMA_RETRY_CNT": ["1", "7"],
    "HCCL_RDMA_SL": ["0", "7"],
    "HCCL_RDMA_TC": ["0", "132", "252"],
    "HCCL_RDMA_TIMEOUT": ["5", "20"],
    "HCCL_SOCKET_FAMILY": ["AF_INET", "AF_INET6"],
    "HCCL_SOCKET_IFNAME": ["eth", "eth,enp", "^docker", "=eth0,endvnic", "^=eth0", "bond0.100"],
    "MASTER_ADDR": ["node-1.lab", "10.0.0.1", "127.0.0.1", "localhost", "2001:db8::1"],
    "MASTER_PORT": ["1", "65535"],
    "MS_ROLE": ["MS_WORKER"],
    "MS_SCHED_PORT": ["1024"],
    "WORLD_SIZE": ["1"],
}
WRONG = {
    "ASCEND_RT_VISIBLE_DEVICES": ["1, 2", "1,0", "1,1", "0-7", "a"],
    "HCCL_BUFFSIZE": ["0", "-1", "200M"],
    "HCCL_CONNECT_TIMEOUT": ["119", "7201", "120s", "1e3", "٣٠٠"],
    "HCCL_DETERMINISTIC": ["1"],
    "HCCL_EXEC_TIMEOUT": ["2147483648", "-1", "long"],
    "HCCL_HOST_SOCKET_PORT_RANGE": ["0", "65536", "60010-60000", "60000-60010,60005", "60000;60001", "a"],
    "HCCL_IF_BASE_PORT": ["1023", "65521"],
    "HCCL_IF_IP": ["eth0", "0.0.0.0", "10.0.0.1,10.0.0.2"],
    "HCCL_OP_EXPANSION_MODE": ["AICPU"],
    "HCCL_OP_RETRY_ENABLE": ["1", "L1:2"],
    "HCCL_RDMA_RETRY_CNT": ["0", "8"],
    "HCCL_RDMA_SL": ["8"],
    "HCCL_RDMA_TC": ["133", "256"],
    "HCCL_RDMA_TIMEOUT": ["4", "25"],
    "HCCL_SOCKET_FAMILY": ["ipv4"],
    "HCCL_SOCKET_IFNAME": ["=", "eth 0", "eth0;eth1 "],
    "MASTER_ADDR": ["a b", "-x", "10.0.0.300"],
    "MASTER_PORT": ["0", "65536", "x"],
    "MS_ROLE": ["worker"],
    "MS_SCHED_PORT": ["80"],
    "WORLD_SIZE": ["0", "two"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in RIGHT.items() for value in values])
def test_right_settings(name: str, value: str) -> None:
    assert invalid_settings({name: value}) == ()


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_wrong_settings(name: str, value: str) -> None:
    (setting,) = invalid_settings({name: value})
    assert (setting.variable, setting.value) == (name, value) and setting.expected


@pytest.mark.parametrize(
    ("name", "value", "a1_takes", "a2_takes"),
    [
        ("HCCL_EXEC_TIMEOUT", "20000", False, True),
        ("HCCL_EXEC_TIMEOUT", "0", False, True),
        ("HCCL_RDMA_TIMEOUT", "24", True, False),
        ("HCCL_OP_EXPANSION_MODE", "AIV", False, True),
        ("HCCL_NPU_SOCKET_PORT_RANGE", "auto", False, True),
    ],
)
def test_settings_by_family(name: str, value: str, a1_takes: bool, a2_takes: bool) -> None:
    assert (not invalid_settings({name: value}, "A1"), not invalid_settings({name: value}, "A2")) == (
        a1_takes,
        a2_takes,
    )
    assert not invalid_settings({name: value})


def test_settings_that_depend_on_each_other() -> None:
    assert [s.variable for s in invalid_settings({"HCCL_INTRA_PCIE_ENABLE": "1", "HCCL_INTRA_ROCE_ENABLE": "1"})] == [
        "HCCL_INTRA_PCIE_ENABLE"
    ]
    assert not invalid_settings({"HCCL_INTRA_ROCE_ENABLE": "1"})
    assert [s.variable for s in invalid_settings({"HCCL_WHITELIST_DISABLE": "0"})] == ["HCCL_WHITELIST_FILE"]
    assert not invalid_settings({"HCCL_WHITELIST_DISABLE": "0", "HCCL_WHITELIST_FILE": "/w.json"})


names = st.sampled_from(
    [*WRONG, "RANK_TABLE_FILE", "HCCL_INTRA_PCIE_ENABLE", "HCCL_WHITELIST_DISABLE", "MS_WORKER_NUM"]
)


@given(st.dictionaries(names, st.text(max_size=20), max_size=6), st.text(max_size=4), st.text(max_size=4))
def test_any_environment_makes_a_launch(environ: dict[str, str], product: str, framework: str) -> None:
    launch = LaunchConfig.from_environment(environ, product=product, framework=framework)
    assert all(1 <= ports.first <= ports.last <= 65535 for ports in launch.hccl_ports)
    assert all(problem.value.isprintable() for problem in launch.problems)


# Which host, which product


def product(name: str) -> Any:
    return SimpleNamespace(family=name)


def test_family() -> None:
    launch_config = LaunchConfig.from_environment({}, product="A1")
    untold = LaunchConfig.from_environment({})
    assert product_family(launch_config, {"n1": product("A2")}) == "A1"
    assert product_family(untold, {"n1": product("A2"), "n2": product("A2")}) == "A2"
    with pytest.raises(Unreadable, match="--product"):
        product_family(untold, None)
    with pytest.raises(Unreadable, match="A1: n2; A2: n1"):
        product_family(untold, {"n1": product("A2"), "n2": product("A1")})


def addresses(*texts: str) -> Any:
    return SimpleNamespace(addresses=texts)


def _placed(read: RankTable, hosts: dict[str, Any]) -> tuple[dict[str, list[str]], list[str]]:
    here, nowhere = match_servers(read, hosts, hosts)
    return {host: [s.server_id for s in servers] for host, servers in here.items()}, [s.server_id for s in nowhere]


def test_entries_are_matched_by_name_and_by_address() -> None:
    read = table(a2(3, 1))
    hosts = {
        "node_0": addresses("127.0.0.1", "172.17.0.1"),
        "NODE_1.lab": addresses("127.0.0.1", "172.17.0.1"),
        "third": addresses("127.0.0.1", "172.17.0.1", "172.16.0.112"),
        "stranger": addresses("172.17.0.1"),
    }
    assert _placed(read, hosts) == ({"node_0": ["node_0"], "NODE_1.lab": ["node_1"], "third": ["node_2"]}, [])


def test_an_address_that_two_hosts_have_means_neither() -> None:
    value = a1(1, 1)
    value["server_list"][0]["server_id"] = "172.17.0.1"
    hosts = {"a": addresses("172.17.0.1"), "b": addresses("172.17.0.1")}
    assert _placed(table(value), hosts) == ({}, ["172.17.0.1"])


def test_another_domain_is_another_host() -> None:
    value = a1(1, 1)
    value["server_list"][0]["server_id"] = "node1.east"
    assert _placed(table(value), {"node1.west": addresses()}) == ({}, ["node1.east"])
    assert _placed(table(value), {"node1": addresses()}) == ({"node1": ["node1.east"]}, [])
