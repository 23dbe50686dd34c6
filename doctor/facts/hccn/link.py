"""The NPUs' network ports as links: up or down, healthy, flapping, speed, MTU, error correction."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal, get_args

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer
from doctor.facts.hccn.tool import hccn_probe, parse_each_npu, parse_with, set_values, single_field, unset_npus

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
    """Whether every NPU's network port has a link."""

    probe = hccn_probe("-link -g")

    by_npu: dict[int, State]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> DeviceLinks:
        states, unread = parse_each_npu(answer, parse_with(_parse_link))
        return cls(by_npu=set_values(states), unread=unread)


def _parse_link(text: str) -> State | None:
    return _STATES[single_field("link status", text)]


class DeviceHealth(Fact, frozen=True):
    """What every NPU thinks of its own network: the state of its pings to the detect address."""

    probe = hccn_probe("-net_health -g")

    by_npu: dict[int, Health]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> DeviceHealth:
        states, unread = parse_each_npu(answer, parse_with(_parse_health))
        return cls(by_npu=set_values(states), unread=unread)


def _parse_health(text: str) -> Health | None:
    """One of the tool's states. ``Unknown`` is its own word for not knowing, and so it is unread."""
    state_by_text: dict[str, Health] = {word: word for word in get_args(Health)}
    return state_by_text[single_field("net health status", text).replace("Socket failed", "Socket fail")]


class LinkRecord(msgspec.Struct, frozen=True):
    """The last changes of one link, by the device's own clock."""

    device_time: datetime
    changes: tuple[tuple[datetime, State], ...]
    """Newest first."""


class LinkHistory(Fact, frozen=True):
    """When every NPU's link went up and down."""

    probe = hccn_probe("-link_stat -g")

    by_npu: dict[int, LinkRecord]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> LinkHistory:
        records, unread = parse_each_npu(answer, parse_with(_parse_record))
        return cls(by_npu=set_values(records), unread=unread)


def _parse_record(text: str) -> LinkRecord:
    bare = re.sub(r"^\s*\[(?:devid|device) \d+\]", "", text, flags=re.M)
    head, header, rest = bare.partition("link change records")
    if not header:
        raise ValueError("no list of changes")
    changes = []
    for line in rest.splitlines():
        if "LINK" in line:
            when, _, state = line.partition("LINK")
            changes.append((_parse_time(when), _STATES[state.strip()]))
    return LinkRecord(_parse_time(single_field("current time", head)), tuple(changes))


def _parse_time(text: str) -> datetime:
    return datetime.strptime(text.strip(), "%a %b %d %H:%M:%S %Y")


class DeviceSpeed(Fact, frozen=True):
    """The speed of every NPU's link, in Mb/s."""

    probe = hccn_probe("-speed -g")

    by_npu: dict[int, int]
    unknown: tuple[int, ...] = ()
    """NPUs that know no speed: their link is down."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> DeviceSpeed:
        speeds, unread = parse_each_npu(answer, parse_with(_parse_speed, "Speed: Unknown!"))
        return cls(by_npu=set_values(speeds), unknown=unset_npus(speeds), unread=unread)


def _parse_speed(text: str) -> int:
    return int(single_field("Speed", text).removesuffix("Mb/s"))


class DeviceMtu(Fact, frozen=True):
    """The MTU of every NPU's network port, in bytes."""

    probe = hccn_probe("-mtu -g")

    by_npu: dict[int, int]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> DeviceMtu:
        mtus, unread = parse_each_npu(answer, parse_with(lambda text: int(single_field("mtu", text))))
        return cls(by_npu=set_values(mtus), unread=unread)


class DeviceFec(Fact, frozen=True):
    """The forward error correction of every NPU's link: ``rs``, ``no``, or another mode's name."""

    probe = hccn_probe("-fec -g")

    by_npu: dict[int, str]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> DeviceFec:
        modes, unread = parse_each_npu(answer, parse_with(_parse_fec))
        return cls(by_npu=set_values(modes), unread=unread)


def _parse_fec(text: str) -> str:
    mode, suffix, rest = single_field("fec mode", text).partition(" FEC mode")
    if not re.fullmatch(r"[a-z][a-z0-9 _-]{0,20}", mode) or not suffix or rest:
        raise ValueError("no mode")
    return mode
