"""Accelerators on the PCI bus of this machine, and what is no answer."""

from __future__ import annotations

import pytest

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.accelerators import OtherAccelerators, accelerator_vendors, detect_accelerators
from tests.facts.answers import answered, read_outputs


def test_the_question_is_answered_here() -> None:
    answer = detect_accelerators({})
    assert sorted(answer) == ["devices", "files"]
    assert isinstance(answered(OtherAccelerators, answer), OtherAccelerators | Absent)


def test_every_vendor_can_be_found() -> None:
    for vendor in accelerator_vendors().values():
        assert vendor.files and (vendor.classes or vendor.devices), vendor
        assert all(len(number) == 4 for number in (vendor.id, *vendor.classes, *vendor.devices)), vendor


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"devices": [["a"]], "files": []}', "null"])
def test_what_is_no_answer(text: str) -> None:
    assert isinstance(read_outputs(OtherAccelerators, one=Output(out=text)), Unreadable)


@pytest.mark.parametrize(("vendor", "name"), [("1d22", "Kunlunxin (Baidu)"), ("1e30", "Sophgo"), ("1da3", "Habana")])
def test_a_processing_accelerator_that_the_table_does_not_list_has_its_vendors_name(vendor: str, name: str) -> None:
    rows = [["0000:81:00.0", vendor, "fff0", "1200", "x"], ["0000:82:00.0", "8086", "fff0", "1200", "idxd"]]
    (device,) = answered(OtherAccelerators, {"devices": rows, "files": []}).devices
    assert (device.slot, device.pci_id) == ("0000:81:00.0", f"{vendor}:fff0") and device.vendor.startswith(name)


def test_a_display_controller_of_intel_that_the_table_does_not_list_is_an_accelerator() -> None:
    """A GPU of the class 0380 with a new number, as 8086:0bdc; a camera of that number on the USB is no PCI device."""
    rows = [["0000:29:00.0", "8086", "0bdc", "0380", "xe"], ["0000:00:02.0", "8086", "0bdc", "0380", "i915"]]
    value = answered(OtherAccelerators, {"devices": rows, "files": ["dri/renderD128"]})
    assert [(device.slot, device.vendor, device.pci_id) for device in value.devices] == [
        ("0000:29:00.0", "Intel", "8086:0bdc")
    ]
