"""Ethernet cards as ethtool shows them: the module's light, temperature and limits, and the counters of the link."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.facts.reported_value import OpticalReading, ToolBlock, lacked_reasons, quantities, tool_blocks

_BLOCK = r"(?!exit )\S{1,64}(?: [\w.-]{1,64})?"
MOST = 64
_CARDS = """for path in /sys/class/net/*/device; do
  net=${path%/device}; name=${net##*/}
  [ -e "$path/physfn" ] && continue
  [ "$(cat "$net/carrier" 2>/dev/null)" = 1 ] || continue
"""
"""Physical cards with a link; a virtual function shows its card's module and counters."""
_VIRTUAL = "virtual"
CALL_SECONDS = 10
"""Until ``timeout`` in the scripts ends ethtool."""
_MODULES = (
    f'grep -qw hypervisor /proc/cpuinfo 2>/dev/null && echo "-- {_VIRTUAL} --" && echo "-- exit 0 --"\n'
    + _CARDS
    + """  speed=$(cat "$net/speed" 2>/dev/null); [ "${speed:-0}" -ge 10000 ] 2>/dev/null || continue
  adapter=; for rdma in "$path"/infiniband/*; do [ -e "$rdma" ] && adapter=" ${rdma##*/}"; done
  echo "-- $name$adapter --"
  echo "Speed : $speed"
  timeout 10 ethtool --show-fec "$name" </dev/null 2>/dev/null | grep '^Active FEC'
  timeout 10 ethtool -m "$name" </dev/null 2>&1
  echo "-- exit $? --"
done"""
)
NO_MODULE = re.compile(
    r"^(?:Cannot get [Mm]odule EEPROM (?:information|data)|netlink error): "
    r"(?:Operation not supported|Invalid argument|No such device)\s*$",
    re.M,
)
"""What ethtool prints where the card has no cage, an empty one, or a driver that cannot read it."""
_OF_THE_HOST = re.compile(r"^(?:Cannot get module EEPROM information|netlink error): Input/output error\s*$", re.M)
"""In a virtual machine, of a card whose module is its host's (mlx5e_get_module_info, where the register is refused)."""
_NOT_PERMITTED = "Operation not permitted"
_ROW = re.compile(r"([A-Z][\w/()., ]{2,60}?)[ \t]*: (.{0,120})")
_MEASURED = re.compile(
    r"(?:(-?[\d.]{1,12}) (V|mA|degrees C)(?: / .{0,40})?|[\d.]{1,12} mW / (-?[\d.]{1,12}|-inf) dBm)", re.ASCII
)
_TECHNOLOGY = ("Transceiver type", "Transmitter technology")
_DARK = -40.0
"""dBm; the least that a module can say, 0.1 µW. ethtool prints ``-inf`` for 0."""
_CHANNEL = re.compile(r"(.{3,50}?) ?\(Chan(?:nel)? (\d{1,2})\)", re.ASCII)
_SINGLE = 0
"""The number of the lane of a module that has one."""


class Quantity(NamedTuple):
    """What a module measures, by the names of ethtool's rows."""

    name: str
    rows: tuple[str, ...]
    limits: str
    unit: str
    laser: bool
    """Of a lane that the card drives; none where its laser has no current and that of another lane has."""


QUANTITIES = (
    Quantity("temperature", ("Module temperature",), "Module temperature", "C", False),
    Quantity("voltage", ("Module voltage",), "Module voltage", "V", False),
    Quantity("bias current", ("Laser bias current", "Laser tx bias current"), "Laser bias current", "mA", True),
    Quantity("Tx power", ("Laser output power", "Transmit avg optical power"), "Laser output power", "dBm", True),
    Quantity(
        "Rx power",
        (
            "Receiver signal average optical power",
            "Receiver signal OMA",
            "Rcvr signal avg optical power",
            "Rcvr signal OMA",
        ),
        "Laser rx power",
        "dBm",
        True,
    ),
)
"""Source: sfpdiag.c, qsfp.c and sff-common.c of ethtool, which print SFF-8472, SFF-8636 and CMIS modules alike."""
_POSSIBLE_VOLTAGE = (1.0, 6.0)
"""Of a module that answers: it is fed with 3.3 V. Memory that reads as zeros or ones shows 0 V or 6.5 V."""


class EthernetModule(msgspec.Struct, frozen=True):
    """What the module of one card says; nothing where it measures nothing, as copper does."""

    adapter: str = ""
    """Its RDMA adapter, such as ``mlx5_0``."""
    alarms: dict[str, OpticalReading] = {}
    """By quantity and lane, with the module's own alarm limits."""
    warnings: dict[str, OpticalReading] = {}
    """The same values with its warning limits."""
    speed: str = ""
    """In Mbit/s."""
    technology: str = ""
    """Of the module and its cable; empty where the module does not name it."""
    product: str = ""
    """The number of the module's part."""
    fec: str = ""
    """The forward error correction that its link uses: RS, BaseR, Off; empty where the driver shows none."""


class EthernetModules(Fact, frozen=True):
    """The modules of a host's physical Ethernet cards with a link of 10 Gbit/s or more.

    Raw output, of one card; most rows left out::

        -- ens1f0 mlx5_0 --
        Speed : 100000
        Active FEC encoding: RS
                Identifier                                : 0x11 (QSFP28)
                Alarm/warning flags implemented           : Yes
                Module temperature                        : 42.17 degrees C / 107.90 degrees F
                Laser tx bias current (Channel 1)         : 6.662 mA
                Rcvr signal avg optical power(Channel 1)  : 0.7682 mW / -1.15 dBm
                Module temperature high alarm threshold   : 75.00 degrees C / 167.00 degrees F
                Module temperature low alarm threshold    : -5.00 degrees C / 23.00 degrees F
                Laser bias current high alarm threshold   : 10.500 mA
                Laser bias current low alarm threshold    : 0.000 mA
                Laser rx power high alarm threshold       : 2.1878 mW / 3.40 dBm
                Laser rx power low alarm threshold        : 0.0467 mW / -13.31 dBm
        -- exit 0 --
    """

    probe = run(_MODULES, requires="ethtool", root=True, timeout=60, limit=1 << 19)

    by_interface: dict[str, EthernetModule]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> EthernetModules:
        blocks = tool_blocks(answer.text(), _BLOCK)
        by_interface, unread = dict[str, EthernetModule](), dict[str, str]()
        is_virtual = any(block.name == _VIRTUAL for block in blocks)
        for block in blocks[:MOST]:
            name, _, adapter = block.name.partition(" ")
            refused = NO_MODULE.search(block.text) or (is_virtual and _OF_THE_HOST.search(block.text))
            if name == _VIRTUAL or (refused and "Identifier" not in block.text):
                continue
            try:
                by_interface[name] = _module(block, adapter)
            except ValueError as why:
                unread[name] = str(why)
        modules = {name: module for name, module in by_interface.items() if module.product}
        lacked = lacked_reasons({name: (module.product, quantities(module.alarms)) for name, module in modules.items()})
        unread |= {name: f"ethtool -m: {why}" for name, why in lacked.items()}
        if not by_interface and not unread:
            raise Absent("no network card of 10 Gbit/s with a link has a module that its driver shows")
        if not by_interface:
            raise Unreadable.of_each(unread)
        return cls(by_interface=by_interface, unread=unread)


def _module(block: ToolBlock, adapter: str) -> EthernetModule:
    """Raises: ValueError where the tool failed, or what it printed cannot be."""
    if failure := _failure(block, "ethtool -m"):
        raise ValueError(failure)
    matches = (_ROW.fullmatch(line.strip()) for line in block.text.splitlines())
    rows = {match[1].rstrip(): match[2].strip() for match in matches if match}
    speed, fec = rows.pop("Speed", ""), rows.pop("Active FEC encoding", "")
    if rows.get("Identifier", "").startswith(("0xff", "0x00")) or "Identifier" not in rows:
        raise ValueError(
            filled(
                "ethtool -m: the module's memory cannot be read: identifier {0}",
                strip_control_chars(rows.get("Identifier", ""), 40),
            )
        )
    lanes = _lanes(rows)
    volts = lanes.get("voltage", {}).get(_SINGLE)
    if volts is not None and not _POSSIBLE_VOLTAGE[0] <= volts <= _POSSIBLE_VOLTAGE[1]:
        raise ValueError(filled("ethtool -m: the module's values cannot be right: {0} V", volts))
    currents = lanes.get("bias current", {})
    unlit = {lane for lane, current in currents.items() if current == 0} if any(currents.values()) else set[int]()
    read = {"alarm": dict[str, OpticalReading](), "warning": dict[str, OpticalReading]()}
    for quantity in QUANTITIES:
        values = lanes.get(quantity.name, {})
        for kind, readings in read.items():
            low, high = (_limit(rows, quantity, edge, kind) for edge in ("low", "high"))
            if low is None or high is None:
                continue
            if low > high:
                raise ValueError(
                    filled("ethtool -m: the module's values cannot be right: {0}", f"{quantity.limits} {low} > {high}")
                )
            for lane, value in values.items():
                if not (quantity.laser and lane in unlit):
                    name = f"{quantity.name} {lane}" if lane else quantity.name
                    readings[name] = OpticalReading(value, low, high, quantity.unit)
    if _is_cut(rows, lanes):
        raise ValueError(filled("{0}: its output was cut off", "ethtool -m"))
    kind = ", ".join(strip_control_chars(rows[row], 80) for row in _TECHNOLOGY if row in rows)
    product = rows.get("Vendor PN", "")
    return EthernetModule(adapter, read["alarm"], read["warning"], speed, kind, product, strip_control_chars(fec, 40))


def _is_cut(rows: Mapping[str, str], lanes: Mapping[str, object]) -> bool:
    """The identifier alone, or limits that are implemented and do not reach to the last ones, of received light."""
    has_limits = any("threshold" in row for row in rows)
    is_limited = has_limits or rows.get("Alarm/warning flags implemented") == "Yes"
    has_last = "Laser rx power low alarm threshold" in rows or (has_limits and "Rx power" not in lanes)
    return rows.keys() == {"Identifier"} or (is_limited and not has_last)


def _failure(block: ToolBlock, tool: str) -> str:
    """Why a card's block holds nothing to read; empty where it does."""
    if block.code not in (None, 0, 124) and _NOT_PERMITTED in block.text:
        return filled("only root may read the modules of network cards: log in as root, or use --sudo")
    return block.failure(tool, CALL_SECONDS)


def _lanes(rows: Mapping[str, str]) -> dict[str, dict[int, float]]:
    """What is measured, by quantity and lane. Raises: ValueError where a value is there and cannot be read."""
    quantities = {row: quantity.name for quantity in QUANTITIES for row in quantity.rows}
    lanes: dict[str, dict[int, float]] = {}
    for row, text in rows.items():
        channel = _CHANNEL.fullmatch(row)
        name = quantities.get(channel[1].rstrip() if channel else row)
        if name:
            lanes.setdefault(name, {})[int(channel[2]) if channel else _SINGLE] = _value(row, text)
    return lanes


def _limit(rows: Mapping[str, str], quantity: Quantity, edge: str, kind: str) -> float | None:
    row = f"{quantity.limits} {edge} {kind} threshold"
    return _value(row, rows[row]) if row in rows else None


def _value(row: str, text: str) -> float:
    match = _MEASURED.fullmatch(text)
    if not match:
        raise ValueError(filled("{0}: expected a value with its unit, found {1}", row, strip_control_chars(text, 60)))
    return float(match[1]) if match[1] else max(_DARK, float(match[3]))


class Counter(NamedTuple):
    """A counter that is judged, and how."""

    pattern: str
    """Of its name, in ethtool -S."""
    least: int = 10
    daily: float = 1.0
    """Less a day is of no interest."""
    alone: bool = False
    """It stands still on every sound link, so that one port among few is judged as well."""
    rdma: bool = False
    """The port's RDMA adapter counts the same, and has checks of its own."""
    damage: bool = False
    """Symbols or packets that were damaged on the wire, never for lack of room."""
    share: float = 0.0
    """More of all packets of that direction are too many on any card; 0: no such limit."""


COUNTERS = (
    # mlx5: Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst
    Counter("link_down_events_phy", alone=True, rdma=True),
    Counter("rx_symbol_err_phy", rdma=True, damage=True),
    Counter("rx_pcs_symbol_err_phy", damage=True),
    Counter("rx_crc_errors_phy", damage=True, share=1e-5),
    Counter("rx_(?:jabbers|fragments)_phy|tx_pause_storm_warning_events"),
    Counter("[rt]x_discards_phy", least=1000, share=0.01),
    Counter("rx_prio[0-7]_(?:discards|buf_discard|cong_discard)", least=1000),
    Counter("[rt]x_pci_signal_integrity", least=100),
    Counter("module_(?:high_temp|bus_stuck|bad_shorted)", least=1, alone=True),
    Counter("tx_pause_storm_error_events", least=1, alone=True),
    Counter("tx_(?:global_pause|prio[0-7]_pause)_duration", daily=86_400_000.0),
    # bnxt_en: bnxt_ethtool.c, rx and tx port statistics, extended ones too
    Counter("link_down_events", alone=True),
    Counter("rx_(?:pcs_symbol_err|fec_uncorrectable_blocks|fcs_err_frames|align_err_frames|jbr_frames)", damage=True),
    Counter("rx_stat_discard|rx_discard_packets_cos[0-7]", least=1000),
    # ethtool -I --show-fec (IEEE 802.3, aFECUncorrectableBlocks): a link that comes up has a few
    Counter("fec_uncorrectable_blocks", least=1000, daily=100.0, damage=True),
    # ixgbe, igb, e1000e, i40e (port., or .nic of later ones), ice (.nic): *_ethtool.c
    Counter(r"(?:port\.)?rx_crc_errors(?:\.nic)?", damage=True, share=1e-5),
    Counter(r"(?:port\.)?(?:illegal_bytes|rx_jabber|rx_fragments|mac_[a-z]+_faults|(?:rx_)?align_errors)(?:\.nic)?"),
    # hns3: hclge_main.c, g_mac_stats_string
    Counter("mac_rx_(?:fcs_err|jabber|fragment)_pkt_num", damage=True),
    Counter("mac_tx_err_all_pkt_num"),
)
"""Errors of the wire and of the card, by the kernel's driver; of what a busy network makes it takes more of them.

``_duration`` is in microseconds: a thousandth of the time in which the card told the switch to wait. Bits that FEC has
corrected are not judged: sound links of PAM4 have them all the time, one a thousand times as many as the next.
"""
_NAME = re.compile("|".join(["[rt]x_packets(?:_phy)?", *(f"(?:{counter.pattern})" for counter in COUNTERS)]))
_COUNTERS = (
    'echo "-- uptime --"; cat /proc/uptime; echo "-- exit 0 --"\n'
    + _CARDS
    + """  adapter=; for rdma in "$path"/infiniband/*; do [ -e "$rdma" ] && adapter=" ${rdma##*/}"; done
  echo "-- $name$adapter --"
  answer=$(timeout 10 ethtool -S "$name" </dev/null 2>&1); code=$?
  [ "$code" = 0 ] && answer=$(printf '%s\\n' "$answer" | grep -E '^ *("""
    + _NAME.pattern.replace("?:", "")
    + """): ')
  blocks=$(timeout 10 ethtool -I --show-fec "$name" </dev/null 2>/dev/null | sed -n 's/^ *uncorr/     fec_uncorr/p')
  [ "$code" = 0 ] && [ "$blocks" ] && answer="$answer
$blocks"
  printf '%s\\n' "$answer"
  [ "$code" = 0 ] && echo "     counters: $(printf '%s\\n' "$answer" | grep -c :)"
  echo "-- exit $code --"
done"""
)


class EthernetCounters(Fact, frozen=True):
    """Error counters of a host's physical Ethernet cards with a link, since the host was started.

    Raw output, of one card, with the number of the rows before it::

        -- uptime --
        93842.11 712633.10
        -- exit 0 --
        -- ens1f0 mlx5_0 --
             rx_crc_errors_phy: 386
             rx_symbol_err_phy: 386
             counters: 2
        -- exit 0 --
    """

    probe = run(_COUNTERS, requires="ethtool", timeout=60, limit=1 << 18)

    uptime: float
    by_interface: dict[str, dict[str, int]]
    adapters: dict[str, str]
    """The RDMA adapter of an interface that has one."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> EthernetCounters:
        first, *blocks = tool_blocks(answer.text(), _BLOCK) or [ToolBlock("", "", None)]
        uptime = re.match(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ", first.text)
        if first.name != "uptime" or not uptime:
            raise Unreadable("/proc/uptime cannot be read")
        if first.problem:
            raise Unreadable(first.problem)
        by_interface, unread, adapters = dict[str, dict[str, int]](), dict[str, str](), dict[str, str]()
        for block in blocks[:MOST]:
            name, _, adapter = block.name.partition(" ")
            if re.search("no stats available|Operation not supported", block.text):
                continue
            if failure := _failure(block, "ethtool -S"):
                unread[name] = failure
                continue
            rows = re.findall(r"^[ \t]{0,16}(\S{1,64}): ([^\r\n]{0,80})\r?$", block.text, re.M | re.ASCII)
            if dict(rows).get("counters", str(max(0, len(rows) - 1))).strip() != str(len(rows) - 1):
                unread[name] = block._replace(code=None).failure("ethtool -S", CALL_SECONDS)
                continue
            pairs = {counter: value.strip() for counter, value in rows if _NAME.fullmatch(counter)}
            strange = [row for row in pairs.items() if judged(row[0]) and not re.fullmatch("[0-9]{1,20}", row[1])]
            if strange:
                unread[name] = "ethtool -S: " + strip_control_chars(": ".join(strange[0]), 120)
                continue
            by_interface[name] = {counter: int(value) for counter, value in pairs.items() if value.isdecimal()}
            if adapter:
                adapters[name] = adapter
        if not by_interface and not unread:
            raise Absent("no physical network card with a link and counters of its own")
        if not by_interface:
            raise Unreadable.of_each(unread)
        return cls(uptime=float(uptime[1]), by_interface=by_interface, adapters=adapters, unread=unread)


def judged(name: str) -> Counter | None:
    """How a counter of ethtool -S is judged.

    >>> judged("rx_prio3_discards").least, judged("rx_packets")
    (1000, None)
    """
    return next((counter for counter in COUNTERS if re.fullmatch(counter.pattern, name)), None)
