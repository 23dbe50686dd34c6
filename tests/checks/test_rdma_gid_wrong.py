"""What rdma-gid-wrong finds."""

from __future__ import annotations

import pytest

from doctor.engine.result import accused_hosts
from doctor.facts.rdma import Gid
from doctor.job import LaunchConfig
from tests.checks.gpu_hosts import port, rdma
from tests.checks.network import interfaces
from tests.checks.run_check import fleet, job, messages, run_check, skipped

INDEX_3 = job(NCCL_IB_GID_INDEX="3")


def test_an_index_that_fits_and_none() -> None:
    assert messages(run_check("rdma-gid-wrong", fleet(2, rdma()), INDEX_3)) == []
    assert skipped(run_check("rdma-gid-wrong", fleet(2, rdma())))
    assert skipped(run_check("rdma-gid-wrong", fleet(2, rdma()), job(NCCL_IB_GID_INDEX="3", NCCL_IB_DISABLE="1")))
    assert skipped(run_check("rdma-gid-wrong", fleet(2, rdma(port(layer="InfiniBand"))), INDEX_3))


def test_an_index_without_an_address_here() -> None:
    """NVIDIA/nccl issue 551: in a container the usable addresses began at index 12."""
    foreign = rdma(port(gids=(Gid(3, "0000:0000:0000:0000:0000:ffff:c0a8:bc16", "", ""),)))
    assert messages(run_check("rdma-gid-wrong", {**fleet(2, rdma(port())), "w3": [foreign]}, INDEX_3)) == [
        (
            "w3",
            "index 3 of mlx5_0:1 is no address of this network namespace; expected RoCE v2 over IPv4",
        )
    ]


def test_an_index_of_another_kind() -> None:
    shifted = rdma(port(gids=(Gid(3, "fe80:0000:0000:0000:0ac0:ebff:feda:1cfb", "RoCE v2", "eth1"),)))
    assert messages(run_check("rdma-gid-wrong", {**fleet(2, rdma(port())), "w3": [shifted]}, INDEX_3)) == [
        ("w3", "index 3 of mlx5_0:1 is RoCE v2 over IPv6; expected RoCE v2 over IPv4")
    ]


def test_an_index_of_one_kind_on_half_of_the_hosts() -> None:
    shifted = rdma(port(gids=(Gid(3, "fe80:0000:0000:0000:0ac0:ebff:feda:1cfb", "RoCE v2", "eth1"),)))
    (finding,) = run_check(
        "rdma-gid-wrong", {**fleet(2, rdma(port())), "w3": [shifted], "w4": [shifted]}, INDEX_3
    ).findings
    assert finding.values["groups"] == {"RoCE v2 over IPv4": ["w1", "w2"], "RoCE v2 over IPv6": ["w3", "w4"]}
    assert accused_hosts(finding, 4) == ()


def test_only_ports_that_nccl_uses() -> None:
    bare = rdma(port(), port(gids=()))
    chosen = job(NCCL_IB_GID_INDEX="3", NCCL_IB_HCA="=mlx5_0")
    assert messages(run_check("rdma-gid-wrong", fleet(2, bare), chosen)) == []


V1 = job(NCCL_IB_GID_INDEX="2")
LOCAL = job(NCCL_IB_GID_INDEX="1")


@pytest.mark.parametrize(
    ("launch", "networks", "observed"),
    [
        (INDEX_3, ("10.96.1.1/24", "10.96.2.1/24"), ""),
        (V1, ("10.96.1.1/24", "10.96.2.1/24"), "IB/RoCE v1"),
        (LOCAL, ("10.96.1.1/24", "10.96.2.1/24"), "a link-local address"),
        (V1, ("10.96.1.1/24", "10.96.1.2/24"), ""),
        (LOCAL, ("10.96.1.1/16", "10.96.2.1/16"), ""),
    ],
)
def test_what_no_router_passes_on_is_wrong_between_subnets(
    launch: LaunchConfig, networks: tuple[str, str], observed: str
) -> None:
    hosts = {f"w{n}": [rdma(port()), interfaces(eth1=address)] for n, address in enumerate(networks)}
    findings = run_check("rdma-gid-wrong", hosts, launch).findings
    assert [finding.values["observed"] for finding in findings] == ([observed] * 2 if observed else [])


def test_without_the_addresses_of_all_hosts_the_subnets_are_not_judged() -> None:
    hosts = {"w1": [rdma(port()), interfaces(eth1="10.96.1.1/24")], "w2": [rdma(port())]}
    assert run_check("rdma-gid-wrong", hosts, V1).findings == ()
    elsewhere = {f"w{n}": [rdma(port()), interfaces(eth7=f"10.96.{n}.1/24")] for n in range(2)}
    assert run_check("rdma-gid-wrong", elsewhere, V1).findings == ()
