"""What npu-count-differs finds."""

from __future__ import annotations

from tests.checks.devices import fleet, inventory, of

look = of("npu_count_differs")


def test_the_minority_is_blamed_and_its_bus_is_shown() -> None:
    (finding,) = look(fleet(inventory(), inventory(range(7), pci_count=8), inventory()))
    assert finding.hosts == ("b",)
    assert str(finding) == "7 NPUs; 2 of 3 hosts have 8"
    assert (finding.values["observed"], finding.values["expected"], finding.values["on_pci_bus"]) == (7, 8, {"b": 8})
    assert finding.values["case"] == ["On the bus"]


def test_a_tie_blames_both_sides() -> None:
    (finding,) = look(fleet(inventory(), inventory(range(7))))
    assert finding.hosts == ("a", "b")
    assert finding.values["groups"] == {"7": ["b"], "8": ["a"]}
