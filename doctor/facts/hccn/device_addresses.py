"""Addresses of the NPUs' network ports: their own, their gateway's, the one that they watch; and /etc/hccn.conf.

By that file they are set at every start of the host.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, ip_address
from typing import Any, Literal, TypeVar

import msgspec

from doctor.engine.fact import Fact, Output, ProbeAnswer, Unreadable, read
from doctor.engine.sanitize import last_line
from doctor.engine.texts import filled
from doctor.facts.hccn.tool import (
    CONF_PATH,
    NO_ADDRESS_TEXT,
    combined_output,
    either,
    hccn_probe,
    parse_each_npu,
    parse_or_unreadable,
    per_npu,
    per_npu_probe,
    raise_known_refusal,
    set_values,
    single_field,
    unset_npus,
)

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


Address = IPv4Address | IPv6Address
Interface = IPv4Interface | IPv6Interface

_IPV6_MARKER = "-- inet6 --"


class DeviceAddresses(Fact, frozen=True):
    """The address of every NPU's network port, by physical id: IPv4, else IPv6.

    Raw output, for NPU 0::

        ipaddr:29.1.0.1
        netmask:255.255.0.0
    """

    probe = per_npu_probe(f'{{ ask -i "$1" -ip -g || {{ echo "{_IPV6_MARKER}"; ask -i "$1" -ip -inet6 -g; }}; }} 2>&1')

    by_npu: dict[int, Interface]
    unset: tuple[int, ...] = ()
    """NPUs that say that no address was preset."""
    from_file: bool = False
    """hccn_tool is not there: the addresses are those of /etc/hccn.conf."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> DeviceAddresses:
        addresses, unread = parse_each_npu(answer, _parse_answer)
        from_file = any(output.ended == "absent" for output in answer.values())
        return cls(by_npu=set_values(addresses), unset=unset_npus(addresses), from_file=from_file, unread=unread)


def _parse_address(output: Output) -> Interface | None:
    """IPv4 where there is one; where there is surely none, IPv6; None when neither is set."""
    four, marker, six = combined_output(output).partition(_IPV6_MARKER)
    if marker:
        return _ipv6_or_none(four, six)
    raise_known_refusal(four)
    if output.code:
        raise Unreadable(last_line(four) or filled("exit status {0}", output.code))
    return parse_or_unreadable(four, _parse_ipv4)


_parse_answer = either(_parse_address, lambda output: stand_in_value(output, configured_interface))


def _parse_ipv4(text: str) -> IPv4Interface | None:
    address, mask = IPv4Address(single_field("ipaddr", text)), single_field("netmask", text)
    return IPv4Interface((int(address), _prefix_length(mask))) if int(address) else None


@lru_cache(maxsize=64)
def _prefix_length(mask: str) -> int:
    network = IPv4Network((0, str(IPv4Address(mask))))
    if str(network.netmask) != mask:
        raise ValueError("not a contiguous mask")  # 0.0.0.255 would pass for a host mask
    return network.prefixlen


def _ipv6_or_none(four: str, six: str) -> IPv6Interface | None:
    if NO_ADDRESS_TEXT not in four:
        raise_known_refusal(four)
        raise Unreadable(last_line(four) or "hccn_tool printed nothing")
    refused = "Get unknown option", "Get invalid", "not supported", "Command execute failed"
    if NO_ADDRESS_TEXT in six or any(phrase in six for phrase in refused):
        return None
    raise_known_refusal(six)
    return parse_or_unreadable(six, _parse_ipv6)


def _parse_ipv6(text: str) -> IPv6Interface | None:
    length = single_field("prefix_length", text)
    interface = IPv6Interface(f"{IPv6Address(single_field('ipv6_address', text))}/{int(length)}")
    return None if interface.ip.is_unspecified or interface.ip.is_link_local else interface


def _parse_gateway(text: str) -> Address | None:
    return ip_address(single_field("default gateway", text).partition(",")[0].strip())


class DeviceGateways(Fact, frozen=True):
    """The default gateway of every NPU's network port.

    Raw output, for NPU 0::

        default gateway:29.1.0.254
    """

    probe = hccn_probe("-gateway -g")

    by_npu: dict[int, Address]
    unset: tuple[int, ...] = ()

    read = per_npu(
        _parse_gateway,
        "no gateway was preset",
        unset="unset",
        without_tool=lambda output: stand_in_value(output, configured_as("gateway")),
    )


def _parse_detect_address(text: str) -> Address | None:
    address = ip_address(single_field("netdetect addr(?:ess)?", text))
    return None if address.is_unspecified else address


class DetectAddresses(Fact, frozen=True):
    """The address that every NPU keeps pinging to judge its own network (netdetect).

    Raw output, for NPU 0::

        netdetect addr: 29.1.0.254
    """

    probe = hccn_probe("-netdetect -g")

    by_npu: dict[int, Address]
    unset: tuple[int, ...] = ()
    """NPUs that watch nothing: the tool shows 0.0.0.0."""

    read = per_npu(
        _parse_detect_address,
        NO_ADDRESS_TEXT,
        unset="unset",
        without_tool=lambda output: stand_in_value(output, configured_as("netdetect")),
    )


class Vnic(msgspec.Struct, frozen=True):
    """The virtual port of one NPU."""

    link: Literal["UP", "DOWN"]
    address: IPv4Interface


def _parse_vnic(text: str) -> Vnic | None:
    links: dict[str, Literal["UP", "DOWN"]] = {"UP": "UP", "DOWN": "DOWN"}
    mask = IPv4Address(single_field("vnic netmask", text))
    return Vnic(
        links[single_field("vnic link status", text)], IPv4Interface(f"{single_field('vnic ipaddr', text)}/{mask}")
    )


class VnicAddresses(Fact, frozen=True):
    """The virtual port of every NPU: inside an A3 super pod it carries the HCCS traffic.

    Raw output, for NPU 0::

        vnic link status: UP
        vnic ipaddr: 192.168.2.199
        vnic netmask: 255.255.255.0
    """

    probe = hccn_probe("-vnic -g")

    by_npu: dict[int, Vnic]

    read = per_npu(_parse_vnic)


def configured_address(
    conf: HccnConf | None, npu: int, addresses: DeviceAddresses
) -> tuple[IPv4Address | None, IPv4Address | None]:
    """Address and netmask of ``npu`` in /etc/hccn.conf, the netmask else of the host's other NPUs; None: not known.

    An address that another NPU of the host has in use is none that could be given.
    """
    settings = conf.by_npu.get(npu, {}) if conf else {}
    taken = {str(interface.ip) for other, interface in addresses.by_npu.items() if other != npu}
    address = _ipv4(settings.get("address", ""))
    netmasks = {interface.netmask for interface in addresses.by_npu.values() if isinstance(interface, IPv4Interface)}
    common = netmasks.pop() if len(netmasks) == 1 else None
    usable = address if address and not address.is_unspecified and str(address) not in taken else None
    return usable, _ipv4(settings.get("netmask", "")) or common


def detect_values(npu: int, addresses: DeviceAddresses, gateways: DeviceGateways | None) -> dict[str, Any]:
    """What an NPU may ping to judge its network: its gateway, else another NPU of the host in its segment."""
    if gateways and npu in gateways.by_npu:
        return {"gateway": gateways.by_npu[npu], "source": filled("That is the gateway of NPU {0}.", npu)}
    segment = addresses.by_npu[npu].network
    for other, interface in addresses.by_npu.items():
        if other != npu and interface.ip in segment and interface.ip != addresses.by_npu[npu].ip:
            return {"gateway": interface.ip, "source": filled("That is the address of NPU {0}, in its segment.", other)}
    return {"gateway": None, "source": "Choose the gateway of its segment, or another NPU in it."}


def address_values(
    conf: HccnConf | None, npu: int, addresses: DeviceAddresses, segment: IPv4Network | None = None
) -> dict[str, Any]:
    """What a command gives to ``npu``, for a finding: the values of `configured_address`, and where they come from.

    ``segment``: an address outside of it is none that could be given.
    """
    address, netmask = configured_address(conf, npu, addresses)
    if segment and address and address not in segment:
        address = None
    return {"address": address, "netmask": segment.netmask if segment else netmask, "source": address_source(address)}


def address_source(address: object) -> str:
    """Where the address in a command comes from, in words."""
    return "That is the address in /etc/hccn.conf." if address else "Choose a free address of the network's plan."


def _ipv4(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(text)
    except AddressValueError:
        return None
