"""The NPUs' network ports while they run: errors between two reads, and which priorities are lossless."""

from __future__ import annotations

import re

import msgspec

from doctor.engine.fact import Fact
from doctor.facts.hccn.tool import hccn_probe, per_npu, per_npu_probe

ERROR_COUNTERS = (
    "mac_tx_bad_pkt_num",
    "mac_rx_bad_pkt_num",
    "mac_rx_fcs_err_pkt_num",
    "roce_rx_err_pkt_num",
    "roce_tx_err_pkt_num",
    "roce_verification_err_num",
    "roce_qp_status_err_num",
)
"""Of ``hccn_tool -stat -g`` (tool_display_roce_info in github.com/hicann/driver)."""
PAUSE_COUNTERS = ("mac_tx_mac_pause_num", "mac_rx_mac_pause_num", "mac_tx_pfc_pkt_num", "mac_rx_pfc_pkt_num")

_SECOND_READ = "-- again --"
READ_SECONDS = 0.3
"""Between the two reads; the calls themselves take some 0.2 s on a real host."""


class PortGrowth(msgspec.Struct, frozen=True):
    """How far a port's counters grew between the two reads; counters that did not grow are left out."""

    errors: dict[str, int]
    pauses: dict[str, int]


def _parse_growth(text: str) -> PortGrowth:
    """Raises: ValueError where one of the two reads has no counter."""
    first, marker, second = text.partition(_SECOND_READ)
    before, after = _counters(first), _counters(second)
    if not marker or not before or not after:
        raise ValueError("no two reads")

    def growth(names: tuple[str, ...]) -> dict[str, int]:
        grown = {name: after.get(name, 0) - before[name] for name in names if name in before}
        return {name: number for name, number in grown.items() if number > 0}

    return PortGrowth(growth(ERROR_COUNTERS), growth(PAUSE_COUNTERS))


class PortCounters(Fact, frozen=True):
    """How many errors and pauses every NPU's network port counted between two reads.

    Raw output, for NPU 0::

        packet statistics:
        mac_rx_mac_pause_num:0
        mac_rx_pfc_pkt_num:12
        roce_rx_err_pkt_num:7
        -- again --
        packet statistics:
        mac_rx_mac_pause_num:0
        mac_rx_pfc_pkt_num:12
        roce_rx_err_pkt_num:9
    """

    probe = per_npu_probe(f'ask "$1" -stat -g && sleep {READ_SECONDS} && echo "{_SECOND_READ}" && ask "$1" -stat -g')

    by_npu: dict[int, PortGrowth]

    read = per_npu(_parse_growth)


def _counters(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"^\s*(\w+)\s*:\s*([0-9]{1,20})\s*$", text, re.M)}


def _parse_pfc(text: str) -> str:
    (enabled,) = re.findall(r"^\s*enabled\s+((?:[01]\s*){8})$", text, re.M)
    return "".join(enabled.split())


class DevicePfc(Fact, frozen=True):
    """Which of the eight priorities of every NPU's network port are lossless (PFC), as ``00001000``.

    Raw output, for NPU 0::

        PFC configuration:
        priority   0 1 2 3 4 5 6 7
        enabled    0 0 0 0 1 0 0 0
    """

    probe = hccn_probe("-pfc -g")

    by_npu: dict[int, str]

    read = per_npu(_parse_pfc)
