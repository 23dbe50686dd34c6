"""Accelerators on the PCI bus of vendors whose state doctor does not read."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, ask
from doctor.engine.toml_compat import read_table
from doctor.remote.runtime.reading import matching_paths, read_text

MAX_DEVICES, MAX_FILES = 256, 2048
FOR_GUESTS = ("vfio-pci", "pci-stub")
"""Drivers of devices that are kept for virtual machines: they are no devices of this host."""
PROCESSING = "1200"
"""The PCI class of processing accelerators."""
_OTHER_WORK = frozenset({"10de", "19e5", "10ee", "1172", "8086", "1d0f", "15b3", "14e4", "177d", "1022", "1002"})
"""Vendors whose devices of that class are read elsewhere, stand in the table by their ids, or compress, encrypt, route,
or are programmable logic."""


class AcceleratorVendor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One vendor of accelerators, by its PCI ids."""

    id: str
    name: str
    classes: tuple[str, ...] = ()
    """PCI classes, four digits: all such devices of the vendor are accelerators."""
    devices: tuple[str, ...] = ()
    """PCI device ids that are accelerators in any PCI class."""
    integrated: str = ""
    """How the address of a processor's own graphics begins; empty for a vendor that has none."""
    files: tuple[str, ...] = ()
    """How the names of their files under /dev begin."""
    module: str = ""
    """The kernel module that drives them; empty where it is not known."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    vendor: tuple[AcceleratorVendor, ...]


@cache
def accelerator_vendors() -> dict[str, AcceleratorVendor]:
    """The vendors by PCI id. Source: the file accelerators.toml beside this module."""
    return {vendor.id: vendor for vendor in read_table(Path(__file__).with_suffix(".toml"), _Table).vendor}


def detect_accelerators(arguments: ProbeArguments) -> dict[str, list[Any]]:
    """Runs on the host: slot, vendor, device, class and driver of what may be an accelerator; the device files."""
    rows = []
    for path in matching_paths("/sys/bus/pci/devices/*/class"):
        folder = os.path.dirname(path)
        kind = read_text(path).strip().lower()[2:6]
        if kind[:2] in ("03", "12") or kind in ("0b40", "0880", "ff00", "0580"):
            ids = [read_text(folder + "/" + name).strip().lower()[2:] for name in ("vendor", "device")]
            driver = os.path.realpath(folder + "/driver")
            name = os.path.basename(driver) if "/drivers/" in driver else ""
            rows.append([os.path.basename(folder), ids[0], ids[1], kind, name])
    files = []
    for folder in ("", "dri/", "accel/", "tenstorrent/", "vfio/") if rows else ():
        names = os.listdir("/dev/" + folder) if os.path.isdir("/dev/" + folder) else []
        files += [folder + name for name in names if not name.startswith(("tty", "loop", "ram", "vcs"))]
    return {"devices": rows[:MAX_DEVICES], "files": sorted(files)[:MAX_FILES]}


class Accelerator(msgspec.Struct, frozen=True):
    """One accelerator on the PCI bus."""

    slot: str
    """PCI address, as 0000:3b:00.0."""
    vendor: str
    """The vendor's name; empty for one that the table does not have."""
    pci_id: str
    """Vendor and device, as 1002:74a1."""
    driver: str
    """The kernel's driver of it; empty for none."""

    @property
    def module(self) -> str:
        """The kernel module that drives such devices; empty where it is not known."""
        vendor = accelerator_vendors().get(self.pci_id[:4])
        return vendor.module if vendor else ""


class _Detection(msgspec.Struct, frozen=True):
    """What `detect_accelerators` returns."""

    devices: list[tuple[str, str, str, str, str]]
    files: list[str]


class OtherAccelerators(Fact, frozen=True):
    """Accelerators that are neither NVIDIA GPUs nor Ascend NPUs; integrated graphics and a BMC's display chip are none.

    Raw output, as JSON; slot, vendor, device, class and driver of display and processing devices::

        {"devices": [["0000:05:00.0", "1002", "74a1", "1200", "amdgpu"],
                     ["0000:03:00.0", "1a03", "2000", "0300", "ast"]],
         "files": ["dri/card1", "dri/renderD128", "kfd", "null"]}
    """

    probe = ask(detect_accelerators)

    devices: tuple[Accelerator, ...]
    files: tuple[str, ...] = ()
    """Device files under /dev that belong to their vendors, such as ``kfd``."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> OtherAccelerators:
        answered = msgspec.convert(answer.json(), _Detection)
        devices: list[Accelerator] = []
        prefixes: set[str] = set()
        for slot, vendor_id, device, kind, driver in answered.devices:
            vendor = accelerator_vendors().get(vendor_id)
            is_integrated = vendor is not None and bool(vendor.integrated) and slot.startswith(vendor.integrated)
            is_meant = vendor is not None and not is_integrated and (device in vendor.devices or kind in vendor.classes)
            is_unlisted = kind == PROCESSING and vendor_id not in _OTHER_WORK
            if (is_meant or is_unlisted) and driver not in FOR_GUESTS:
                name = vendor.name if vendor else ""
                devices.append(Accelerator(slot, name, f"{vendor_id}:{device}", driver))
                prefixes.update(vendor.files if vendor else ())
        if not devices:
            raise Absent("the host has no accelerator of another vendor")
        files = tuple(name for name in answered.files if name.startswith(tuple(prefixes)))
        return cls(devices=tuple(devices), files=files)
