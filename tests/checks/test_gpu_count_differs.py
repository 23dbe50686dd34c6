"""What gpu-count-differs finds."""

from __future__ import annotations

from doctor.facts.gpu import GpuCards, GpuInventory
from tests.checks.devices import fleet, gpus, of

look = of("gpu_count_differs")


def test_the_odd_host_is_named() -> None:
    (finding,) = look(fleet(gpus(), gpus(), gpus(7)))
    assert (finding.hosts, finding.values["observed"], finding.values["expected"]) == (("c",), 7, 8)


def test_a_gpu_that_does_not_answer_counts() -> None:
    ill = GpuInventory(gpus=gpus(7).gpus, unread={"GPU 7": "not understood"})
    assert look(fleet(gpus(), gpus(), ill)) == []


def test_what_to_do_goes_by_the_bus() -> None:
    """Where it is not known how many the bus has, all of the fix is shown."""
    inventories = fleet(gpus(), gpus(), gpus(7))
    for on_bus, case in ((7, ["Not on the bus"]), (8, ["On the bus"]), (None, [])):
        cards = (
            None if on_bus is None else fleet(*(GpuCards(pci=count, driver="", tool=True) for count in (8, 8, on_bus)))
        )
        (finding,) = look(inventories, cards)
        assert finding.values["case"] == case
