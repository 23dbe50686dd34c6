from ipaddress import ip_address

import pytest

from doctor import Skip
from doctor.facts.hccn.device_addresses import DeviceGateways
from tests.checks.device_network import a1, a2, gateways, product, run_check


def test_next_door() -> None:
    for family, addresses in (("A1", a1()), ("A2", a2())):
        facts = {"addresses": addresses["h1"], "gateways": gateways(addresses)["h1"], "product": product(family)}
        assert run_check("gateway_outside_segment", **facts) == []


def test_out_of_reach() -> None:
    far = DeviceGateways(by_npu={2: ip_address("29.2.0.1")})
    [finding] = run_check("gateway_outside_segment", addresses=a2()["h1"], gateways=far, product=product("A2"))
    assert str(finding) == "NPU 2 has the gateway 29.2.0.1, outside its segment 29.1.0.0/16; expected one inside"


def test_a1_shows_the_one_gateway_of_the_host_on_every_npu() -> None:
    device_gateways = DeviceGateways(by_npu=dict.fromkeys(range(8), ip_address("10.0.2.254")))
    assert (
        run_check("gateway_outside_segment", addresses=a1()["h1"], gateways=device_gateways, product=product("A1"))
        == []
    )
    assert (
        len(run_check("gateway_outside_segment", addresses=a1()["h1"], gateways=device_gateways, product=product("A2")))
        == 6
    )


def test_an_npu_without_an_address_is_not_judged() -> None:
    far = DeviceGateways(by_npu={9: ip_address("29.2.0.1")})
    assert run_check("gateway_outside_segment", addresses=a2()["h1"], gateways=far, product=product("A2")) == []


def test_no_gateway() -> None:
    none = DeviceGateways(by_npu={}, unset=(0, 1))
    with pytest.raises(Skip):
        run_check("gateway_outside_segment", addresses=a2()["h1"], gateways=none, product=product("A2"))
