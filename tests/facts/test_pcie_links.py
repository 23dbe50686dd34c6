"""The PCIe links of a host, from sysfs and from `lspci -vv` of real machines, in the form of the kernel's files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from doctor.engine.fact import Absent
from doctor.facts import pcie_links
from doctor.facts.pcie_links import PcieLink, PcieLinks, read_pcie_links
from doctor.remote.runtime.reading import matching_paths, read_text
from tests.facts.answers import answered


def link(current: str = "16 at 16.0", most: str = "16 at 16.0", port: str = "16 at 16.0", **more: object) -> PcieLink:
    """Of ``lanes at gigatransfers``; an empty text where the kernel shows nothing."""

    def files(text: str) -> tuple[str, str]:
        lanes, _, speed = text.partition(" at ")
        return lanes, f"{speed} GT/s PCIe" if speed[:1].isdigit() else speed

    base = PcieLink(
        "0000:c1:00.0", "19e5:d802", "1200", "devdrv_device_driver", (*files(current), *files(most)), files(port)
    )
    return PcieLink(**{name: getattr(base, name) for name in base.__struct_fields__} | more)


@pytest.mark.parametrize(
    ("current", "most", "port", "rate", "supported"),
    [
        ("16 at 16.0", "16 at 16.0", "16 at 16.0", "x16 at 16.0 GT/s", "x16 at 16.0 GT/s"),
        ("8 at 8.0", "16 at 16.0", "16 at 8.0", "x8 at 8.0 GT/s", "x16 at 8.0 GT/s"),
        ("8 at 16.0", "16 at 16.0", "", "x8 at 16.0 GT/s", None),
        ("16 at 2.5", "16 at 32.0", "16 at 64.0", "x16 at 2.5 GT/s", "x16 at 32.0 GT/s"),
        ("63 at Unknown", "63 at Unknown", "16 at 16.0", None, None),
        ("0 at Unknown", "255 at Unknown", "", None, None),  # a part of the processor
    ],
)
def test_what_a_link_has_and_what_both_ends_support(
    current: str, most: str, port: str, rate: str | None, supported: str | None
) -> None:
    value = link(current, most, port)
    assert [text and str(text) for text in (value.rate, value.supported)] == [rate, supported]


@pytest.mark.parametrize(
    ("power", "driver", "is_silent"),
    [
        (("active", "D0"), "nvidia", True),
        (("unsupported", ""), "", True),
        (("suspended", "D3cold"), "nvidia", False),
        (("active", "D3cold"), "nvidia", False),
        (("active", "D0"), "vfio-pci", False),
    ],
)
def test_a_device_whose_registers_read_as_ones(power: tuple[str, str], driver: str, is_silent: bool) -> None:
    """As a GPU that fell off the bus: public files 59679572498, 62699482110 and 53408368712."""
    value = link("63 at Unknown", "63 at Unknown", "16 at 16.0", power=power, driver=driver)
    assert value.is_silent is is_silent
    assert not link().is_silent


def lay(devices: Path, slot: str, port: str, **files: str) -> Path:
    """A device behind a port, as sysfs has them: a link from the bus to the device's place."""
    folder = devices.parents[2] / "devices" / "pci0000:c0" / port / slot
    folder.mkdir(parents=True)
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    (devices / slot).symlink_to(folder)
    return folder


def test_the_files_of_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = tmp_path / "bus" / "pci" / "devices"
    devices.mkdir(parents=True)
    ids = {"vendor": "0x19e5", "device": "0xd802", "class": "0x120000"}
    npu = lay(
        devices,
        "0000:c1:00.0",
        "0000:c0:00.0",
        **ids,
        current_link_width="8",
        current_link_speed="16.0 GT/s PCIe",
        max_link_width="16",
        max_link_speed="16.0 GT/s PCIe",
        power__runtime_status="active",
    )
    for name, text in {"max_link_width": "16", "max_link_speed": "32.0 GT/s PCIe"}.items():
        (npu.parent / name).write_text(text + "\n")
    lay(devices, "0000:02:00.0", "0000:01:00.0", vendor="0x1a03", device="0x2000", **{"class": "0x060400"})
    virtual = lay(devices, "0000:c2:00.1", "0000:c0:01.0", **ids, current_link_width="0")
    (virtual / "physfn").symlink_to(npu)

    def moved(path: str) -> str:
        return path.replace("/sys/bus/pci/devices", str(devices), 1)

    real = os.path.realpath
    monkeypatch.setattr(pcie_links, "matching_paths", lambda pattern: matching_paths(moved(pattern)))
    monkeypatch.setattr(pcie_links, "read_text", lambda path, *limit: read_text(moved(path), *limit))
    monkeypatch.setattr(os.path, "realpath", lambda path: real(moved(path)))
    fact = answered(PcieLinks, read_pcie_links({}))
    assert isinstance(fact, PcieLinks)
    (value,) = fact.links
    assert (value.slot, value.pci_id, value.is_npu, value.kind) == ("0000:c1:00.0", "19e5:d802", True, "the NPU")
    assert [str(value.rate), str(value.supported)] == ["x8 at 16.0 GT/s", "x16 at 16.0 GT/s"]

    (npu / "current_link_width").write_text("63\n")
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    assert answered(PcieLinks, read_pcie_links({})).links[0].is_silent
    monkeypatch.setattr(time, "sleep", lambda _: (npu / "current_link_width").write_text("16\n"))
    assert not answered(PcieLinks, read_pcie_links({})).links[0].is_silent  # it was being reset
    assert pauses == [pcie_links.RESET]


def test_a_host_whose_kernel_shows_no_links() -> None:
    for links in ([], [["0000:c1:00.0", "19e5:d802", "1200", "", ["", "", "", ""], ["", ""], ["", ""], False]]):
        assert isinstance(answered(PcieLinks, {"links": links, "machine": ""}), Absent)


def test_a_link_that_the_kernel_does_not_show_where_it_shows_those_of_its_kind_is_unread() -> None:
    """A read that failed; a part of a processor shows no link on any host, and one that fell off the bus is silent."""
    slots = ("0000:01:00.0", "0000:02:00.0", "0000:81:00.0")

    def unread(current: str) -> list[str]:
        links = [link("16 at 16.0" if slot != slots[1] else current, slot=slot) for slot in slots]
        value = answered(PcieLinks, {"links": msgspec.to_builtins(links), "machine": ""})
        assert isinstance(value, PcieLinks)
        return list(value.unread)

    assert unread("16 at 8.0") == unread("63 at Unknown") == []
    assert unread("") == unread("16 at ") == [slots[1]]
    part = [link("0 at Unknown", "255 at Unknown", "", slot=slot) for slot in slots]
    assert answered(PcieLinks, {"links": msgspec.to_builtins(part), "machine": ""}).unread == {}
