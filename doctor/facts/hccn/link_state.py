"""The NPUs' network ports as links: up or down, healthy, flapping, speed, MTU, error correction."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal, get_args

import msgspec

from doctor.engine.fact import Fact
from doctor.facts.hccn.tool import hccn_probe, per_npu, single_field

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
