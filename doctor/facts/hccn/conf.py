"""/etc/hccn.conf: what the NPUs' network ports are set to at every start of the host."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface
from typing import TypeVar

from doctor.engine.fact import Fact, Output, ProbeAnswer, Unreadable, read
from doctor.engine.texts import filled
from doctor.facts.hccn.tool import CONF_PATH

T = TypeVar("T")
_SETTING = re.compile(r"([a-z]\w*)_(\d{1,2})\s*=\s*(\S.*|)")


def configured_interface(settings: dict[str, str]) -> IPv4Interface | None:
    """Address and netmask of one NPU; None where they are not set. Raises: ValueError."""
    address, netmask = settings.get("address", ""), settings.get("netmask", "")
    return IPv4Interface(f"{IPv4Address(address)}/{IPv4Address(netmask)}") if address and netmask else None


def configured_as(name: str) -> Callable[[dict[str, str]], IPv4Address | None]:
    """Reads the address under ``name`` of one NPU's settings: None where it is not set. Raises: ValueError."""

    def parse(settings: dict[str, str]) -> IPv4Address | None:
        address = IPv4Address(settings[name]) if settings.get(name) else None
        return None if address is None or address.is_unspecified else address

    return parse


def configured_value(settings: dict[str, str], parse: Callable[[dict[str, str]], T]) -> T:
    """What ``parse`` makes of one NPU's settings. Raises: Unreadable where DHCP gives the address, or it fails."""
    if settings.get("udhcpc_enable", "0") not in ("", "0"):
        raise Unreadable("/etc/hccn.conf leaves its address to DHCP")
    try:
        return parse(settings)
    except ValueError as error:
        raise Unreadable(filled("/etc/hccn.conf: {0}", error)) from None


def stand_in_value(output: Output, parse: Callable[[dict[str, str]], T | None]) -> T:
    """One NPU's value from its lines of the file, where hccn_tool is not there. Raises: Unreadable without one.

    The file is what the last start has set: where it holds nothing, the NPU may have a setting all the same.
    """
    matches = [_SETTING.fullmatch(line.partition("#")[0].strip()) for line in output.out.splitlines()]
    value = configured_value({match[1]: match[3] for match in matches if match}, parse)
    if value is None:
        raise Unreadable("hccn_tool is not here, and /etc/hccn.conf sets nothing for it")
    return value


class HccnConf(Fact, frozen=True):
    """The wanted settings of every NPU's network port (``address``, ``netmask``, ``gateway``, ``netdetect`` ...).

    Raw output, from ``/etc/hccn.conf``::

        address_0=29.1.0.1
        netmask_0=255.255.0.0
        netdetect_0=29.1.0.254
    """

    probe = read(CONF_PATH, root=True)

    by_npu: dict[int, dict[str, str]]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> HccnConf:
        by_npu: dict[int, dict[str, str]] = {}
        unread: dict[str, str] = {}
        if "" in answer:
            answer.text()  # sudo did not get as far as the file
        for number, line in enumerate(answer.text(CONF_PATH).splitlines(), 1):
            line = line.partition("#")[0].strip()
            setting = _SETTING.fullmatch(line)
            if setting:
                kept = by_npu.setdefault(int(setting[2]), {})
                if kept.setdefault(sys.intern(setting[1]), setting[3]) != setting[3]:
                    unread[filled("{0} line {1}", CONF_PATH, number)] = filled(
                        "{0}_{1} is set twice, to different values", setting[1], setting[2]
                    )
            elif line and not re.fullmatch(r"\w+\s*=.*", line):
                unread[filled("{0} line {1}", CONF_PATH, number)] = "not understood, expected key_N=value"
        return cls(by_npu=by_npu, unread=unread)
