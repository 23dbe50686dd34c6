"""The NPUs' network ports as links: up or down, healthy, flapping, speed, MTU, error correction."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal, get_args

import msgspec

from doctor.engine.fact import Answer, Fact
from doctor.facts.hccn.tool import each_npu, field, hccn, missing, there, told

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

    probe = hccn("-link -g")

    by_npu: dict[int, State]

    @classmethod
    def read(cls, answer: Answer) -> DeviceLinks:
        seen, unread = each_npu(answer, told(_link))
        return cls(by_npu=there(seen), unread=unread)


def _link(text: str) -> State | None:
    return _STATES[field("link status", text)]


class DeviceHealth(Fact, frozen=True):
    """What every NPU thinks of its own network: the state of its pings to the detect address."""

    probe = hccn("-net_health -g")

    by_npu: dict[int, Health]

    @classmethod
    def read(cls, answer: Answer) -> DeviceHealth:
        seen, unread = each_npu(answer, told(_health))
        return cls(by_npu=there(seen), unread=unread)


def _health(text: str) -> Health | None:
    """One of the tool's states. ``Unknown`` is its own word for not knowing, and so it is unread."""
    known: dict[str, Health] = {word: word for word in get_args(Health)}
    return known[field("net health status", text).replace("Socket failed", "Socket fail")]


class Record(msgspec.Struct, frozen=True):
    """The last changes of one link, by the device's own clock."""

    now: datetime
    changes: tuple[tuple[datetime, State], ...]
    """Newest first."""


class LinkHistory(Fact, frozen=True):
    """When every NPU's link went up and down."""

    probe = hccn("-link_stat -g")

    by_npu: dict[int, Record]

    @classmethod
    def read(cls, answer: Answer) -> LinkHistory:
        seen, unread = each_npu(answer, told(_record))
        return cls(by_npu=there(seen), unread=unread)


def _record(text: str) -> Record:
    bare = re.sub(r"^\s*\[(?:devid|device) \d+\]", "", text, flags=re.M)
    head, header, rest = bare.partition("link change records")
    if not header:
        raise ValueError("no list of changes")
    changes = []
    for line in rest.splitlines():
        if "LINK" in line:
            when, _, state = line.partition("LINK")
            changes.append((_time(when), _STATES[state.strip()]))
    return Record(_time(field("current time", head)), tuple(changes))


def _time(text: str) -> datetime:
    return datetime.strptime(text.strip(), "%a %b %d %H:%M:%S %Y")


class DeviceSpeed(Fact, frozen=True):
    """The speed of every NPU's link, in Mb/s."""

    probe = hccn("-speed -g")

    by_npu: dict[int, int]
    unknown: tuple[int, ...] = ()
    """NPUs that know no speed: their link is down."""

    @classmethod
    def read(cls, answer: Answer) -> DeviceSpeed:
        seen, unread = each_npu(answer, told(_speed, "Speed: Unknown!"))
        return cls(by_npu=there(seen), unknown=missing(seen), unread=unread)


def _speed(text: str) -> int:
    return int(field("Speed", text).removesuffix("Mb/s"))


class DeviceMtu(Fact, frozen=True):
    """The MTU of every NPU's network port, in bytes."""

    probe = hccn("-mtu -g")

    by_npu: dict[int, int]

    @classmethod
    def read(cls, answer: Answer) -> DeviceMtu:
        seen, unread = each_npu(answer, told(lambda text: int(field("mtu", text))))
        return cls(by_npu=there(seen), unread=unread)


class DeviceFec(Fact, frozen=True):
    """The forward error correction of every NPU's link: ``rs``, ``no``, or another mode's name."""

    probe = hccn("-fec -g")

    by_npu: dict[int, str]

    @classmethod
    def read(cls, answer: Answer) -> DeviceFec:
        seen, unread = each_npu(answer, told(_fec))
        return cls(by_npu=there(seen), unread=unread)


def _fec(text: str) -> str:
    mode, words, rest = field("fec mode", text).partition(" FEC mode")
    if not re.fullmatch(r"[a-z][a-z0-9 _-]{0,20}", mode) or not words or rest:
        raise ValueError("no mode")
    return mode
