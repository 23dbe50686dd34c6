"""What hccs-unhealthy finds."""

from __future__ import annotations

import pytest

from doctor.facts.npu import NpuProduct
from doctor.facts.npu_fabric import HCCS_COUNTERS, NpuHccs
from tests.checks.run_check import fleet, messages, run_check

ERRORS, RETRIES = HCCS_COUNTERS


def links(*lanes: tuple[int, ...], odd: dict[int, tuple[int, ...]] | None = None) -> NpuHccs:
    """One chip a card, with the lanes of each of its links."""
    counts = {f"{n}-0": (odd or {}).get(n, own) for n, own in enumerate(lanes)}
    return NpuHccs(health=dict.fromkeys(counts, "OK"), lanes=counts)


def look(*hosts: NpuHccs) -> list[tuple[str, str]]:
    return messages(run_check("hccs-unhealthy", {f"w{n}": [own] for n, own in enumerate(hosts, 1)}))


def test_the_state_of_the_links() -> None:
    assert look(NpuHccs(health={"0-0": "OK"}, counts={ERRORS: {"0-0": (3,)}})) == []
    ill = NpuHccs(health={"0-0": "OK", "3-1": "NOK"}, counts={ERRORS: {"3-1": (3, 4)}})
    (finding,) = run_check("hccs-unhealthy", {"w1": [ill]}).findings
    assert str(finding) == "the HCCS links of NPU card 3 chip 1 report NOK; expected OK"
    assert finding.values["errors"] == 7
    (finding,) = run_check(
        "hccs-unhealthy", {"w1": [NpuHccs(health={"0-0": "OK"}, first_error_lane={"0-0": "2"})]}
    ).findings
    assert finding.is_warning and finding.values["observed"] == "2"


FULL = links(*[(4, 4, 4)] * 8)
REDUCED = "HCCS link 1 of NPU card {0} chip 0 uses 2 lanes; expected 4"


def test_a_link_with_fewer_lanes_than_the_same_link_of_most_chips() -> None:
    one = links(*[(4, 4, 4)] * 8, odd={3: (4, 2, 4)})
    assert look(one) == [("w1", REDUCED.format(3))]
    assert look(FULL, one) == [("w2", REDUCED.format(3))]
    assert look(links((4, 4), (4, 2))) == [("w1", REDUCED.format(1))]


def test_a_host_all_of_whose_chips_lost_the_same_lanes() -> None:
    ill = links(*[(4, 2, 4)] * 8)
    assert look(FULL, FULL, ill) == [("w3", REDUCED.format(chip)) for chip in range(8)]
    assert look(FULL, ill) == []  # which of two is right cannot be told


@pytest.mark.parametrize(
    "own",
    [
        links(*[(2, 4, 0)] * 8),
        links((2, 4)),
        links((4, 0), (4, 4)),  # a link that half of the chips do not use
        NpuHccs(health={"0-0": "OK"}),
    ],
)
def test_links_that_all_chips_have_alike_are_a_design(own: NpuHccs) -> None:
    assert look(own) == []
    assert look(own, own, own) == []


def test_hosts_of_another_design_are_not_compared() -> None:
    small = links(*[(2, 2, 2)] * 2)
    assert look(FULL, FULL, small) == []
    products = [NpuProduct(family=family, evidence="") for family in ("A2", "A3")]
    hosts = {**fleet(3, FULL, products[0]), "w4": [links(*[(2, 4, 4)] * 8), products[1]]}
    assert messages(run_check("hccs-unhealthy", hosts)) == []


def counted(counter: str, *of_links: int, chips: int = 8, **odd: tuple[int, ...]) -> NpuHccs:
    """Chips whose links have all counted the same, but for those of the cards ``card3``."""
    counts = {f"{n}-0": odd.get(f"card{n}", of_links) for n in range(chips)}
    return NpuHccs(health=dict.fromkeys(counts, "OK"), counts={counter: counts})


@pytest.mark.parametrize("counter", HCCS_COUNTERS)
def test_a_link_with_many_damaged_packets_beside_links_with_few(counter: str) -> None:
    sound, ill = counted(counter, 0, 2, 0), counted(counter, 0, 2, 0, card3=(0, 2, 4100))
    text = f"HCCS link 2 of NPU card 3 chip 0: {counter} 4100; the median of {{0}} links is 0"
    assert look(ill) == [("w1", text.format(24))]
    assert look(sound, ill, sound) == [("w2", text.format(72))]
    (finding,) = run_check("hccs-unhealthy", {"w1": [ill]}).findings
    assert finding.is_warning


def test_a_host_all_of_whose_links_count_is_named_beside_others() -> None:
    ill = counted(ERRORS, 900, 900, chips=2)
    assert {host for host, _ in look(counted(ERRORS, 0, 0), ill, counted(ERRORS, 0, 1))} == {"w2"}


@pytest.mark.parametrize(
    "hosts",
    [
        (counted(ERRORS, 4100, 3900, 4000),) * 2,  # alike on all: a design, or a counter of this driver
        (counted(RETRIES, 40, 40, card3=(40, 399)),),
        (counted(ERRORS, 0, 0, card3=(0, 99)),),
        (counted(ERRORS, 4100, chips=1),),  # nothing to compare with
    ],
)
def test_links_that_count_alike_or_little(hosts: tuple[NpuHccs, ...]) -> None:
    assert look(*hosts) == []
