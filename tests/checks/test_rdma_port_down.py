"""What rdma-port-down finds."""

from __future__ import annotations

import msgspec

from doctor.facts.rdma import RdmaPort
from doctor.facts.rdma_modules import RdmaModule, RdmaModules
from tests.checks.gpu_hosts import port, rdma
from tests.checks.run_check import fleet, job, messages, run_check

DOWN = port(state="1: DOWN", physical="3: Disabled", rate="40 Gb/sec (4X QDR)")


def test_active_ports_and_a_port_that_no_host_uses() -> None:
    assert messages(run_check("rdma-port-down", fleet(3, rdma()))) == []
    assert messages(run_check("rdma-port-down", fleet(3, rdma(port(), DOWN)))) == []
    assert messages(run_check("rdma-port-down", {"w1": [rdma(DOWN)]})) == []


def test_a_port_that_is_active_elsewhere() -> None:
    hosts = {**fleet(3, rdma()), "w4": [rdma(port(), DOWN)]}
    assert messages(run_check("rdma-port-down", hosts)) == [
        ("w4", "the RDMA port mlx5_1:1 is DOWN (Disabled); expected ACTIVE")
    ]


def test_the_reason_of_mlxlink_stands_beside_the_port_that_is_needed() -> None:
    modules = RdmaModules(by_device={"mlx5_1": RdmaModule("Polling", advice="Cable is unplugged")})
    hosts = {**fleet(3, rdma()), "w4": [rdma(port(), DOWN), modules]}
    assert messages(run_check("rdma-port-down", hosts)) == [
        ("w4", "the RDMA port mlx5_1:1 is DOWN (Disabled); expected ACTIVE; mlxlink: Cable is unplugged")
    ]
    assert messages(run_check("rdma-port-down", {"w1": [rdma(DOWN), modules]})) == []


def test_a_link_without_a_subnet_manager() -> None:
    waiting = rdma(port(state="2: INIT", layer="InfiniBand"))
    assert messages(run_check("rdma-port-down", {"w1": [waiting]})) == [
        ("w1", "the RDMA port mlx5_0:1 is INIT (LinkUp); expected ACTIVE")
    ]


def test_a_port_that_the_job_names() -> None:
    ((host, _),) = messages(run_check("rdma-port-down", {"w1": [rdma(DOWN)]}, job(NCCL_IB_HCA="=mlx5_0:1")))
    assert host == "w1"


def test_virtual_functions_count_where_the_job_has_nothing_else() -> None:
    """A host with ten of them (k8s-rdma-sriov-dev-plugin issue 26), a pod with one (sriov-network-operator 382)."""
    waiting = port(state="1: DOWN", physical="5: LinkUp", layer="InfiniBand")
    card, function = rdma(port(layer="InfiniBand"), waiting).devices
    function = msgspec.structs.replace(function, virtual=True)
    host, pod = (msgspec.structs.replace(rdma(), devices=devices) for devices in ((card, function), (function,)))
    assert messages(run_check("rdma-port-down", {"w1": [host]})) == []
    assert messages(run_check("rdma-port-down", {"w1": [pod]})) == [
        ("w1", "the RDMA port mlx5_1:1 is DOWN (LinkUp); expected ACTIVE")
    ]


def test_the_only_dark_one_of_eight_alike_adapters() -> None:
    """Seven rails that are active show what the eighth is for, on a single host too (ROCm/rccl issue 1423)."""
    dark = port(state="1: DOWN", physical="2: Polling", rate="10 Gb/sec (4X SDR)", layer="InfiniBand")

    def found(*ports: RdmaPort, **changed: object) -> list[tuple[str, str]]:
        devices = (
            msgspec.structs.replace(device, **({"board": "MT_0000000838", "chip": f"9c63:c003:{n:04x}:48ae"} | changed))
            for n, device in enumerate(rdma(*ports).devices)
        )
        host = msgspec.structs.replace(rdma(), devices=tuple(devices))
        return messages(run_check("rdma-port-down", {"w1": [host]}))

    rails = [port(layer="InfiniBand")] * 7
    assert found(*rails, dark) == [("w1", "the RDMA port mlx5_7:1 is DOWN (Polling); expected ACTIVE")]
    assert found(*rails[:6], dark) == []
    assert len(found(*rails[:6], dark, dark)) == 2, "two of eight"
    assert found(*rails[:5], dark, dark, dark) == found(*rails, dark, dark) == []
    assert found(*rails, dark, chip="9c63:c003:0055:48ae") == [], "ports of one card"
    assert found(*rails, dark, chip="") == []
    assert found(*rails, dark, board="") == []
    assert found(*rails, dark, virtual=True) == []
