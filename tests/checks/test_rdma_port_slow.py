"""What rdma-port-slow finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import port, rdma
from tests.checks.run_check import fleet, messages, run_check


def test_one_speed_and_slow_ports_of_ethernet() -> None:
    assert messages(run_check("rdma-port-slow", fleet(3, rdma()))) == []
    assert messages(run_check("rdma-port-slow", {"w1": [rdma(port(rate="25 Gb/sec (1X EDR)"))]})) == []


def test_another_speed() -> None:
    hosts = {**fleet(3, rdma()), "w4": [rdma(port(), port(rate="200 Gb/sec (4X HDR)"))]}
    assert messages(run_check("rdma-port-slow", hosts)) == [
        ("w4", "the RDMA port mlx5_1:1 runs at 200 Gb/sec (4X HDR); 3 of 4 hosts have 400 Gb/sec (4X NDR)")
    ]


def test_one_lane_of_infiniband() -> None:
    lane = rdma(port(rate="100 Gb/sec (1X NDR)", layer="InfiniBand"))
    assert messages(run_check("rdma-port-slow", {"w1": [lane]})) == [
        ("w1", "the RDMA port mlx5_0:1 runs at 100 Gb/sec (1X NDR); expected four lanes (4X)")
    ]


def test_an_adapter_of_aws_has_no_lanes() -> None:
    efa = rdma(port(rate="50 Gb/sec (1X HDR)", layer="Unknown"))  # link_layer: linux-rdma/rdma-core pull request 884
    assert messages(run_check("rdma-port-slow", fleet(2, efa))) == []


def test_a_port_that_is_down_has_no_speed() -> None:
    hosts = {**fleet(3, rdma()), "w4": [rdma(port(), port(state="1: DOWN", rate="10 Gb/sec (4X SDR)"))]}
    assert messages(run_check("rdma-port-slow", hosts)) == []
