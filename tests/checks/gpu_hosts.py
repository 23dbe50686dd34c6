"""Healthy hosts with NVIDIA GPUs and RDMA adapters, to be made ill in one place."""

from __future__ import annotations

from typing import Any

import msgspec

from doctor.facts.gpu import Gpu, GpuCards, GpuInventory, NvidiaSmi
from doctor.facts.host_settings import HostSettings
from doctor.facts.kernel_log import KernelLog, LogLine
from doctor.facts.limits import RdmaAdapters
from doctor.facts.nvlink import FabricManager
from doctor.facts.rdma import Gid, RdmaDevice, RdmaPort, RdmaPorts

H100 = "NVIDIA H100 80GB HBM3"
VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build"


def gpu(index: int = 0, **more: Any) -> Gpu:
    healthy = {
        "name": H100,
        "uuid": f"GPU-{index}",
        "driver": "550.54.15",
        "memory": 81559,
        "ecc_errors": 0,
        "persistence": True,
        "mig": "Disabled",
        "mig_pending": "Disabled",
        "pcie_width": 16,
        "pcie_width_max": 16,
        "pcie_generation_max": 5,
        "temperature": 31,
        "temperature_limit": 87,
        "power_limit": 700.0,
        "fabric_state": "Completed",
        "fabric_status": "Success",
    }
    return Gpu(**{"index": index, **healthy, **more})


def gpus(*listed: Gpu, cuda: str = "12.4") -> GpuInventory:
    return GpuInventory(gpus=listed or tuple(gpu(index) for index in range(8)), cuda=cuda)


def tool(kind: Any = "", text: str = "", lost: tuple[str, ...] = ()) -> NvidiaSmi:
    return NvidiaSmi(kind=kind, text=text, lost=lost)


def cards(**more: Any) -> GpuCards:
    healthy = {"pci": 8, "driver": VERSION, "tool": True, "switches": 4, "peermem": True, "redirecting": ()}
    return GpuCards(**{**healthy, **more})


def manager(**more: Any) -> FabricManager:
    healthy = {"switches": 4, "version": "550.54.15", "is_installed": True, "is_running": True, "state": "active"}
    return FabricManager(**{**healthy, **more})


def port(**more: Any) -> RdmaPort:
    healthy = {
        "number": 1,
        "state": "4: ACTIVE",
        "physical": "5: LinkUp",
        "rate": "400 Gb/sec (4X NDR)",
        "layer": "Ethernet",
        "gids": (
            Gid(0, "fe80:0000:0000:0000:0e42:a1ff:fe65:0001", "IB/RoCE v1", "eth1"),
            Gid(1, "fe80:0000:0000:0000:0e42:a1ff:fe65:0001", "RoCE v2", "eth1"),
            Gid(2, "0000:0000:0000:0000:0000:ffff:0a60:0001", "IB/RoCE v1", "eth1"),
            Gid(3, "0000:0000:0000:0000:0000:ffff:0a60:0001", "RoCE v2", "eth1"),
        ),
        "interface": "eth1",
        "mtu": "9000",
        "quality": {"traffic class": "Global tclass=106"},
    }
    return RdmaPort(**{**healthy, **more})


def rdma(*ports: RdmaPort, **more: Any) -> RdmaPorts:
    """Adapters mlx5_0, mlx5_1, ... with one port each."""
    healthy = {"type": "MT4129", "board": "MT_0000000838", "firmware": "28.39.1002"}
    devices = [
        RdmaDevice(name=f"mlx5_{number}", ports=(rdma_port,), **{**healthy, **more})
        for number, rdma_port in enumerate(ports or (port(), port()))
    ]
    return RdmaPorts(devices=tuple(devices))


ADAPTERS = RdmaAdapters(names=("mlx5_0", "mlx5_1"))


def settings(**more: Any) -> HostSettings:
    healthy = HostSettings(
        governors=("performance",),
        frequency_driver="intel_pstate",
        huge_pages="madvise",
        reserved_huge_pages=0,
        numa_balancing=0,
        numa_nodes=2,
        clock_source="tsc",
        clock_sources=("tsc", "hpet", "acpi_pm"),
        swap_devices=(),
        command_line=("iommu=pt",),
        kernel="5.15.0-1053-nvidia",
        is_portable=False,
    )
    return msgspec.structs.replace(healthy, **more)


def log(*messages: str, age: float = 60.0) -> KernelLog:
    """A log with messages of that age, the oldest first."""
    return KernelLog(uptime=1e6, lines=tuple(LogLine(age, message) for message in messages))
