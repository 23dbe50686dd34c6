from __future__ import annotations

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.report.layout.host_names import Fleet
from tests.report.strategies import host_names

FLEET = Fleet(f"node{number:03d}" for number in range(1, 65))


def test_hosts_fold_to_a_nodeset_with_their_share() -> None:
    assert FLEET.where(["node007", "node023"]) == "node[007,023] (2/64)"
    assert FLEET.where(["node007"]) == "node007 (1/64)"
    assert FLEET.where(FLEET.hosts) == "all 64 hosts"
    assert Fleet(["alone"]).where(["alone"]) == "alone (1/1)"
    assert FLEET.where([]) == ""


def test_what_was_not_looked_at_is_said() -> None:
    assert FLEET.where(["node007"], FLEET.hosts[:60]) == "node007 (1/64, 4 not checked)"
    assert FLEET.where(["node007"], FLEET.hosts[:60], FLEET.hosts[60:]) == "node007 (1/64, nothing to check on 4)"
    assert FLEET.where(["node007"], FLEET.hosts[:60], [*FLEET.hosts[60:63], ""]) == (
        "node007 (1/64, nothing to check on 3, 1 not checked)"
    )


def test_hosts_of_a_table_that_are_not_in_the_run_are_told_apart() -> None:
    assert FLEET.where(["node007", "other"]) == "node007,other (1/64, 1 not in this run)"
    assert FLEET.where(["10.0.0.1"]) == "10.0.0.1 (not in this run)"


@pytest.mark.parametrize(
    ("hosts", "folded"),
    [
        (["10.0.0.1", "10.0.0.2"], "10.0.0.[1-2]"),
        (["root@a1", "root@a2"], "root@a[1-2]"),
        (["fe80::1", "fe80::2"], "fe80::1,fe80::2"),
        (["a[1-3]", "b1", "b2"], "b[1-2],a[1-3]"),
        (["@all", "*"], "@all,*"),
        (["a!b", "a&b", "a,b"], "a!b,a&b,a,b"),
        (["节点1", "节点2"], "节点1,节点2"),
        (["\x1b[31mx", "y"], "y,x"),
    ],
)
def test_odd_names_are_neither_folded_nor_lost(hosts: list[str], folded: str) -> None:
    assert Fleet(hosts).fold(hosts) == folded


def test_a_long_list_is_cut_at_a_comma_where_that_is_wanted() -> None:
    outlier = FLEET.hosts[::2]
    assert Fleet(FLEET.hosts, max_chars=20).fold(outlier) == "node[001,003,005,..."
    assert FLEET.fold(outlier).count(",") == 31


@settings(deadline=None)
@given(st.lists(st.from_regex(r"[a-z0-9_][a-zA-Z0-9_.-]{0,12}", fullmatch=True), unique=True, min_size=1))
def test_what_is_folded_unfolds_to_the_same(hosts: list[str]) -> None:
    assert set(NodeSet(Fleet(hosts).fold(hosts), resolver=RESOLVER_NOGROUP)) == set(hosts)


@settings(deadline=None)
@given(st.lists(host_names, unique=True), st.lists(host_names))
def test_no_name_is_too_odd(fleet: list[str], hosts: list[str]) -> None:
    created_fleet = Fleet(fleet)
    assert created_fleet.where(created_fleet.ordered(hosts)).isprintable()


def test_a_value_that_lists_hosts_of_the_run_is_folded() -> None:
    fields = FLEET.format_values({"peers": ["node001", "node002", "node003"], "two": ["node001", "node002"]})
    assert fields == {"peers": "node[001-003]", "two": "node001 and node002"}


def test_order_is_that_of_the_inventory() -> None:
    fleet = Fleet(["b", "a", "c"])
    assert fleet.ordered(["x", "c", "a", "b", "a"]) == ("b", "a", "c", "x")
