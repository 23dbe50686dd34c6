"""What rdma-address-repeated finds."""

from __future__ import annotations

import pytest

from doctor.facts.gpu import GpuCards
from doctor.facts.rdma import Gid, RdmaPorts
from tests.checks.gpu_hosts import cards, port, rdma
from tests.checks.run_check import FactsByHost, job, messages, run_check

CHECK = "rdma-address-repeated"


def host(number: int, chip: str = "", **more: object) -> RdmaPorts:
    """Of one RoCE adapter with two addresses: a link-local one and 10.96.0.``number``."""
    texts = (f"fe80::e42:a1ff:fe65:{number:x}", f"0000:0000:0000:0000:0000:ffff:0a60:{number:04x}")
    gids = tuple(Gid(index, text, "RoCE v2", "eth1") for index, text in enumerate(texts))
    return rdma(port(**{"gids": gids, **more}), chip=chip or f"0c42:a103:0065:{number:04x}")


def test_each_has_its_own() -> None:
    assert messages(run_check(CHECK, {f"w{n}": [host(n), cards()] for n in range(3)})) == []


def test_two_hosts_with_one_address() -> None:
    hosts = {"w1": [host(1), cards()], "w2": [host(2), cards()], "w3": [host(2, "0c42:a103:0065:0003"), cards()]}
    found = run_check(CHECK, hosts).findings
    assert [str(finding) for finding in found] == [
        "mlx5_0 of w2 and mlx5_0 of w3 have one address, 10.96.0.2",
        "mlx5_0 of w2 and mlx5_0 of w3 have one address, fe80::e42:a1ff:fe65:2",
    ]
    assert [finding.hosts for finding in found] == [("w2", "w3")] * 2
    assert not any(finding.is_warning for finding in found)


@pytest.mark.parametrize(
    ("others", "setting"),
    [([cards()], {"NCCL_IB_DISABLE": "1"}), ([cards()], {"NCCL_IB_HCA": "=mlx5_1"}), ([], {})],
)
def test_a_port_that_the_job_does_not_take_is_a_warning(others: list[GpuCards], setting: dict[str, str]) -> None:
    hosts: FactsByHost = {"w1": [host(2), *others], "w2": [host(2, "0c42:a103:0065:0003"), *others]}
    found = run_check(CHECK, hosts, job(**setting)).findings
    assert [finding.is_warning for finding in found] == [True, True]


@pytest.mark.parametrize(
    "second",
    [
        host(2, "0c42:a103:0065:0002"),  # the same adapter, in another container of the machine
        host(2, "0c42:a103:0065:0003", state="1: DOWN"),
        host(2, "0c42:a103:0065:0003", layer="InfiniBand"),
        host(2, "0c42:a103:0065:0003", gids=(Gid(0, "fe80::e42:a1ff:fe65:2", "", ""),)),  # of another namespace
    ],
)
def test_what_is_no_second_address(second: RdmaPorts) -> None:
    assert messages(run_check(CHECK, {"w1": [host(2), cards()], "w2": [second, cards()]})) == []
