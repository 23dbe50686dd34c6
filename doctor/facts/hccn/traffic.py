"""The NPUs' network ports while they run: errors between two reads, lossless priorities, encryption."""

from __future__ import annotations

import re

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer
from doctor.facts.hccn.tool import hccn_probe, parse_each_npu, parse_with, per_npu, per_npu_probe, set_values

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
TRAFFIC_COUNTERS = ("roce_rx_all_pkt_num", "roce_tx_all_pkt_num")
DSCP_COUNT = 64
READ_SECONDS = 0.3
"""Between the two reads; the calls themselves take some 0.2 s on a real host."""


class PortGrowth(msgspec.Struct, frozen=True):
    """How far a port's counters grew between the two reads; counters that did not grow are left out."""

    errors: dict[str, int]
    pauses: dict[str, int]
    """Only of a port without traffic: under load a pause is normal."""


def _parse_growth(text: str) -> PortGrowth:
    """Raises: ValueError where there are no two reads of the same counters."""
    first, marker, second = text.partition(_SECOND_READ)
    before, after = _counters(first), _counters(second)
    if not marker or not before or before.keys() != after.keys():
        raise ValueError("no two reads")

    def growth(names: tuple[str, ...]) -> dict[str, int]:
        grown = {name: after[name] - before[name] for name in names if name in before}
        return {name: number for name, number in grown.items() if number > 0}

    return PortGrowth(growth(ERROR_COUNTERS), {} if growth(TRAFFIC_COUNTERS) else growth(PAUSE_COUNTERS))


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

    probe = per_npu_probe(
        f'ask -i "$1" -stat -g && sleep {READ_SECONDS} && echo "{_SECOND_READ}" && ask -i "$1" -stat -g'
    )

    by_npu: dict[int, PortGrowth]

    read = per_npu(_parse_growth)


def _counters(text: str) -> dict[str, int]:
    """Raises: ValueError where a counter that is judged has no number."""
    names = "|".join((*ERROR_COUNTERS, *PAUSE_COUNTERS, *TRAFFIC_COUNTERS))
    if strange := re.search(rf"^[ \t]*(?:{names})[ \t]*:(?![ \t]*[0-9]{{1,20}}[ \t\r]*$).{{0,60}}", text, re.M):
        raise ValueError(strange[0].strip())
    return {
        name: int(number)
        for name, number in re.findall(r"^[ \t]*(\w{1,60})[ \t]*:[ \t]*([0-9]{1,20})[ \t\r]*$", text, re.M)
    }


def _parse_pfc(text: str) -> str:
    (enabled,) = re.findall(r"(?m)^[ \t]*enabled[ \t]+((?:[01][ \t]?){8})[ \t\r]*$", text)
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


def _parse_dscp(text: str) -> str:
    """Raises: ValueError where a line is not a number and its class, or not all 64 are there."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    if [word.lower() for word in rows[0]] != ["dscp", "tc"]:
        raise ValueError("no table")
    classes = {int(dscp): int(traffic_class) for dscp, traffic_class in rows[1:]} if len(rows) > DSCP_COUNT else {}
    if sorted(classes) != list(range(DSCP_COUNT)):
        raise ValueError("not all values")
    starts = [dscp for dscp in range(DSCP_COUNT) if dscp == 0 or classes[dscp] != classes[dscp - 1]]
    ends = [*(start - 1 for start in starts[1:]), DSCP_COUNT - 1]
    return " ".join(f"{first}-{last}:{classes[first]}" for first, last in zip(starts, ends, strict=True))


class DeviceTrafficClasses(Fact, frozen=True):
    """Which traffic class every NPU's network port gives to each DSCP, as ``0-7:0 8-15:1``.

    Raw output, for NPU 0; rows like these left out::

        dscp      tc
           0       0
             ...
          63       7
    """

    probe = hccn_probe("-dscp_to_tc -g")

    by_npu: dict[int, str]

    read = per_npu(_parse_dscp)


class TlsSwitches(Fact, frozen=True):
    """Whether TLS is on, for every NPU.

    Raw output, for NPU 0::

        dev_id:0, tls switch[0](0:disable, 1:enable), tls preconfigured[1](0:non-preset, 1:preset)
        dev_id:0, [pub cert] info:
                 start_time[Wed Feb 19 03:19:21 2020 GMT]
                 end_time[Sat Feb 16 03:19:21 2030 GMT]
                 tls expiration status[0](0:normal, 1:near expiration, 2:has expired)
    """

    probe = hccn_probe("-tls -g", root=True)

    by_npu: dict[int, bool]
    expired: tuple[int, ...] = ()
    """NPUs whose certificate has expired."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> TlsSwitches:
        switches, unread = parse_each_npu(answer, _parse_answer)
        states = set_values(switches)
        return cls(
            by_npu={npu: on for npu, (on, _) in states.items()},
            expired=tuple(npu for npu, (_, expired) in states.items() if expired),
            unread=unread,
        )


def _parse_tls(text: str) -> tuple[bool, bool]:
    """Switch, and whether the certificate has expired (older drivers do not say, newer ones of each certificate)."""
    (switch,) = re.findall(r"\btls switch\[([01])\]", text)
    expiration = re.findall(r"\btls expiration status\[(\d+)\]", text)
    certificates = text.count("] info:")
    if text.count("end_time[") < certificates or 0 < len(expiration) < certificates:
        raise ValueError
    return switch == "1", "2" in expiration


_parse_answer = parse_with(_parse_tls, "No certificate found")
