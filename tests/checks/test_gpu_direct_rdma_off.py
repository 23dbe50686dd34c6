"""What gpu-direct-rdma-off finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import OPEN, cards, gpu, gpus, rdma
from tests.checks.run_check import messages, run_check, skipped


def test_the_module_or_the_open_driver() -> None:
    assert messages(run_check("gpu-direct-rdma-off", {"w1": [cards(), rdma()]})) == []
    assert messages(run_check("gpu-direct-rdma-off", {"w1": [cards(driver=OPEN, peermem=False), rdma()]})) == []


def test_neither() -> None:
    assert messages(run_check("gpu-direct-rdma-off", {"w1": [cards(peermem=False), rdma()]})) == [
        ("w1", "nvidia-peermem is not loaded, and the driver does not export memory as dma-buf")
    ]


def test_adapters_of_others_and_hosts_without_driver_are_left_out() -> None:
    assert skipped(run_check("gpu-direct-rdma-off", {"w1": [cards(peermem=False), rdma(type="EFA")]}))
    assert skipped(run_check("gpu-direct-rdma-off", {"w1": [cards(peermem=None), rdma()]}))
    assert skipped(run_check("gpu-direct-rdma-off", {"w1": [cards(driver="", peermem=False), rdma()]}))


def test_geforce_gpus_are_left_out() -> None:
    """A workstation's GPUs cannot do it, whatever is loaded, one of another sort counts."""
    hosts = [cards(peermem=False), rdma()]
    geforce, other = (
        gpu(index, name=name) for index, name in enumerate(("NVIDIA GeForce RTX 3090", "NVIDIA RTX A6000"))
    )
    assert skipped(run_check("gpu-direct-rdma-off", {"w1": [*hosts, gpus(geforce)]}))
    assert messages(run_check("gpu-direct-rdma-off", {"w1": [*hosts, gpus(geforce, other)]}))
