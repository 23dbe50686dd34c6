"""What nvlink-down finds."""

from __future__ import annotations

import pytest

from doctor.engine.fact import Output
from doctor.facts.gpu import Gpu, GpuInventory
from doctor.facts.nvlink import NvLinks
from tests.checks.gpu_hosts import cards
from tests.checks.run_check import fleet, messages, run_check
from tests.facts.answers import read_outputs

FULL = NvLinks(active=dict.fromkeys(range(4), 18), inactive={})
ILL = NvLinks(active={0: 18, 1: 16, 2: 18, 3: 18}, inactive={1: (4, 5)})


def test_all_links() -> None:
    assert messages(run_check("nvlink-down", fleet(3, FULL, cards()))) == []


def test_the_gpus_of_one_host_are_compared_behind_switches() -> None:
    assert messages(run_check("nvlink-down", {"w1": [ILL, cards()]})) == [
        ("w1", "GPU 1 has 16 active NVLinks; its peers have 18")
    ]


def test_a_bridge_that_joins_only_some_gpus_is_no_fault() -> None:
    bridged = NvLinks(active={0: 12, 1: 12, 2: 0, 3: 0}, inactive={2: (0, 1), 3: (0, 1)})
    assert messages(run_check("nvlink-down", fleet(3, bridged, cards(switches=0)))) == []
    assert messages(run_check("nvlink-down", fleet(1, bridged, cards(switches=0)))) == []


def test_all_links_of_all_gpus_of_a_host_that_its_peers_have() -> None:
    sxm = NvLinks(dict.fromkeys(range(2), 12), {}, dict.fromkeys(range(2), "NVIDIA A100-SXM4-80GB"))
    down = NvLinks({0: 0, 1: 0}, {}, sxm.products)
    hosts = {**fleet(3, sxm, cards(switches=0)), "w4": [down, cards(switches=0)]}
    assert messages(run_check("nvlink-down", hosts)) == [
        ("w4", "GPU 0 has 0 active NVLinks; its peers have 12"),
        ("w4", "GPU 1 has 0 active NVLinks; its peers have 12"),
    ]


def test_a_product_for_pcie_is_not_compared_with_one_on_a_baseboard() -> None:
    sxm = NvLinks({0: 12}, {}, {0: "NVIDIA A100-SXM4-80GB"})
    pcie = NvLinks({0: 0}, {}, {0: "NVIDIA A100 80GB PCIe"})
    hosts = {**fleet(3, sxm, cards(switches=0)), "w4": [pcie, cards(switches=0)]}
    assert messages(run_check("nvlink-down", hosts)) == []


def test_other_hosts_are_the_norm_without_switches() -> None:
    hosts = {**fleet(3, FULL, cards(switches=0)), "w4": [ILL, cards(switches=0)]}
    assert messages(run_check("nvlink-down", hosts)) == [("w4", "GPU 1 has 16 active NVLinks; its peers have 18")]


V100 = dict.fromkeys(range(8), "Tesla V100-SXM2-32GB")


def test_a_gpu_of_a_baseboard_without_any_link_is_found_among_three() -> None:
    def three(product: str) -> NvLinks:
        return NvLinks({0: 6, 1: 6, 2: 0}, {2: (0, 1)}, dict.fromkeys(range(3), product))

    found = [
        messages(run_check("nvlink-down", {"w1": [three(product), cards(switches=0)]}))
        for product in ("Tesla V100-SXM2-32GB", "NVIDIA A100 80GB PCIe")
    ]
    assert found == [[("w1", "GPU 2 has 0 active NVLinks; its peers have 6")], []]


def v100(*active: int) -> NvLinks:
    return NvLinks(dict(enumerate(active)), {gpu: (0,) for gpu, count in enumerate(active) if count < 6}, V100)


def test_a_whole_baseboard_has_all_links() -> None:
    """As a virtual machine with eight GPUs shows no NVSwitch; parts of a board that it was given may lack links."""
    assert messages(run_check("nvlink-down", {"w1": [v100(6, 6, 6, 5, 6, 6, 6, 5), cards(switches=0)]})) == [
        ("w1", "GPU 3 has 5 active NVLinks; its peers have 6"),
        ("w1", "GPU 7 has 5 active NVLinks; its peers have 6"),
    ]
    assert messages(run_check("nvlink-down", {"w1": [v100(4, 4, 3, 3), cards(switches=0)]})) == []


def test_the_neighbours_of_a_gpu_that_is_gone_are_not_accused() -> None:
    """samples/nvlink.bad.out of Azure/azhpc-diagnostics 85439697: GPU 7 is gone, to which the six missing links led."""
    gone = v100(6, 6, 6, 4, 5, 4, 5)
    assert messages(run_check("nvlink-down", {"w1": [gone, cards(switches=0)]})) == []
    hosts = {**fleet(3, v100(*[6] * 8), cards(switches=0)), "w4": [gone, cards(switches=0)]}
    assert messages(run_check("nvlink-down", hosts)) == []
    hosts["w4"] = [v100(6, 6, 6, 4, 5, 4, 5, 6), cards(switches=0)]
    assert len(messages(run_check("nvlink-down", hosts))) == 4


def test_baseboards_whose_products_are_not_called_sxm() -> None:
    """leptonai/gpud issue 1085: eight B200, whose NVSwitches are no PCI devices of NVIDIA."""
    for product, count in (("NVIDIA B200", 8), ("NVIDIA H100 80GB HBM3", 8), ("NVIDIA H200", 8), ("NVIDIA GB200", 4)):
        links = NvLinks({gpu: 0 if gpu == 2 else 18 for gpu in range(count)}, {}, dict.fromkeys(range(count), product))
        assert messages(run_check("nvlink-down", {"w1": [links, cards(switches=0)]})) == [
            ("w1", "GPU 2 has 0 active NVLinks; its peers have 18")
        ], product


def test_cards_with_bridges_and_gpus_in_mig_mode_are_innocent() -> None:
    """Four of eight H200 NVL may have a bridge, and the others none."""
    for product in ("NVIDIA H200 NVL", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"):
        links = NvLinks({gpu: 18 * (gpu < 4) for gpu in range(8)}, {}, dict.fromkeys(range(8), product))
        assert messages(run_check("nvlink-down", {"w1": [links, cards(switches=0)]})) == [], product
    links = NvLinks({gpu: 18 * (gpu != 5) for gpu in range(8)}, {}, dict.fromkeys(range(8), "NVIDIA H200"))
    divided = GpuInventory(
        tuple(Gpu(n, "NVIDIA H200", "", "590.1", None, 0, mig="Enabled" if n == 5 else "") for n in range(8))
    )
    assert messages(run_check("nvlink-down", {"w1": [links, cards(switches=0), divided]})) == []


@pytest.mark.parametrize(
    ("lines", "down", "unknown"),
    [
        (["NVML: Unable to retrieve NVLink information as all links are inActive"], [(2, 0), (5, 17)], ""),
        ([], [(5, 17)], "GPU 2: 0 of 18 NVLinks are listed"),
        (
            [*(f"\t Link {link}: 53.125 GB/s" for link in range(11)), "\t Link 11: <inac"],
            [(5, 17)],
            "GPU 2: Link 11: <in",
        ),
        ([f"\t Link {link}: <inactive>" for link in range(11)], [(5, 17)], "GPU 2: 11 of 18 NVLinks are listed"),
    ],
)
def test_a_gpu_is_down_or_unknown_and_not_both(lines: list[str], down: list[tuple[int, int]], unknown: str) -> None:
    """Of eight B200 of one baseboard; the others are compared as before."""
    full = [f"\t Link {link}: 53.125 GB/s" for link in range(18)]
    answers = {gpu: {2: lines, 5: [*full[:17], "\t Link 17: <inactive>"]}.get(gpu, full) for gpu in range(8)}
    text = "".join(
        f"GPU {gpu}: NVIDIA B200 (UUID: GPU-{gpu})\n" + "".join(f"{line}\n" for line in answer)
        for gpu, answer in answers.items()
    )
    links = read_outputs(NvLinks, one=Output(out=text))
    outcome = run_check("nvlink-down", {"w1": [links, cards(switches=0)]})
    assert [(finding.values["gpu"], finding.values["observed"]) for finding in outcome.findings] == down
    assert unknown in str(outcome.unknown) and bool(outcome.unknown) == bool(unknown)


def test_a_link_at_half_of_the_rate() -> None:
    """25.781 GB/s are a Tesla V100's; one GPU of a product is no fleet, and another product has another rate."""

    def host(*rates: str, product: str = "Tesla V100-SXM2-32GB") -> NvLinks:
        rows = "".join(
            f"GPU {n}: {product} (UUID: GPU-{n})\n\t Link 0: 25.781 GB/s\n\t Link 1: {rate} GB/s\n"
            for n, rate in enumerate(rates)
        )
        return read_outputs(NvLinks, one=Output(out=rows))

    full, half = host(*["25.781"] * 8), host(*["25.781"] * 5, "12.890", *["25.781"] * 2)
    text = "an NVLink of GPU 5 runs at 12.89 GB/s; those of {0} of {1} GPUs at 25.781 GB/s"
    assert messages(run_check("nvlink-down", {"w1": [half, cards()]})) == [("w1", text.format(7, 8))]
    hosts = {**fleet(2, full, cards()), "w3": [half, cards()]}
    assert messages(run_check("nvlink-down", hosts)) == [("w3", text.format(23, 24))]
    other = host(*["12.890"] * 2, product="NVIDIA RTX A6000")
    assert messages(run_check("nvlink-down", {**fleet(2, full, cards()), "w3": [other, cards(switches=0)]})) == []
