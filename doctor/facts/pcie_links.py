"""The PCIe links of accelerators, network cards and NVMe disks, and whether the IOMMU translates what they address."""

from __future__ import annotations

import os
import re
import time
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, ask
from doctor.engine.texts import filled
from doctor.facts.accelerators import FOR_GUESTS
from doctor.facts.gpu import is_virtual_machine
from doctor.facts.npu import FAMILY_OF_PCI
from doctor.facts.reported_value import lacked_reasons
from doctor.remote.runtime.reading import matching_paths, read_text

MAX_LINKS = 512
ALL_ONES = "63"
"""The lanes of a device whose registers read as ones: it does not answer. No link has so many."""
RESET = 2
"""Seconds, after which a device that is being reset answers again."""
_LINK = ("current_link_width", "current_link_speed", "max_link_width", "max_link_speed")


def _link_of(folder: str) -> list[str]:
    return [read_text(folder + "/" + name, 64).strip() for name in _LINK]


def read_pcie_links(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: of each display, processing, network and NVMe function its link, and what its port supports."""
    rows: list[list[Any]] = []
    for path in matching_paths("/sys/bus/pci/devices/*/class"):
        folder = os.path.dirname(path)
        kind = read_text(folder + "/class").strip().lower()[2:6]
        if not (kind[:2] in ("02", "03", "12") or kind == "0108") or os.path.lexists(folder + "/physfn"):
            continue
        driver = os.path.realpath(folder + "/driver")
        port = os.path.dirname(os.path.realpath(folder))
        rows.append(
            [
                os.path.basename(folder),
                ":".join(read_text(folder + "/" + name).strip().lower()[2:] for name in ("vendor", "device")),
                kind,
                os.path.basename(driver) if "/drivers/" in driver else "",
                _link_of(folder),
                [read_text(port + "/" + name, 64).strip() for name in _LINK[2:]],
                [read_text(folder + "/" + name, 64).strip() for name in ("power/runtime_status", "power_state")],
                os.path.isdir(folder + "/infiniband"),
            ]
        )
    silent = [row for row in rows if row[4][0] == ALL_ONES]
    if silent:
        time.sleep(RESET)
        for row in silent:
            row[4] = _link_of("/sys/bus/pci/devices/" + row[0])
    names = [read_text("/sys/class/dmi/id/" + name).strip() for name in ("sys_vendor", "product_name")]
    return {"links": rows[:MAX_LINKS], "machine": " ".join(names)}


class LinkRate(msgspec.Struct, frozen=True):
    """Lanes, and transfers a second of each."""

    lanes: int
    gigatransfers: float

    def __str__(self) -> str:
        return filled("x{0} at {1}", self.lanes, f"{self.gigatransfers} GT/s")


class PcieLink(msgspec.Struct, frozen=True, array_like=True):
    """The link of one PCI function that is no virtual one."""

    slot: str
    """PCI address, as 0000:c1:00.0."""
    pci_id: str
    """Vendor and device, as 19e5:d802."""
    pci_class: str
    """Four digits: 02.. network, 03.. display, 12.. processing, 0108 NVMe."""
    driver: str
    current: tuple[str, str, str, str]
    """Lanes and speed, and the most that the device supports of both."""
    port: tuple[str, str]
    """The most lanes and the highest speed of the port at the other end."""
    power: tuple[str, str] = ("", "")
    """``active`` or ``suspended``; ``D0`` to ``D3cold``."""
    is_rdma: bool = False

    @property
    def is_silent(self) -> bool:
        """It is on the bus, is not switched off to save power, and its registers read as ones."""
        asleep = self.power[0] in ("suspended", "suspending", "resuming") or self.power[1] == "D3cold"
        return self.current[0] == ALL_ONES and not asleep and self.driver not in FOR_GUESTS

    @property
    def rate(self) -> LinkRate | None:
        """What the link has now; None where it is not known, as of a part of the processor."""
        return _rate(*self.current[:2])

    @property
    def supported(self) -> LinkRate | None:
        """What both ends support."""
        device, port = _rate(*self.current[2:]), _rate(*self.port)
        if not device or not port:
            return None
        return LinkRate(min(device.lanes, port.lanes), min(device.gigatransfers, port.gigatransfers))

    @property
    def is_all_that_fits(self) -> bool:
        """The link has all lanes that its slot has."""
        return bool(self.rate and self.supported and self.rate.lanes >= self.supported.lanes)

    @property
    def is_npu(self) -> bool:
        vendor, _, device = self.pci_id.partition(":")
        return vendor == "19e5" and device in FAMILY_OF_PCI

    @property
    def kind(self) -> str:
        """What it is, for a finding."""
        if self.is_npu:
            return filled("the NPU")
        names = {"02": filled("the network card"), "03": filled("the GPU"), "12": filled("the accelerator")}
        return names.get(self.pci_class[:2], filled("the NVMe disk"))


def _rate(lanes: str, speed: str) -> LinkRate | None:
    match = re.match(r"([0-9]{1,3}(?:\.[0-9])?) GT/s", speed)
    is_known = match and re.fullmatch("[1-9][0-9]?", lanes) and lanes != ALL_ONES
    return LinkRate(int(lanes), float(match[1])) if match and is_known else None


class _Answer(msgspec.Struct, frozen=True):
    """What `read_pcie_links` returns."""

    links: list[PcieLink]
    machine: str


class PcieLinks(Fact, frozen=True):
    """The PCIe links of the host's accelerators, network cards and NVMe disks, and what the ports above them support.

    Raw output, as JSON; slot, ids, class, driver, link, port, power and whether it is an RDMA adapter::

        {"links": [["0000:c1:00.0", "19e5:d802", "1200", "devdrv_device_driver",
                    ["16", "16.0 GT/s PCIe", "16", "16.0 GT/s PCIe"], ["16", "16.0 GT/s PCIe"],
                    ["active", "D0"], false]],
         "machine": "Huawei Atlas 800T A2"}
    """

    probe = ask(read_pcie_links)

    links: tuple[PcieLink, ...]
    is_virtual: bool = False
    """In a virtual machine the ports show links of their own."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> PcieLinks:
        answered = msgspec.convert(answer.json(), _Answer)
        links = tuple(link for link in answered.links if link.current[0])
        if not links:
            raise Absent("the kernel shows no PCIe link of an accelerator, a network card or an NVMe disk")
        shown = {
            link.slot: {"current_link_width"} if link.rate or link.current[0] == ALL_ONES else ()
            for link in answered.links
        }
        lacked = lacked_reasons({link.slot: (link.pci_id, shown[link.slot]) for link in answered.links})
        return cls(links, is_virtual_machine(answered.machine), unread=lacked)


def detect_iommu(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: slot, vendor, class, driver and IOMMU domain of display, processing and network devices."""
    rows = []
    for path in matching_paths("/sys/bus/pci/devices/*/iommu_group/type"):
        folder = path[: -len("/iommu_group/type")]
        kind = read_text(folder + "/class").strip().lower()[2:6]
        if kind[:2] in ("03", "12", "02"):
            driver = os.path.realpath(folder + "/driver")
            name = os.path.basename(driver) if "/drivers/" in driver else ""
            rows.append(
                [
                    os.path.basename(folder),
                    read_text(folder + "/vendor").strip()[2:],
                    kind,
                    name,
                    read_text(path).strip(),
                ]
            )
    names = [read_text("/sys/class/dmi/id/" + name).strip() for name in ("sys_vendor", "product_name")]
    return {"devices": rows[:256], "machine": " ".join(names), "architecture": os.uname()[4]}


class _Detection(msgspec.Struct, frozen=True):
    """What `detect_iommu` returns."""

    devices: list[tuple[str, str, str, str, str]]
    machine: str
    architecture: str


class IommuDomains(Fact, frozen=True):
    """The IOMMU domain of each accelerator and network adapter: identity passes addresses on, DMA translates them.

    Raw output, as JSON; slot, vendor, class, driver and domain::

        {"devices": [["0000:1b:00.0", "10de", "0302", "nvidia", "DMA-FQ"],
                     ["0000:3b:00.0", "15b3", "0207", "mlx5_core", "identity"]],
         "machine": "Supermicro SYS-821GE-TNHR", "architecture": "x86_64"}
    """

    probe = ask(detect_iommu)

    domains: dict[str, str]
    """By PCI address, of GPUs of NVIDIA and AMD that a driver of theirs has."""
    machine: str
    architecture: str

    @classmethod
    def read(cls, answer: ProbeAnswer) -> IommuDomains:
        detection = msgspec.convert(answer.json(), _Detection)
        drivers = {"10de": "nvidia", "1002": "amdgpu"}
        domains = {
            slot: domain for slot, vendor, _, driver, domain in detection.devices if drivers.get(vendor, "-") == driver
        }
        if not domains:
            raise Absent("no IOMMU is in use for the host's GPUs")
        return cls(domains=domains, machine=detection.machine, architecture=detection.architecture)
