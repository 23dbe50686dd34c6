"""What is at the other end of every NPU's cable, in its own words (LLDP)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from doctor.engine.fact import Fact
from doctor.engine.texts import filled
from doctor.facts.hccn.tool import hccn_probe, per_npu


class Neighbour(msgspec.Struct, frozen=True):
    """One neighbour, as it announces itself."""

    kind: Literal["switch", "npu", "unknown"]
    """npu: a fibre leads straight to another NPU."""
    mac: str = ""
    """Chassis MAC."""
    port: str = ""
    """The port that the cable ends in, by its owner's name for it."""
    name: str = ""
    address: str = ""
    """Management address; that of an NPU is its network port's own address."""


def _parse_neighbour(text: str) -> Neighbour | None:
    if not text.strip():
        return None
    # the text under each `... TLV` line
    pieces = re.split(r"(?m)^[ \t]*(\S.*) TLV[ \t\r]*$", text)
    if pieces[0].strip() or len(pieces) < 3 or "End of LLDPDU" not in pieces[1::2]:
        raise ValueError("not LLDP")
    parts = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    if pieces.count("Chassis ID") > 1:
        raise ValueError("two neighbours")
    description = parts.get("System Description", "")
    able = parts.get("System Capabilities", "")
    switch = "Routing" in description or re.search(r"Enabled capabilities:.{0,200}?\b(Bridge|Router)\b", able)
    return Neighbour(
        kind="npu" if "AscendNPU" in description else "switch" if switch else "unknown",
        mac=_entry_value("MAC", parts["Chassis ID"]).lower(),
        port=_entry_value("Ifname|MAC|Local", parts["Port ID"]),
        name=parts.get("System Name", "").strip(),
        address=_entry_value("IPv4|IPv6", parts.get("Management Address", "")),
    )


class Neighbours(Fact, frozen=True):
    """The neighbour of every NPU's network port.

    Raw output, for NPU 0::

        Chassis ID TLV
                MAC: a0:b1:c2:d3:e4:f5
        Port ID TLV
                Ifname: 400GE1/1/20:2
        Time to Live TLV
                120
        System Name TLV
                leaf-1
        End of LLDPDU TLV
    """

    probe = hccn_probe("-lldp -g")

    by_npu: dict[int, Neighbour]
    without_neighbour: tuple[int, ...] = ()
    """NPUs without an LLDP neighbour."""

    read = per_npu(_parse_neighbour, unset="without_neighbour")


def switch_port(neighbours: Mapping[str, Neighbours] | None, host: str, npu: int) -> str:
    """The switch port of an NPU in words, for a remedy; where LLDP has not named it, the command that does."""
    neighbour = neighbours[host].by_npu.get(npu) if neighbours and host in neighbours else None
    if neighbour is None or not neighbour.port:
        return filled("a switch port (`hccn_tool -i {0} -lldp -g` names it)", npu)
    return filled("port {0} of switch {1}", neighbour.port, neighbour.name or neighbour.mac)


def _entry_value(names: str, text: str) -> str:
    match = re.search(rf"(?m)^[ \t]*(?:{names})[ \t]*:[ \t]*(\S.*)$", text)
    return match[1].rstrip() if match else ""
