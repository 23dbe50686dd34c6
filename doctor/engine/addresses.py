"""Addresses in foreign text: only those that can be written down again, anywhere, without harm."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache


@lru_cache(maxsize=1 << 16)
def plain_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """A literal address; an IPv4 one in IPv6 form is the IPv4 one, to which the kernel connects.

    Raises: ValueError for a name, and for a scope, which may hold any text, line breaks too.

    >>> plain_address("10.0.0.1"), plain_address("::ffff:10.0.0.1")
    (IPv4Address('10.0.0.1'), IPv4Address('10.0.0.1'))
    >>> plain_address("fe80::1%eth0")
    Traceback (most recent call last):
    ...
    ValueError: an address with a scope
    """
    if "%" in text:
        raise ValueError("an address with a scope")
    address = ipaddress.ip_address(text)
    return (address.ipv4_mapped or address) if address.version == 6 else address


def is_plain_address(text: str) -> bool:
    r"""Whether `plain_address` takes it.

    >>> is_plain_address("fe80::1"), is_plain_address("fe80::1%x\n10.6.6.6 pypi.org"), is_plain_address("node1")
    (True, False, False)
    """
    try:
        plain_address(text)
    except ValueError:
        return False
    return True


def is_localhost(name: str) -> bool:
    """A name that means loopback on every host; /etc/hosts cannot change that (RFC 6761)."""
    first = name.lower().rstrip(".")
    return first in ("localhost", "ip6-localhost", "ip6-loopback") or first.startswith("localhost.")


def means_own_host(target: str) -> bool:
    """Whether a name or address leads every host to itself.

    >>> [means_own_host(target) for target in ("localhost", "127.0.1.1", "::1", "0.0.0.0", "127.1", "n1", "10.0.0.1")]
    [True, True, True, True, True, False, False]
    """
    address = plain_address(target) if is_plain_address(target) else numeric_ipv4(target)
    return is_localhost(target) if address is None else address.is_loopback or address.is_unspecified


def numeric_ipv4(text: str) -> ipaddress.IPv4Address | None:
    """The address that C makes of one to four numbers, of base 8, 10 or 16; None for a name, which it looks up.

    >>> [str(numeric_ipv4(text)) for text in ("10.91.257", "0x0a5b0101", "012.0133.1.1", "10.1.300.1", "n1")]
    ['10.91.1.1', '10.91.1.1', '10.91.1.1', 'None', 'None']

    Source: inet_aton(3), by which getaddrinfo(3) reads numbers: the last one fills the bytes that remain.
    """
    parts = text.split(".")
    if len(parts) > 4 or not all(
        re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}|0[0-7]{0,20}|[1-9][0-9]{0,15}", part) for part in parts
    ):
        return None
    numbers = [int(part, 8 if part[0] == "0" and part[1:2] not in ("", "x", "X") else 0) for part in parts]
    *first, last = numbers
    if any(number > 255 for number in first) or last >= 256 ** (5 - len(parts)):
        return None
    return ipaddress.IPv4Address(sum(number << (24 - 8 * place) for place, number in enumerate(first)) + last)


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address that a device or host may have, or None."""
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    bad = ip.is_unspecified or ip.is_loopback or ip.is_multicast or text == "255.255.255.255"
    return None if bad else ip
