"""What rdma-settings-differ finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import port, rdma
from tests.checks.run_check import fleet, messages, run_check


def test_equal_settings_and_infiniband() -> None:
    assert messages(run_check("rdma-settings-differ", fleet(3, rdma()))) == []
    hosts = {**fleet(2, rdma(port(layer="InfiniBand"))), "w3": [rdma(port(layer="InfiniBand", mtu="2044"))]}
    assert messages(run_check("rdma-settings-differ", hosts)) == []


def test_the_mtu_and_the_traffic_class() -> None:
    hosts = {**fleet(2, rdma(port())), "w3": [rdma(port(mtu="1500", quality={"traffic class": "Global tclass=0"}))]}
    assert messages(run_check("rdma-settings-differ", hosts)) == [
        ("w3", "MTU of mlx5_0:1 is 1500; 2 of 3 hosts have 9000"),
        ("w3", "traffic class of mlx5_0:1 is Global tclass=0; 2 of 3 hosts have Global tclass=106"),
    ]


def test_what_a_driver_does_not_show_is_not_compared() -> None:
    hosts = {**fleet(2, rdma(port())), "w3": [rdma(port(quality={}))]}
    assert messages(run_check("rdma-settings-differ", hosts)) == []
