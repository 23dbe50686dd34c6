"""What network-errors-many finds, of what ethtool -S prints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checks.run_check import run_check
from tests.facts import ethernet_transcripts as printed
from tests.facts.test_ethernet_links import counters

QUIET = "".join(
    f"     {name}: 0\n"
    for name in (
        *("rx_crc_errors_phy", "rx_symbol_err_phy", "rx_pcs_symbol_err_phy", "rx_discards_phy", "rx_prio3_discards"),
        *("link_down_events_phy", "tx_global_pause_duration", "tx_pause_storm_error_events", "rx_crc_errors"),
        *("port.rx_crc_errors", "rx_crc_errors.nic", "mac_rx_fcs_err_pkt_num", "rx_fcs_err_frames", "module_high_temp"),
    )
)


def observed(fleet: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    findings = run_check("network-errors-many", fleet).findings
    return [
        (" ".join(finding.hosts), finding.values["interface"], list(finding.values["observed"])) for finding in findings
    ]


def fleet(sick: str, uptime: float = 86400.0 * 30) -> dict[str, Any]:
    return {f"w{n}": [counters(QUIET, QUIET)] for n in range(4)} | {"bad": [counters(QUIET, sick, uptime=uptime)]}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (printed.MLX5_SICK, ["rx_crc_errors_phy", "rx_symbol_err_phy"]),
        (printed.MLX5_SMALL, ["rx_crc_errors_phy", "rx_pcs_symbol_err_phy", "rx_symbol_err_phy"]),
        # 62469044882: QSFP28-LR4 in a router, all four lanes
        (
            "     rx_crc_errors_phy: 13147323\n     rx_symbol_err_phy: 13115284\n     rx_err_lane_0_phy: 13115284\n",
            ["rx_crc_errors_phy", "rx_symbol_err_phy"],
        ),
        (printed.I40E_SICK, ["port.rx_crc_errors", "rx_crc_errors"]),
        (printed.MLX5_DISCARDS, ["rx_prio3_discards"]),
        ("     mac_rx_fcs_err_pkt_num: 4000\n", ["mac_rx_fcs_err_pkt_num"]),
        ("     rx_fcs_err_frames: 90000\n", ["rx_fcs_err_frames"]),
    ],
)
def test_a_sick_card_among_sound_ones(text: str, names: list[str]) -> None:
    assert observed(fleet(text)) == [("bad", "eth1", names)]


def test_a_host_that_makes_the_switch_wait() -> None:
    """556 s of pauses: more than a thousandth of a day, less than that of a month."""
    assert observed(fleet(printed.MLX5_PAUSES, uptime=86400.0)) == [("bad", "eth1", ["tx_global_pause_duration"])]
    assert observed(fleet(printed.MLX5_PAUSES)) == []


@pytest.mark.parametrize("text", [printed.I40E_HEALTHY, printed.R8169, printed.VIRTIO, QUIET])
def test_sound_cards(text: str) -> None:
    assert observed(fleet(text)) == []
    assert observed({"w1": [counters(text)]}) == []


def test_cards_alike_are_no_finding() -> None:
    assert observed({f"w{n}": [counters(printed.MLX5_SICK)] for n in range(4)}) == []


BUSY = printed.MLX5_SMALL.replace("rx_packets_phy: 15005729", "rx_packets_phy: 15005729000")
"""One of 39 million packets has a wrong checksum."""


def test_few_cards_are_judged_by_what_stands_still_on_each_sound_link() -> None:
    assert observed({"w1": [counters(BUSY)]}) == []
    flapping = BUSY.replace("link_down_events_phy: 0", "link_down_events_phy: 412")
    assert observed({"w1": [counters(flapping)]}) == [("w1", "eth0", ["link_down_events_phy"])]
    storm = BUSY.replace("storm_error_events: 0", "storm_error_events: 2")
    assert observed({"w1": [counters(storm, uptime=3600)]}) == [("w1", "eth0", ["tx_pause_storm_error_events"])]
    assert observed({"w1": [counters(storm, uptime=400 * 86400.0)]}) == []


def test_millions_of_damaged_packets_are_found_on_one_card_alone() -> None:
    text = printed.MLX5_SICK + "     rx_discards_phy: 9999999\n"
    assert observed({"w1": [counters(text)]}) == [("w1", "eth0", ["rx_crc_errors_phy", "rx_symbol_err_phy"])]
    assert observed({"w1": [counters(text, uptime=4000 * 86400.0)]}) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (printed.MLX5_SMALL, ["rx_crc_errors_phy"]),
        (BUSY, []),
        (printed.MLX5_SMALL.replace("errors_phy: 386", "errors_phy: 99").replace("15005729", "9000"), []),
        ("     rx_packets_phy: 1000000\n     rx_discards_phy: 10001\n", ["rx_discards_phy"]),
        ("     rx_packets_phy: 1000000\n     rx_discards_phy: 9999\n", []),
        ("     rx_packets_phy: 1000000\n     tx_packets_phy: 9999999\n     tx_discards_phy: 99999\n", []),
        ("     rx_packets: 5000\n     port.rx_crc_errors: 100\n", ["port.rx_crc_errors"]),
        ("     rx_packets_phy: 0\n     rx_crc_errors_phy: 5000\n", []),
        ("     rx_crc_errors_phy: 5000\n     rx_discards_phy: 5000\n", []),
    ],
)
def test_a_share_of_all_packets_is_too_much_on_one_card_alone(text: str, names: list[str]) -> None:
    assert observed({"w1": [counters(text)]}) == [("w1", "eth0", [name]) for name in names]


def test_what_the_rdma_adapter_counts_as_well_is_not_said_twice() -> None:
    flapping = BUSY.replace("link_down_events_phy: 0", "link_down_events_phy: 412")
    assert observed({"w1": [counters(flapping, adapter=" mlx5_0")]}) == []


def test_a_host_that_was_started_today_is_not_taken_for_one_with_a_high_rate() -> None:
    others = {f"w{n}": [counters(QUIET.replace("errors_phy: 0", "errors_phy: 900"))] for n in range(4)}
    new = counters(QUIET.replace("errors_phy: 0", "errors_phy: 40"), uptime=600.0)
    assert observed(others | {"new": [new]}) == []


def test_a_host_that_invents_cards_decides_nothing_about_others() -> None:
    """After a restart of the switches all cards have counted; one host says that it has sixty that have not."""
    downs = "     link_down_events: 900\n"
    others = {f"w{n}": [counters(downs, downs)] for n in range(4)}
    assert observed(others | {"liar": [counters(*["     link_down_events: 0\n"] * 60)]}) == []
    assert {
        host for host, *_ in observed(others | {"liar": [counters(*["     link_down_events: 900000\n"] * 60)]})
    } == {"liar"}


@pytest.mark.parametrize("value", ["9" * 20, "0", "18446744073709551615"])
def test_any_number_is_a_number(value: str) -> None:
    assert isinstance(observed(fleet(f"     rx_crc_errors: {value}\n")), list)
