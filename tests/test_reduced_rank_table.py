"""A rank table for fewer hosts."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.catalog import load_checks
from doctor.job import LaunchConfig, RankTableFile
from doctor.rank_table.build import needs_table_only, verify
from doctor.rank_table.reduce import ReductionError, reduce_table
from tests.checks import tables

FORMS = {
    "a1": tables.a1,
    "a2": lambda hosts: tables.a2(hosts, 3),
    "a3": lambda hosts: tables.a3(hosts, 2, 4),
    "legacy": tables.legacy,
    "lab": tables.lab,
}


def names(value: Any) -> list[str]:
    return [server.server_id for server in tables.table(value).servers]


def devices(value: Any) -> list[tuple[Any, ...]]:
    """Every device but for its rank, in the order of the ranks."""
    ranks = sorted(tables.table(value).ranks, key=lambda rank: rank.rank_id or 0)
    return [(r.host, r.host_ip, r.device_id, r.device_ips, r.backup_ips, r.super_device_id, r.ports) for r in ranks]


def against(text: str, product: Any = "A2") -> tuple[str, ...]:
    return verify(RankTableFile("/job/table.json", text), LaunchConfig(product=product))


@st.composite
def cut(draw: st.DrawFn) -> tuple[str, Any, list[str]]:
    """A healthy table whose ranks need not follow the order of its hosts, and the hosts that stay."""
    form = draw(st.sampled_from(sorted(FORMS)))
    value = copy.deepcopy(FORMS[form](draw(st.integers(1, 4))))
    if "server_list" in value and form != "a3":
        value["server_list"] = draw(st.permutations(value["server_list"]))
    everyone = names(value)
    return form, value, draw(st.lists(st.sampled_from(everyone), min_size=1, unique=True))


@given(cut())
def test_any_part_of_a_healthy_table_is_healthy_and_nothing_of_it_is_lost(created: tuple[str, Any, list[str]]) -> None:
    form, value, stay = created
    product = {"a3": "A3", "a2": "A2"}.get(form, "A1")
    assert against(json.dumps(value), product) == ()
    smaller = reduce_table(json.dumps(value), stay)
    assert against(smaller, product) == ()
    assert sorted(rank.rank_id or 0 for rank in tables.table(smaller).ranks) == list(range(len(devices(smaller))))
    assert names(smaller) == [name for name in names(value) if name in stay]
    assert devices(smaller) == [device for device in devices(value) if device[0] in stay]


def test_what_is_not_known_here_is_kept_with_its_order_and_spelling() -> None:
    text = """{
  "hardware": {"type": "800I-A2", "list": [1, 2.50, null, true]},
  "status": "completed",
  "version": "1.0",
  "server_count": "2",
  "server_list": [
    {"server_id": "a", "rack": 7, "device": [{"device_id": "0", "rank_id": "0", "device_ip": "10.0.0.1", "zone": "é"}]},
    {"server_id": "b", "rack": 1e3, "device": [{"device_id": "0", "rank_id": "1", "device_ip": "10.0.0.2"}]}
  ]
}"""
    assert (
        reduce_table(text, ["b"])
        == """{
  "hardware": {
    "type": "800I-A2",
    "list": [
      1,
      2.50,
      null,
      true
    ]
  },
  "status": "completed",
  "version": "1.0",
  "server_count": "1",
  "server_list": [
    {
      "server_id": "b",
      "rack": 1e3,
      "device": [
        {
          "device_id": "0",
          "rank_id": "0",
          "device_ip": "10.0.0.2"
        }
      ]
    }
  ]
}
"""
    )


def test_numbers_without_quotes_stay_so_and_are_refused_as_in_the_whole_table() -> None:
    value = tables.a1()
    value["server_count"] = 2
    value["server_list"][1]["device"][0]["rank_id"] = 8
    smaller = reduce_table(json.dumps(value), ["172.16.0.11"])
    assert '"server_count": 1' in smaller
    assert '"rank_id": 0' in smaller
    (line,) = against(smaller, "A1")
    assert line.startswith("rank-table-number-unquoted: ")


def test_a_table_that_is_not_completed_does_not_become_so() -> None:
    value = {**tables.a1(), "status": "initializing"}
    (line,) = against(reduce_table(json.dumps(value), ["172.16.0.10"]), "A1")
    assert line.startswith("rank-table-not-completed: ")


def test_super_pods_lose_their_hosts_and_empty_ones_go() -> None:
    smaller = json.loads(reduce_table(json.dumps(tables.a3(2, 2, 2)), ["node_1"]))
    assert smaller["super_pod_list"] == [{"super_pod_id": "0", "server_list": [{"server_id": "node_1"}]}]


def test_hosts_are_matched_by_address_and_by_name() -> None:
    assert names(reduce_table(json.dumps(tables.a2(3)), ["172.16.0.112", "node_0"])) == ["node_0", "node_2"]


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("{", "line 1 column 1: the file ends too early"),
        ('{"version": "2.0", "rank_list": []}', "version 2.0; expected version 1.0 or 1.2"),
        ('{"version": "1.1", "server_list": []}', "version 1.1; expected version 1.0 or 1.2"),
        (json.dumps(tables.a1(1)), "it does not list w9; expected an entry for every remaining host"),
    ],
)
def test_what_cannot_be_reduced_is_one_line(text: str, output: str) -> None:
    with pytest.raises(ReductionError, match=f"^{output}"):
        reduce_table(text, ["172.16.0.10", "w9"])


def broken(path: str, value: Any) -> str:
    """A table of two hosts, a and b, with one thing in it another."""
    table = tables.a1(2, 1)
    for server, name in zip(table["server_list"], "ab", strict=True):
        server["server_id"] = name
    *steps, last = path.split(".")
    where: Any = table
    for step in steps:
        where = where[int(step)] if step.isdigit() else where[step]
    where[last] = value
    return json.dumps(table)


@pytest.mark.parametrize(
    ("path", "value", "output"),
    [
        ("server_list.0.device", [{"device_id": "0"}], "a rank_id is missing or not a whole number"),
        ("server_list.0.device", [{"rank_id": "one"}], "a rank_id is missing or not a whole number"),
        ("server_list.0.device", [{"rank_id": "0"}] * 2, "duplicate rank_id"),
        ("server_list.1.server_id", "a", "server_id"),
        ("note", float("nan"), "it contains values that are not JSON"),
        ("note", "\ud800", "it contains values that are not JSON"),
        ("server_list", "none", "it does not list a"),
        ("server_list", [7], "it does not list a"),
        ("super_pod_list", "none", ""),
    ],
)
def test_a_broken_table_is_refused_or_its_part_is(path: str, value: Any, output: str) -> None:
    text = broken(path, value)
    if not output or output == "server_id":
        assert not output or against(reduce_table(text, ["a"])), "what is wrong with it stands against it"
        return
    with pytest.raises(ReductionError, match=output):
        reduce_table(text, ["a"])


FIELDS = ["server_list", "device", "rank_id", "server_id", "group_list", "instance_list", "devices", "super_pod_list"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)


@given(ANYTHING, st.sampled_from(["1.0", "1.2", None, "lab"]))
def test_no_text_makes_it_break(inner: Any, version: str | None) -> None:
    value = dict(inner) if isinstance(inner, dict) else {"server_list": inner, "group_list": inner}
    value.update({"version": version} if version in ("1.0", "1.2") else {"deploy_mode": "lab"} if version else {})
    try:
        reduce_table(json.dumps(value), ["a"])
    except ReductionError as why:
        assert "\n" not in str(why)


def test_every_check_that_needs_the_table_alone_is_asked() -> None:
    requested = {check.name for check in load_checks() if needs_table_only(check)}
    assert {"rank-table-counts-wrong", "rank-table-a1-layout", "rank-table-not-json"} <= requested
    assert not requested & {"rank-table-host-unknown", "rank-table-path-relative", "rank-table-address-differs"}
    assert all(name.startswith("rank-table-") for name in requested), "verify() looks among these files"
