"""rank-table-address-differs."""

from __future__ import annotations

from ipaddress import ip_interface

import pytest

from doctor.engine.fact import PerHost, Unreadable
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.network import HostAddresses, InterfaceAddress
from tests.checks.tables import Json, a1, a2, check, table

NAME = "rank-table-address-differs"


def findings(value: Json, live: dict[str, DeviceAddresses], hosts: PerHost[HostAddresses] | None = None) -> list[str]:
    return [str(finding) for finding in check(NAME).function(table=table(value), addresses=PerHost(live), hosts=hosts)]


def devices(value: Json, host: int, **more: object) -> DeviceAddresses:
    entries = value["server_list"][host]["device"]
    by_npu = {int(entry["device_id"]): ip_interface(entry["device_ip"] + "/24") for entry in entries}
    return DeviceAddresses(by_npu=by_npu, **more)  # type: ignore[arg-type]


def test_stale_entries() -> None:
    value = a1(2, 4)
    live = {"172.16.0.10": devices(value, 0), "172.16.0.11": devices(value, 1)}
    entries = value["server_list"][1]["device"]
    entries[0]["device_ip"], entries[1]["device_ip"] = entries[1]["device_ip"], entries[0]["device_ip"]
    assert findings(value, live) == [
        (
            "the device addresses of 172.16.0.11 differ from the rank table:"
            " device 0 has 10.0.0.3, not 10.0.1.3; device 1 has 10.0.1.3, not 10.0.0.3"
        )
    ]


def test_a_device_of_two_ranks_leaves_their_addresses_undecided() -> None:
    """One of the two has the wrong device: its address is not wrong, and a new one would make it so."""
    value = a1(1, 4)
    live = {"172.16.0.10": devices(value, 0)}
    value["server_list"][0]["device"][3]["device_id"] = "2"
    with pytest.raises(Unreadable) as raised:
        findings(value, live)
    assert raised.value.root_cause == "rank-table-device-repeated"


def test_a_device_without_address() -> None:
    value = a1(1, 2)
    live = DeviceAddresses(by_npu={0: ip_interface("10.0.0.1/24")}, unset=(1,))
    (finding,) = findings(value, {"172.16.0.10": live})
    assert finding.endswith("device 1 has none, not 10.0.1.1")


def test_healthy_and_matched_by_address() -> None:
    value = a2(1, 2)
    hosts = PerHost({"gpu7": HostAddresses(interfaces=(InterfaceAddress("eth0", "172.16.0.110", 24),))})
    assert findings(value, {"gpu7": devices(value, 0)}, hosts) == []


def test_what_could_not_be_compared_is_unknown() -> None:
    value = a1(1, 2)
    with pytest.raises(Unreadable, match="10 device 1"):
        findings(value, {"172.16.0.10": DeviceAddresses(by_npu={0: ip_interface("10.0.0.1/24")})})
    with pytest.raises(Unreadable) as caught:
        findings(value, {"elsewhere": devices(value, 0)})
    assert caught.value.root_cause == "rank-table-host-unknown"


def test_ipv6_beside_ipv4_is_unknown() -> None:
    value = a1(1, 1)
    live = devices(value, 0)
    value["server_list"][0]["device"][0]["device_ip"] = "2001:db8::1"
    with pytest.raises(Unreadable, match="device 0"):
        findings(value, {"172.16.0.10": live})
