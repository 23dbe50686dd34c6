"""What gpu-count-differs finds."""

from __future__ import annotations

from doctor.facts.gpu import GpuInventory
from tests.checks.devices import fleet, gpus, of

look = of("gpu_count_differs")


def test_the_odd_host_is_named() -> None:
    (finding,) = look(fleet(gpus(), gpus(), gpus(7)))
    assert (finding.hosts, finding.values["observed"], finding.values["expected"]) == (("c",), 7, 8)


def test_a_gpu_that_does_not_answer_counts() -> None:
    ill = GpuInventory(gpus=gpus(7).gpus, unread={"GPU 7": "not understood"})
    assert look(fleet(gpus(), gpus(), ill)) == []
