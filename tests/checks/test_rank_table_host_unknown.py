"""rank-table-host-unknown."""

from __future__ import annotations

from doctor.engine.fact import PerHost
from doctor.facts.network import HostAddresses, InterfaceAddress
from tests.checks.tables import Json, a2, check, table

NAME = "rank-table-host-unknown"


def findings(value: Json, **hosts: str) -> list[str]:
    addresses = {
        host: HostAddresses(interfaces=(InterfaceAddress("lo", "127.0.0.1", 8), InterfaceAddress("eth0", ip, 24)))
        for host, ip in hosts.items()
    }
    return [str(finding) for finding in check(NAME).function(table=table(value), hosts=PerHost(addresses))]


def test_both_lists_are_compared() -> None:
    assert findings(a2(3), a="172.16.0.110", node_1="192.0.2.1", other="192.0.2.2") == [
        "in the rank table, but not among the checked hosts: node_2",
        "checked, but not in the rank table: other",
    ]


def test_two_entries_for_one_host() -> None:
    value = a2(2)
    value["server_list"][1]["server_id"] = "a"
    value["server_list"][1]["host_ip"] = "192.0.2.7"
    assert findings(value, a="172.16.0.110") == ["several entries match a: server_list[0] and server_list[1]"]


def test_healthy() -> None:
    assert findings(a2(2), a="172.16.0.110", b="172.16.0.111") == []
