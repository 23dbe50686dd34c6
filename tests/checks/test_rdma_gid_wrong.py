"""What rdma-gid-wrong finds."""

from __future__ import annotations

from doctor.facts.rdma import Gid
from tests.checks.gpu_hosts import port, rdma
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


def test_only_ports_that_nccl_uses() -> None:
    bare = rdma(port(), port(gids=()))
    chosen = job(NCCL_IB_GID_INDEX="3", NCCL_IB_HCA="=mlx5_0")
    assert messages(run_check("rdma-gid-wrong", fleet(2, bare), chosen)) == []
