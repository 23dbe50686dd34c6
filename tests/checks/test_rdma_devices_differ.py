"""What rdma-devices-differ finds."""

from __future__ import annotations

import pytest

from doctor.facts.interfaces import Interfaces, LinkAddress
from doctor.facts.rdma import RdmaPorts
from tests.checks.gpu_hosts import port, rdma
from tests.checks.run_check import fleet, messages, run_check


def test_one_less_and_another_link_layer() -> None:
    hosts = {**fleet(3, rdma()), "w4": [rdma(port())], "w5": [rdma(port(), port(layer="InfiniBand"))]}
    norm = "3 of 5 hosts have mlx5_0 (Ethernet) mlx5_1 (Ethernet)"
    assert messages(run_check("rdma-devices-differ", hosts)) == [
        ("w4", f"its RDMA adapters are mlx5_0 (Ethernet); {norm}"),
        ("w5", f"its RDMA adapters are mlx5_0 (Ethernet) mlx5_1 (InfiniBand); {norm}"),
    ]


def on_networks(*networks: int) -> list[RdmaPorts | Interfaces]:
    """A host whose nth adapter has an address in the nth of these subnets."""
    ports = [port(interface=f"eth{number}") for number in range(len(networks))]
    addresses = [
        LinkAddress(f"eth{number}", f"eth{number}", f"10.{network}.0.{9 + number}", 16)
        for number, network in enumerate(networks)
    ]
    return [rdma(*ports), Interfaces(links=(), addresses=tuple(addresses), routes=(), has_rules=False)]


@pytest.mark.parametrize(
    ("networks", "expected"),
    [
        ((1, 0, 2), ["mlx5_0:1 is in 10.1.0.0/16, where 3 of 4 hosts have mlx5_1:1; expected 10.0.0.0/16",
                     "mlx5_1:1 is in 10.0.0.0/16, where 3 of 4 hosts have mlx5_0:1; expected 10.1.0.0/16"]),
        ((0, 2, 2), ["mlx5_1:1 is in 10.2.0.0/16, where 4 of 4 hosts have mlx5_2:1; expected 10.1.0.0/16"]),
        ((0, 1, 7), []),  # a subnet that no adapter of the others has: who knows what it is
        ((0, 1, 2), []),
    ],
)  # fmt: skip
def test_a_port_that_is_on_the_rail_of_another(networks: tuple[int, ...], expected: list[str]) -> None:
    hosts = {f"w{number}": on_networks(0, 1, 2) for number in (1, 2, 3)}
    hosts["w4"] = on_networks(*networks)
    assert messages(run_check("rdma-devices-differ", hosts)) == [("w4", text) for text in expected]


@pytest.mark.parametrize(
    "hosts",
    [
        {"w1": (0, 1), "w2": (1, 0)},  # which of two is right
        {"w1": (0, 1), "w2": (0, 1), "w3": (1, 0), "w4": (1, 0)},
        {"w1": (0, 1), "w2": (2, 3), "w3": (4, 5), "w4": (6, 7)},  # routed: each port has a subnet of its own
        {"w1": (0, 0), "w2": (0, 0), "w3": (0, 1), "w4": (0, 0)},  # one subnet for all adapters
    ],
)
def test_no_plan_of_rails_no_verdict(hosts: dict[str, tuple[int, ...]]) -> None:
    facts = {host: on_networks(*networks) for host, networks in hosts.items()}
    assert not run_check("rdma-devices-differ", facts).findings


@pytest.mark.parametrize(
    ("driver", "vendor", "module"),
    [
        ("mlx5_core", "15b3", "mlx5_ib"),
        ("bnxt_en", "14e4", "bnxt_re"),
        ("ice", "8086", "irdma"),
        ("hns3", "19e5", "hns_roce_hw_v2"),
        ("efa", "1d0f", "efa"),
        ("", "", None),
    ],
)
def test_the_remedy_names_the_driver_of_the_missing_adapter(driver: str, vendor: str, module: str | None) -> None:
    more = {"driver": driver, "vendor": vendor}
    hosts = {**fleet(3, rdma(port(), port(), **more)), "w4": [rdma(port(), **more)]}
    (finding,) = run_check("rdma-devices-differ", hosts).findings
    assert finding.hosts == ("w4",) or list(finding.hosts) == ["w4"]
    values = finding.values
    assert (values["module"], values["driver"] or "", values["vendor"] or "") == (module, driver, vendor)
