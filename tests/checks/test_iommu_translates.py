"""What iommu-translates finds; domains as /sys/bus/pci/devices/*/iommu_group/type has them."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.engine.fact import Absent
from doctor.facts.limits import RdmaAdapters
from doctor.facts.pcie_links import IommuDomains
from tests.checks.devices import of, skipped
from tests.facts.answers import answered

look = of("iommu_translates")
ADAPTERS = RdmaAdapters(names=("mlx5_0",))


def domains(
    *kinds: str, vendor: str = "10de", driver: str = "nvidia", machine: str = "Supermicro", cpu: str = "x86_64"
) -> Any:
    rows = [[f"0000:{n}b:00.0", vendor, "0302", driver, kind] for n, kind in enumerate(kinds)]
    card = ["0000:3f:00.0", "15b3", "0207", "mlx5_core", "DMA-FQ"]
    return answered(IommuDomains, {"devices": [*rows, card], "machine": machine, "architecture": cpu})


@pytest.mark.parametrize("kind", ["identity", "blocked", "unmanaged", ""])
def test_domains_that_translate_nothing(kind: str) -> None:
    assert look(domains(*[kind] * 8), ADAPTERS) == []


@pytest.mark.parametrize(("vendor", "driver"), [("10de", "nvidia"), ("1002", "amdgpu")])
@pytest.mark.parametrize("kind", ["DMA", "DMA-FQ"])
def test_translated_on_all_hosts_alike(vendor: str, driver: str, kind: str) -> None:
    (finding,) = look(domains(*[kind] * 8, vendor=vendor, driver=driver), ADAPTERS)
    assert str(finding).startswith("the IOMMU translates for 8 of 8 GPUs: 0000:0b:00.0")


def test_one_of_several() -> None:
    (finding,) = look(domains("identity", "DMA", "identity", "identity"))
    assert finding.values["slot"] == "0000:1b:00.0"


def test_what_is_not_judged() -> None:
    sick = domains(*["DMA"] * 8, machine="QEMU Standard PC (Q35 + ICH9, 2009)")
    assert "virtual machine" in skipped(look, sick, ADAPTERS)
    assert "x86" in skipped(look, domains(*["DMA"] * 4, cpu="aarch64"), ADAPTERS)
    assert "few GPUs" in skipped(look, domains("DMA", "DMA"))
    assert isinstance(domains("DMA", driver="vfio-pci"), Absent)
    assert isinstance(domains("DMA", vendor="8086", driver="i915"), Absent)
