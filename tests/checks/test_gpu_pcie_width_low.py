"""What gpu-pcie-width-low finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import fleet, messages, run_check


def test_all_lanes() -> None:
    assert messages(run_check("gpu-pcie-width-low", fleet(3, gpus()))) == []


def test_half_the_lanes_of_an_h100() -> None:
    assert messages(run_check("gpu-pcie-width-low", {"w1": [gpus(gpu(2, pcie_width=8))]})) == [
        ("w1", "GPU 2 has 8 PCIe lanes; its slot has 16")
    ]


def test_the_wiring_of_cloud_instances_is_no_fault() -> None:
    """Amazon g5 and g4dn instances report 8 of 16 lanes for A10G and T4."""
    for name in ("NVIDIA A10G", "Tesla T4", "Quadro P2000"):
        assert messages(run_check("gpu-pcie-width-low", fleet(4, gpus(gpu(0, name=name, pcie_width=8))))) == []


def test_another_product_is_compared_with_the_other_hosts() -> None:
    hosts = fleet(4, gpus(gpu(0, name="NVIDIA L40S", pcie_generation_max=4)))
    hosts["w2"] = [gpus(gpu(0, name="NVIDIA L40S", pcie_width=8, pcie_generation_max=4))]
    assert messages(run_check("gpu-pcie-width-low", hosts)) == [
        ("w2", "GPU 0 has 8 lanes of generation 4; 3 of 4 hosts have 16 lanes of generation 4")
    ]


def test_a_lower_generation_than_the_siblings_have() -> None:
    own = [gpus(*(gpu(number, pcie_generation_max=3 if number == 2 else 5) for number in range(8)))]
    text = "the PCIe link of GPU 2 is of generation 3; {0} of {1} GPUs NVIDIA H100 80GB HBM3 have 5"
    assert messages(run_check("gpu-pcie-width-low", {"w1": own})) == [("w1", text.format(7, 8))]
    assert messages(run_check("gpu-pcie-width-low", {**fleet(2, gpus()), "w3": own})) == [("w3", text.format(23, 24))]
    assert messages(run_check("gpu-pcie-width-low", fleet(3, *own))) == []  # a slot of the server
