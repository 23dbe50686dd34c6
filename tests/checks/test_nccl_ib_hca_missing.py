"""What nccl-ib-hca-missing finds."""

from __future__ import annotations

import pytest

from doctor.facts.rdma import RdmaPorts
from tests.checks.gpu_hosts import rdma
from tests.checks.run_check import fleet, job, messages, run_check, skipped


@pytest.mark.parametrize("setting", ["mlx5", "=mlx5_0,mlx5_1:1", "mlx5_0:1", "^mlx5_9", "^=mlx5_0"])
def test_names_that_exist_and_names_to_leave_out(setting: str) -> None:
    assert messages(run_check("nccl-ib-hca-missing", fleet(2, rdma()), job(NCCL_IB_HCA=setting))) == []


def test_not_set_or_not_used() -> None:
    assert skipped(run_check("nccl-ib-hca-missing", fleet(2, rdma())))
    assert messages(run_check("nccl-ib-hca-missing", fleet(2, rdma()), job(NCCL_IB_HCA="x", NCCL_IB_DISABLE="1"))) == []


@pytest.mark.parametrize(
    ("setting", "absent"),
    [("=mlx5_0,mlx5_2", "mlx5_2"), ("=mlx5_0:2", "mlx5_0:2"), ("hfi1,mlx5", "hfi1"), ("=mlx5", "mlx5")],
)
def test_names_that_do_not_exist(setting: str, absent: str) -> None:
    assert messages(run_check("nccl-ib-hca-missing", {"w1": [rdma()]}, job(NCCL_IB_HCA=setting))) == [
        ("w1", f"NCCL_IB_HCA names {absent}, which the host does not have")
    ]


@pytest.mark.parametrize(
    ("setting", "export"),
    [("=mlx5_0,mlx5_1", "=mlx5_0"), ("mlx5_1", "=mlx5_0")],
)
def test_the_adapters_to_name_are_those_of_every_host(setting: str, export: str) -> None:
    """Of those that the job chose, where any of them is everywhere; else of all."""
    hosts = {"w1": [rdma()], "w2": [RdmaPorts(devices=rdma().devices[:1])]}
    (finding,) = run_check("nccl-ib-hca-missing", hosts, job(NCCL_IB_HCA=setting)).findings
    assert (finding.hosts, finding.values["common"]) == (("w2",), export)
