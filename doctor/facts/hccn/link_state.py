"""The NPUs' network ports as links: up or down, healthy, flapping, speed, MTU, error correction; UB ports."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal, get_args

import msgspec

from doctor.engine.fact import Absent, Fact
from doctor.facts.hccn.tool import hccn_probe, per_npu, per_npu_probe, single_field

State = Literal["UP", "DOWN"]
_STATES: dict[str, State] = {"UP": "UP", "DOWN": "DOWN"}

Health = Literal[
    "Success",
    "Init",
    "Socket fail",
    "Receive timeout",
    "Unreachable",
    "Time exceeded",
    "Fault",
    "Thread error",
    "Detect ip set",
]


class DeviceLinks(Fact, frozen=True):
    """Whether every NPU's network port has a link.

    Raw output, for NPU 0::

        link status: UP
    """

    probe = hccn_probe("-link -g")

    by_npu: dict[int, State]

    read = per_npu(lambda text: _STATES[single_field("link status", text)])


def _parse_health(text: str) -> Health | None:
    """One of the tool's states. ``Unknown`` is its own word for not knowing, and so it is unread."""
    state_by_text: dict[str, Health] = {word: word for word in get_args(Health)}
    return state_by_text[single_field("net health status", text).replace("Socket failed", "Socket fail")]


class DeviceHealth(Fact, frozen=True):
    """What every NPU thinks of its own network: the state of its pings to the detect address.

    Raw output, for NPU 0::

        net health status: Success
    """

    probe = hccn_probe("-net_health -g")

    by_npu: dict[int, Health]

    read = per_npu(_parse_health)


class LinkRecord(msgspec.Struct, frozen=True):
    """The last changes of one link, by the device's own clock."""

    device_time: datetime
    changes: tuple[tuple[datetime, State], ...]
    """Newest first."""


def _parse_record(text: str) -> LinkRecord:
    bare = re.sub(r"(?m)^[ \t]*\[(?:devid|device) \d+\]", "", text)
    head, header, rest = bare.partition("link change records")
    if not header or header in rest:
        raise ValueError("no list of changes, or several")
    changes = []
    for line in rest.splitlines():
        if "LINK" in line:
            when, _, state = line.partition("LINK")
            changes.append((_parse_time(when), _STATES[state.strip()]))
        elif re.match(r"\s*[A-Z][a-z]{2} [A-Z][a-z]{2} ", line):
            raise ValueError(line)
    ups = sum(state == "UP" for _, state in changes)
    counted = re.search(r"(?m)^[ \t]*link up count[ \t]*:[ \t]*([0-9]{1,9})[ \t\r]*$", head)
    if counted and len(changes) < LISTED_CHANGES and ups < int(counted[1]):
        raise ValueError("fewer changes than it counts")
    return LinkRecord(_parse_time(single_field("current time", head)), tuple(changes))


LISTED_CHANGES = 5
"""The tool lists at least so many of the last changes."""


class LinkHistory(Fact, frozen=True):
    """When every NPU's link went up and down.

    Raw output, for NPU 0::

        [devid 0]current time        : Tue Oct 28 21:46:46 2025
        [devid 0]link up count       : 2
        [devid 0]link down count     : 1
        [devid 0]link change records :
        [devid 0]    Sun Oct  5 10:13:51 2025    LINK UP
        [devid 0]    Sun Oct  5 10:13:50 2025    LINK DOWN
        [devid 0]    Sun Oct  5 10:13:35 2025    LINK UP
    """

    probe = hccn_probe("-link_stat -g")

    by_npu: dict[int, LinkRecord]

    read = per_npu(_parse_record)


def _parse_time(text: str) -> datetime:
    return datetime.strptime(text.strip(), "%a %b %d %H:%M:%S %Y")


class DeviceSpeed(Fact, frozen=True):
    """The speed of every NPU's link, in Mb/s.

    Raw output, for NPU 0::

        Speed: 100000 Mb/s
    """

    probe = hccn_probe("-speed -g")

    by_npu: dict[int, int]
    unknown: tuple[int, ...] = ()
    """NPUs that know no speed: their link is down."""

    read = per_npu(
        lambda text: int(single_field("Speed", text).removesuffix("Mb/s")), "Speed: Unknown!", unset="unknown"
    )


class DeviceMtu(Fact, frozen=True):
    """The MTU of every NPU's network port, in bytes.

    Raw output, for NPU 0::

        mtu:1500
    """

    probe = hccn_probe("-mtu -g")

    by_npu: dict[int, int]

    read = per_npu(lambda text: int(single_field("mtu", text)))


def _parse_fec(text: str) -> str:
    mode, suffix, rest = single_field("fec mode", text).partition(" FEC mode")
    if not re.fullmatch(r"[a-z][a-z0-9 _-]{0,20}", mode) or not suffix or rest:
        raise ValueError("no mode")
    return mode


class DeviceFec(Fact, frozen=True):
    """The forward error correction of every NPU's link: ``rs``, ``no``, or another mode's name.

    Raw output, for NPU 0::

        fec mode: rs FEC mode
    """

    probe = hccn_probe("-fec -g")

    by_npu: dict[int, str]

    read = per_npu(_parse_fec)


_OTHER_FAMILY = "no NPU of the 950 family"
_SCRIPT = f"""grep -qsx 0xd806 /sys/bus/pci/devices/*/device || {{ echo '{_OTHER_FAMILY}'; exit 0; }}
ask -g -dev_info -i "$1\""""


def _parse_ports(text: str) -> dict[str, str]:
    """The link status by die and port, from the table with these columns. Raises: Absent, ValueError."""
    if _OTHER_FAMILY in text:
        raise Absent("only NPUs of the 950 family have UB ports that hccn_tool lists")
    ports: dict[str, str] = {}
    header: list[str] = []
    is_open = False  # a table has a line below its rows
    for line in text.splitlines():
        is_open = bool(header) and (is_open or line.strip().startswith("|")) and not line.strip().startswith("+")
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.strip().startswith("|") else []
        names = [cell.replace(" ", "") for cell in cells]  # of one tool's releases and documents: UDie ID, UdieID
        if "PortID" in names and "LinkStatus" in names:
            header = [name.lower() for name in names]
        elif header and len(cells) == len(header):
            row = dict(zip(header, cells, strict=True))
            name = f"{int(row.get('udieid') or 0)}/{int(row['portid'])}"
            if name in ports:
                raise ValueError("a port that is listed twice")
            ports[name] = row["linkstatus"]
        elif cells:
            header = []
    if not ports and "Interface Name" in text:
        raise Absent("the NPU has no UB port, as a single card")
    if not ports or is_open:
        raise ValueError
    return ports


class UbPorts(Fact, frozen=True):
    """The link of every UB port of each NPU (``hccn_tool -g -dev_info -i N``).

    Raw output, for each NPU, from hccn_tool (docs/en/Ascend_950_HCCN_Tool of github.com/hicann/driver)::

        +---------+---------+---------------------+-----------+-------------+------------+
        | UDie ID | Port ID | Speed Ability(Gbps) | Port Type | Link Status | Media Type |
        +---------+---------+---------------------+-----------+-------------+------------+
        | 0       | 4       | 400                 | UB        | UP          | Electrical |
        +---------+---------+---------------------+-----------+-------------+------------+
    """

    probe = per_npu_probe(_SCRIPT, root=True, stand_in="")

    by_npu: dict[int, dict[str, str]]
    """By NPU, then by die and port, ``0/4``: UP or DOWN."""
    read = per_npu(_parse_ports)
