"""NPU hosts in a line."""

from __future__ import annotations

from doctor.facts.npu import NpuInventory


def npus(count: int) -> NpuInventory:
    """A host with so many NPUs, all well."""
    return NpuInventory(
        devices=tuple(range(count)),
        pci_count=count,
        manager=True,
        tools=("hccn_tool", "npu-smi"),
        newer_than_boot=(),
        denied_files=(),
    )
