"""rank-table-address-repeated."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.tables import a1, a2, a3, list_messages, run_check

NAME = "rank-table-address-repeated"


def test_one_address_on_two_hosts() -> None:
    value = a1(2)
    value["server_list"][1]["device"][3]["device_ip"] = value["server_list"][0]["device"][0]["device_ip"]
    outcome = run_check(NAME, value)
    assert list_messages(outcome) == ["device_ip 10.0.0.1 belongs to 172.16.0.10 device 0 and 172.16.0.11 device 3"]
    assert outcome.findings[0].hosts == ("172.16.0.10", "172.16.0.11")


def test_spellings_of_one_address() -> None:
    value = a1(1, 2)
    value["server_list"][0]["device"][0]["device_ip"] = "2001:db8::1"
    value["server_list"][0]["device"][1]["device_ip"] = "2001:0DB8:0::1"
    assert run_check(NAME, value).status is Status.FAILED


def test_host_and_backup_addresses() -> None:
    value = a2(2)
    value["server_list"][1]["host_ip"] = value["server_list"][0]["host_ip"]
    assert list_messages(run_check(NAME, value)) == ["host_ip 172.16.0.110 belongs to node_0 and node_1"]
    own_value = a3(1, 1, 2)
    own_value["server_list"][0]["device"][0]["backup_device_ip"] = "10.20.0.8"
    assert list_messages(run_check(NAME, own_value)) == [
        "rank 0 names its own address 10.20.0.8 as its backup",
        "backup_device_ip 10.20.0.8 belongs to node_0 device 0 and node_0 device 1",
    ]


def test_healthy() -> None:
    assert run_check(NAME, a3()).status is Status.PASSED
