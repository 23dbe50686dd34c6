from ipaddress import IPv4Interface

import pytest

from doctor import Skip
from doctor.facts.hccn.device_addresses import Vnic, VnicAddresses
from tests.checks.device_network import product, run_check


def vnics(*states: str) -> VnicAddresses:
    return VnicAddresses(
        by_npu={n: Vnic(state, IPv4Interface(f"192.1.2.{199 - n}/24")) for n, state in enumerate(states)}  # type: ignore[arg-type]
    )


def test_up() -> None:
    assert run_check("vnic_link_down", vnics=vnics("UP", "UP"), product=product("A3")) == []


def test_down() -> None:
    [finding] = run_check("vnic_link_down", vnics=vnics("UP", "DOWN"), product=product("A3"))
    assert finding.values["npus"] == [1]


def test_only_a3_lives_by_it() -> None:
    with pytest.raises(Skip):
        run_check("vnic_link_down", vnics=vnics("DOWN"), product=product("A2"))
