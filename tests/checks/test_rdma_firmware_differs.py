"""What rdma-firmware-differs finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import port, rdma
from tests.checks.run_check import fleet, messages, run_check


def test_one_version_for_each_board() -> None:
    assert messages(run_check("rdma-firmware-differs", fleet(3, rdma()))) == []
    other = rdma(board="MT_0000000223", firmware="20.35.1012")
    assert messages(run_check("rdma-firmware-differs", {"w1": [rdma()], "w2": [other]})) == []


def test_another_version() -> None:
    hosts = {**fleet(2, rdma()), "w3": [rdma(port(), firmware="28.36.1010")]}
    assert messages(run_check("rdma-firmware-differs", hosts)) == [
        ("w3", "mlx5_0 (MT_0000000838): firmware 28.36.1010; 2 of 3 hosts have 28.39.1002")
    ]
