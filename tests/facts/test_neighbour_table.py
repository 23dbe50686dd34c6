"""The kernel's table of neighbours, and the hosts that it has to hold."""

from __future__ import annotations

import pytest
from hypothesis import given

from doctor.engine.fact import Output, Unreadable
from doctor.facts.kernel import sysctl_path
from doctor.facts.neighbour_table import GC_THRESH3, STATISTICS, NeighbourTable, hosts_on_link
from doctor.facts.network import HostAddresses, InterfaceAddress
from tests.facts.answers import learned
from tests.facts.garbage import ANYTHING, value_of

COLUMNS = "entries  allocs   destroys hash_grows  lookups  hits  res_failed  rcv_probes_mcast rcv_probes_ucast"
NEW = f"{COLUMNS}  periodic_gc_runs forced_gc_runs unresolved_discards table_fulls\n"
ROW = "00000031 00000667 00000421 00000004   00001555 000007e9 00000006   00000000         00000000"


def table(limit: Output, statistics: str) -> object:
    return learned(NeighbourTable, {sysctl_path(GC_THRESH3): limit, STATISTICS: Output(out=statistics)})


def addresses(*texts: str) -> HostAddresses:
    pairs = [text.split("/") for text in texts]
    return HostAddresses(interfaces=tuple(InterfaceAddress("eth0", address, int(bits)) for address, bits in pairs))


def test_overflows_are_the_sum_of_all_cpus() -> None:
    rows = "".join(f"{ROW} 00000079 00000000 00000000 {count}\n" for count in ("00000010", "00000002"))
    assert table(Output(out="1024\n"), NEW + rows) == NeighbourTable(limit=1024, overflows=18)


def test_a_namespace_of_its_own_shows_no_limit_and_an_old_kernel_no_overflows() -> None:
    absent = Output(ended="absent", err="does not exist")
    assert table(absent, f"{COLUMNS} periodic_gc_runs forced_gc_runs\n{ROW} 00000000 00000000\n") == NeighbourTable(
        limit=None, overflows=0
    )
    assert learned(NeighbourTable, {sysctl_path(GC_THRESH3): absent, STATISTICS: absent}) == NeighbourTable(
        limit=None, overflows=0
    )


@pytest.mark.parametrize("statistics", ["", NEW, f"{NEW}{ROW} 0 0 0 x\n", f"{NEW}{ROW}\n"])
def test_what_makes_no_sense_is_unreadable(statistics: str) -> None:
    assert isinstance(table(Output(out="1024\n"), statistics), Unreadable)


@given(ANYTHING, ANYTHING)
def test_any_text_is_a_table_or_unreadable(limit: str, statistics: str) -> None:
    assert isinstance(value_of(NeighbourTable, limit, statistics), NeighbourTable | Unreadable)


def test_hosts_are_counted_once_in_the_own_subnets_without_the_host_itself() -> None:
    fleet = {
        "a": addresses("10.0.0.1/16", "10.0.1.1/24", "127.0.0.1/8", "fe80::1/64"),
        "b": addresses("10.0.0.2/16"),
        "c": addresses("10.0.1.3/24", "192.168.0.3/24"),
        "d": addresses("10.1.0.4/16"),
        "bridge": addresses("10.0.0.2/16"),
    }
    assert {host: hosts_on_link(own, fleet) for host, own in fleet.items()} == {
        "a": 2, "b": 3, "c": 1, "d": 0, "bridge": 3,
    }  # fmt: skip
