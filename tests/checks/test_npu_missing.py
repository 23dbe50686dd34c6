"""What npu-missing finds."""

from __future__ import annotations

from doctor.facts.npu import Chip, NpuChips
from tests.checks.containers import place
from tests.checks.devices import inventory, of

look = of("npu_missing")


def chips(*devices: int) -> NpuChips:
    return NpuChips(chips=tuple(Chip(n, 0, n, "Ascend 910B3") for n in devices))


def test_all_three_agree() -> None:
    assert look(inventory(), chips(*range(8))) == []
    assert look(inventory(), None) == []


def test_on_the_bus_without_a_device_file_is_the_driver() -> None:
    (finding,) = look(inventory((0, 1, 3), pci_count=4), chips(0, 1, 3))
    assert str(finding) == "NPU 2 is on the PCI bus but has no device file: the driver did not accept it"
    assert (finding.values["observed"], finding.values["expected"]) == ("3 device files", "4 device files")
    (finding,) = look(inventory((0, 1, 2), pci_count=4), chips(0, 1, 2))
    assert finding.values["npus"] == [3]
    (finding,) = look(inventory((), pci_count=8), None)
    assert finding.values["npus"] == list(range(8))


def test_a_gap_with_nothing_more_on_the_bus_is_the_card() -> None:
    (finding,) = look(inventory((0, 1, 3)), chips(0, 1, 3))
    assert str(finding) == "NPU 2 has no device file, and the PCI bus shows 3 NPUs: the card has dropped out"


def test_a_device_file_that_npu_smi_does_not_list() -> None:
    (finding,) = look(inventory(range(4)), chips(0, 1, 2))
    assert finding.values["npus"] == [3]
    assert str(finding) == "NPU 3 has a device file, but npu-smi does not list it"


def test_in_a_container_what_it_was_given_is_the_norm() -> None:
    inside = place(engine="docker")
    for devices in ((0, 1, 2, 3), (4, 5), (7,), (100,), ()):
        given_devices = tuple(device for device in devices if device < 100)
        assert look(inventory(devices, pci_count=8), chips(*given_devices), inside) == []
        assert look(inventory(devices, pci_count=8), None, inside) == []
    (finding,) = look(inventory((4, 5), pci_count=8), chips(4), inside)
    assert str(finding) == "NPU 5 was given to the container, but npu-smi does not list it"


def test_virtual_npus_are_not_counted() -> None:
    assert look(inventory((0, 1, 100), pci_count=2), chips(0, 1), None) == []


def test_cards_numbered_by_slot() -> None:
    cards = (1, 4)
    pcie = NpuChips(chips=tuple(Chip(card, 0, card, "Ascend 910A", logic=n) for n, card in enumerate(cards)))
    assert look(inventory((0, 1)), pcie, None) == []
    (finding,) = look(inventory((0, 1, 2)), pcie, None)
    assert finding.values["npus"] == [2]


def test_a_container_whose_cards_are_counted_anew() -> None:
    assert look(inventory((4, 5), pci_count=8), chips(0, 1), place(engine="docker")) == []
