"""What rdma-devices-differ finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import port, rdma
from tests.checks.run_check import fleet, messages, run_check


def test_one_less_and_another_link_layer() -> None:
    hosts = {**fleet(3, rdma()), "w4": [rdma(port())], "w5": [rdma(port(), port(layer="InfiniBand"))]}
    norm = "3 of 5 hosts have mlx5_0 (Ethernet) mlx5_1 (Ethernet)"
    assert messages(run_check("rdma-devices-differ", hosts)) == [
        ("w4", f"its RDMA adapters are mlx5_0 (Ethernet); {norm}"),
        ("w5", f"its RDMA adapters are mlx5_0 (Ethernet) mlx5_1 (InfiniBand); {norm}"),
    ]
