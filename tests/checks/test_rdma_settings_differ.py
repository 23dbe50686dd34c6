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


def test_the_command_sets_the_value_of_the_others() -> None:
    lacking = port(mtu="1500", quality={"traffic class": "Global tclass=0", "trust": "pcp", "ECN roce_np": "00000000"})
    full = port(quality={"traffic class": "Global tclass=106", "trust": "dscp", "ECN roce_np": "00010000"})
    outcome = run_check("rdma-settings-differ", {**fleet(2, rdma(full)), "w3": [rdma(lacking)]})
    interface = full.interface
    assert {finding.values["setting"]: finding.values["command"] for finding in outcome.findings} == {
        "MTU": f"ip link set dev {interface} mtu 9000",
        "trust": f"mlnx_qos -i {interface} --trust dscp",
        "traffic class": "echo 106 > /sys/class/infiniband/mlx5_0/tc/1/traffic_class; cma_roce_tos -d mlx5_0 -t 106",
        "ECN roce_np": "p=0; for on in 0 0 0 1 0 0 0 0; do "
        f"echo $on > /sys/class/net/{interface}/ecn/roce_np/enable/$p; p=$((p+1)); done",
    }


def test_no_value_of_a_host_gets_into_the_program_text_of_a_command() -> None:
    hostile = port(mtu="1;reboot", quality={"trust": "$(reboot)", "ECN roce_np": "0;reboot"})
    outcome = run_check("rdma-settings-differ", {**fleet(2, rdma(hostile)), "w3": [rdma(port(quality={"trust": "x"}))]})
    commands = [finding.values["command"] for finding in outcome.findings]
    assert commands and not any(";reboot" in text.replace("'1;reboot'", "") for text in commands)
    assert not any("$(reboot)" in text.replace("'$(reboot)'", "") for text in commands)
