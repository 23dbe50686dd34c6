"""How the IOMMU treats accelerators and network adapters: whether it translates what they address."""

from __future__ import annotations

import os

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, ask
from doctor.remote.runtime.reading import matching_paths, read_text


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
