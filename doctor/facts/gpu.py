"""NVIDIA GPUs. The words of nvidia-smi are taken from its public manual, not from a GPU."""

from __future__ import annotations

import csv
import re
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, ask, run


def detect_gpus(arguments: dict[str, Any]) -> dict[str, Any]:
    """Runs on the host: the number of NVIDIA GPUs on the PCI bus, the driver, and whether nvidia-smi is there."""
    import glob
    import os
    import shutil

    def read(path: str) -> str:
        try:
            with open(path) as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    pci = 0
    for path in glob.glob("/sys/bus/pci/devices/*/vendor"):
        kind = read(path[:-6] + "class")
        pci += read(path) == "0x10de" and kind.startswith("0x03")
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
    driver = read("/proc/driver/nvidia/version").split("\n")[0]
    return {"pci": pci, "driver": driver, "tool": bool(shutil.which("nvidia-smi", path=path))}


class GpuCards(Fact, frozen=True):
    """NVIDIA GPUs on the PCI bus (vendor 10de, display class), whether the driver is loaded, the tool installed.

    Raw output, as JSON::

        {"pci": 8, "driver": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03", "tool": true}
    """

    probe = ask(detect_gpus)

    pci: int
    driver: str
    """First line of ``/proc/driver/nvidia/version``; empty when the module is not loaded."""
    tool: bool
    """nvidia-smi is installed."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> GpuCards:
        cards = msgspec.convert(answer.json(), cls)
        if not (cards.pci or cards.driver or cards.tool):
            raise Absent("the host has no NVIDIA GPU")
        return cards


class Gpu(msgspec.Struct, frozen=True):
    """One GPU as nvidia-smi lists it."""

    index: int
    name: str
    uuid: str
    driver: str
    memory: int
    """MiB."""
    ecc_errors: int | None
    """Uncorrected since the driver was loaded; None for a GPU without ECC, or with it turned off."""


_FIELDS = "index,name,uuid,driver_version,memory.total,ecc.errors.uncorrected.volatile.total"


class GpuInventory(Fact, frozen=True):
    """Every GPU that nvidia-smi lists, with its driver version and ECC errors.

    Raw output, from nvidia-smi::

        0, NVIDIA A100-SXM4-80GB, GPU-aa, 535.129.03, 81920, 0
        1, NVIDIA A100-SXM4-80GB, GPU-bb, 535.129.03, 81920, 3
    """

    probe = run(f"nvidia-smi --query-gpu={_FIELDS} --format=csv,noheader,nounits", requires="nvidia-smi", timeout=30)

    gpus: tuple[Gpu, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> GpuInventory:
        gpus: list[Gpu] = []
        unread: dict[str, str] = {}
        for row in csv.reader(answer.text().splitlines(), skipinitialspace=True):
            if len(row) == 6 and row[0].isdecimal() and (gpu := _parse_gpu(row)):
                gpus.append(gpu)
            elif row and row[0].isdecimal():
                unread[f"GPU {row[0]}"] = f"not understood: {', '.join(row)[:120]}"
            elif "no devices were found" not in " ".join(row).lower():
                raise Unreadable(f"nvidia-smi: not understood: {', '.join(row)[:120]}")
        if not gpus and not unread and "no devices" not in answer.text().lower():
            raise Unreadable("nvidia-smi: it listed no GPU")
        return cls(gpus=tuple(gpus), unread=unread)


def _parse_gpu(row: list[str]) -> Gpu | None:
    index, name, uuid, driver, memory, errors = row
    is_readable = re.fullmatch(r"\d+(\.\d+)+", driver) and memory.isdecimal()
    none = errors in ("N/A", "[N/A]", "[Not Supported]")
    if not is_readable or not (none or errors.isdecimal()):
        return None
    return Gpu(int(index), name, uuid, driver, int(memory), None if none else int(errors))
