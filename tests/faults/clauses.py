"""Other clauses of claims than those that the rows of other files break: each on a real host as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.faults import Row
from tests.faults.addresses import CONF, file_row, npu_row
from tests.faults.gpus import GPU, RDMA, amd_row, element, logged, modules
from tests.faults.ranks import setting


def clause(check: str, words: str, fault: str, host: int = 1, also: Sequence[str] = (), **values: Any) -> Row:
    """A fault of one of four hosts with GPUs that makes these words of the check's claim untrue."""
    return Row(check, fault, fleet="gpu", host=host, also=also, values=values, clause=words)


def kernel(check: str, words: str, message: str, host: int, level: int = 4, **values: Any) -> Row:
    """The same by a message of the kernel."""
    return clause(check, words, logged(message, level=level), host, **values)


def named(row: Row, words: str) -> Row:
    """A row of another kind, and the words of the claim that its fault makes untrue."""
    return replace(row, clause=words)


NOT_ACTIVE = "Not Active", "Active"
ROWS: list[Row] = [
    clause(
        "gpu-clocks-throttled",
        "heat",
        element(1, "clocks_event_reason_sw_thermal_slowdown", *NOT_ACTIVE),
        host=2,
        gpu=1,
    ),
    clause(
        "gpu-mig-differs",
        "none is to change at the next reset",
        element(1, "pending_mig", "Disabled", "Enabled"),
        host=2,
    ),
    clause(
        "gpu-row-remap-failed",
        "uncorrectable cache errors",
        element(3, "sram_threshold_exceeded", "No", "Yes"),
        host=2,
        gpu=3,
    ),
    clause("gpu-topology-differs", "The GPUs", f"sed -i 's/NV18/PHB/g' {GPU}/topology", host=2),
    kernel(
        "gpu-xid-logged",
        "NVSwitch",
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
        host=0,
        code=20034,
    ),
    kernel(
        "hardware-error-logged",
        "processor",
        "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 1: bf80000000000e0b",
        host=1,
        level=2,
    ),
    kernel(
        "hardware-error-logged",
        "PCIe",
        "pcieport 0000:16:01.0: AER: Multiple Uncorrected (Fatal) error received: 0000:16:01.0",
        host=3,
        kind="an uncorrected PCIe error",
    ),
    kernel(
        "hardware-error-logged", "no lost device", "pcieport 0000:97:01.0: pciehp: Slot(5): Card not present", host=0
    ),
    kernel(
        "file-system-failed",
        "holds no damaged",
        "XFS (nvme1n1p1): Metadata corruption detected at xfs_agf_read_verify+0x70/0x120 [xfs], xfs_agf block 0x1",
        host=1,
        level=1,
        device="nvme1n1p1",
    ),
    kernel(
        "file-system-failed",
        "no disk that failed",
        "nvme nvme3: Disabling device after reset failure: -19",
        host=3,
        device="nvme3",
    ),
    kernel(
        "kernel-error-logged",
        "The kernel's log holds no error of the kernel itself",
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        host=3,
        level=1,
    ),
    clause("rdma-devices-differ", "the same link layer", f"echo InfiniBand >{RDMA}/mlx5_1/ports/1/link_layer", host=3),
    clause(
        "rdma-port-slow",
        "the speed",
        f"echo '200 Gb/sec (4X HDR)' >{RDMA}/mlx5_1/ports/1/rate",
        host=0,
        port="mlx5_1:1",
    ),
    clause(
        "network-card-slow",
        "both ways at once",
        "echo half >/sys/class/net/eth100/device/net/eth100/duplex",
        host=0,
        interface="eth100",
    ),
    clause(
        "gpu-pcie-width-low",
        "all lanes of its PCIe slot",
        element(0, "current_link_width", "16x", "4x"),
        host=3,
        gpu=0,
        observed=4,
    ),
    clause(
        "host-settings-differ",
        "kernel",
        "echo 5.4.0-150-generic >/run/release; mount --bind /run/release /proc/sys/kernel/osrelease",
        host=2,
        observed="5.4.0-150-generic",
    ),
    named(
        amd_row(
            "amd-gpu-settings-differ", "sed -i s/6.10.5/6.8.5/g /run/amd/static", setting="driver", observed="6.8.5"
        ),
        "with one driver",
    ),
    named(
        amd_row("amd-gpu-settings-differ", "sed -i s/MI300X/MI325X/g /run/amd/static", setting="product"),
        "AMD GPUs are of one product",
    ),
    named(
        setting(
            "visible-devices-wrong",
            {"ASCEND_RT_VISIBLE_DEVICES": "0,1"},
            {"ASCEND_RT_VISIBLE_DEVICES": "1,1"},
            blamed=[0, 1, 2, 3],
        ),
        "each once",
    ),
    Row(
        "npu-memory-errors",
        "echo 'HBM Double Bit Isolated Pages Count=90' >/run/npu/2/ecc",
        host=3,
        values={"card": 2},
        clause="many more pages out of use than its neighbours",
    ),
    *(
        setting("launch-settings-invalid", {name: good}, {name: wrong}, clause=library, values={"variable": name})
        for library, name, good, wrong in (
            ("NCCL", "NCCL_ALGO", "Ring", "Trees"),
            ("OpenMP", "OMP_NUM_THREADS", "8", "all"),
            ("torch", "TORCH_NCCL_BLOCKING_WAIT", "1", "on"),
            ("MindSpore", "MS_WORKER_NUM", "8", "two"),
        )
    ),
    setting(
        "visible-devices-wrong",
        {"CUDA_VISIBLE_DEVICES": "0,1"},
        {"CUDA_VISIBLE_DEVICES": "0,9"},
        fleet="gpu",
        blamed=[0, 1, 2, 3],
        values={"absent": [9]},
        clause="CUDA_",
    ),
    Row(
        "rdma-module-out-of-range",
        "sed -i s/15E-255/1E-8/ /run/mlxlink/mlx5_1",
        fleet="gpu",
        prepare=modules,
        values={"device": "mlx5_1", "observed": "1e-08"},
        clause="its link has as few bit errors as it must",
    ),
    *(
        file_row(
            "hccn-conf-differs",
            f"another {words}",
            f"sed -i 's/^{key}_1=.*/{key}_1={value}/' {CONF}",
            host=host,
            clause=words,
        )
        for host, words, key, value in (
            (0, "netmasks", "netmask", "255.255.252.0"),
            (2, "gateways", "gateway", "29.1.99.1"),
            (3, "detect addresses", "netdetect", "29.1.99.2"),
        )
    ),
    npu_row(
        "device-packets-bad",
        "pauses while nothing is sent",
        2,
        "echo mac_rx_pfc_pkt_num >stat_grows",
        host=2,
        clause="pauses while it is idle",
    ),
]
