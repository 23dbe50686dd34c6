"""Addresses of the NPUs' network ports: their own, their gateway's, and the one that they watch."""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Address,
    IPv6Interface,
    ip_address,
)
from typing import Literal

import msgspec

from doctor.engine.fact import Answer, Fact, Output, Unreadable
from doctor.facts.hccn.tool import (
    NO_ADDRESS,
    each_npu,
    field,
    hccn,
    last_words,
    missing,
    per_npu,
    refuse,
    said,
    there,
    told,
    understood,
)

Address = IPv4Address | IPv6Address
Interface = IPv4Interface | IPv6Interface

_SIX = "-- inet6 --"


class DeviceAddresses(Fact, frozen=True):
    """The address of every NPU's network port, by physical id: IPv4, else IPv6."""

    probe = per_npu(f'{{ ask "$1" -ip -g || {{ echo "{_SIX}"; ask "$1" -ip -inet6 -g; }}; }} 2>&1')

    by_npu: dict[int, Interface]
    unset: tuple[int, ...] = ()
    """NPUs that say that no address was preset."""

    @classmethod
    def read(cls, answer: Answer) -> DeviceAddresses:
        seen, unread = each_npu(answer, _address)
        return cls(by_npu=there(seen), unset=missing(seen), unread=unread)


def _address(output: Output) -> Interface | None:
    """IPv4 where there is one; where there is surely none, IPv6; None when neither is set."""
    four, asked, six = said(output).partition(_SIX)
    if asked:
        return _ipv6(four, six)
    refuse(four)
    if output.code:
        raise Unreadable(last_words(four) or f"exit status {output.code}")
    return understood(four, _ipv4)


def _ipv4(text: str) -> IPv4Interface | None:
    address, mask = field("ipaddr", text), field("netmask", text)
    interface = IPv4Interface(f"{IPv4Address(address)}/{IPv4Address(mask)}")
    if str(interface.netmask) != mask:
        raise ValueError("not a contiguous mask")  # 0.0.0.255 would pass for a host mask
    return None if interface.ip.is_unspecified else interface


def _ipv6(four: str, six: str) -> IPv6Interface | None:
    if NO_ADDRESS not in four:
        refuse(four)
        raise Unreadable(last_words(four) or "hccn_tool said nothing")
    refused = "Get unknown option", "Get invalid", "not supported", "Command execute failed"
    if NO_ADDRESS in six or any(words in six for words in refused):
        return None
    refuse(six)
    return understood(six, _ipv6_value)


def _ipv6_value(text: str) -> IPv6Interface | None:
    length = field("prefix_length", text)
    interface = IPv6Interface(f"{IPv6Address(field('ipv6_address', text))}/{int(length)}")
    return None if interface.ip.is_unspecified or interface.ip.is_link_local else interface


class DeviceGateways(Fact, frozen=True):
    """The default gateway of every NPU's network port."""

    probe = hccn("-gateway -g")

    by_npu: dict[int, Address]
    unset: tuple[int, ...] = ()

    @classmethod
    def read(cls, answer: Answer) -> DeviceGateways:
        seen, unread = each_npu(answer, told(_gateway, "no gateway was preset"))
        return cls(by_npu=there(seen), unset=missing(seen), unread=unread)


def _gateway(text: str) -> Address | None:
    return ip_address(field("default gateway", text).partition(",")[0].strip())


class DetectAddresses(Fact, frozen=True):
    """The address that every NPU keeps pinging to judge its own network (netdetect)."""

    probe = hccn("-netdetect -g")

    by_npu: dict[int, Address]
    unset: tuple[int, ...] = ()
    """NPUs that watch nothing: the tool shows 0.0.0.0."""

    @classmethod
    def read(cls, answer: Answer) -> DetectAddresses:
        seen, unread = each_npu(answer, told(_detect, NO_ADDRESS))
        return cls(by_npu=there(seen), unset=missing(seen), unread=unread)


def _detect(text: str) -> Address | None:
    address = ip_address(field("netdetect addr(?:ess)?", text))
    return None if address.is_unspecified else address


class Vnic(msgspec.Struct, frozen=True):
    """The virtual port of one NPU."""

    link: Literal["UP", "DOWN"]
    address: IPv4Interface


class VnicAddresses(Fact, frozen=True):
    """The virtual port of every NPU: inside an A3 super pod it carries the HCCS traffic."""

    probe = hccn("-vnic -g")

    by_npu: dict[int, Vnic]

    @classmethod
    def read(cls, answer: Answer) -> VnicAddresses:
        seen, unread = each_npu(answer, told(_vnic))
        return cls(by_npu=there(seen), unread=unread)


def _vnic(text: str) -> Vnic | None:
    links: dict[str, Literal["UP", "DOWN"]] = {"UP": "UP", "DOWN": "DOWN"}
    mask = IPv4Address(field("vnic netmask", text))
    return Vnic(links[field("vnic link status", text)], IPv4Interface(f"{field('vnic ipaddr', text)}/{mask}"))
