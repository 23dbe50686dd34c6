"""Addresses in foreign text: only those that can be written down again, anywhere, without harm."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


@lru_cache(maxsize=1 << 16)
def plain_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """A literal address. Raises: ValueError for a name, and for a scope, which may hold any text, line breaks too.

    >>> plain_address("10.0.0.1")
    IPv4Address('10.0.0.1')
    >>> plain_address("fe80::1%eth0")
    Traceback (most recent call last):
    ...
    ValueError: an address with a scope
    """
    if "%" in text:
        raise ValueError("an address with a scope")
    return ipaddress.ip_address(text)


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
    """A name that means loopback on every host, whatever /etc/hosts says (RFC 6761)."""
    first = name.lower().rstrip(".")
    return first in ("localhost", "ip6-localhost", "ip6-loopback") or first.startswith("localhost.")


def means_own_host(target: str) -> bool:
    """Whether a name or address leads every host to itself.

    >>> [means_own_host(target) for target in ("localhost", "127.0.1.1", "::1", "0.0.0.0", "n1", "10.0.0.1")]
    [True, True, True, True, False, False]
    """
    if not is_plain_address(target):
        return is_localhost(target)
    return plain_address(target).is_loopback or plain_address(target).is_unspecified


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address that a device or host may have, or None."""
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    bad = ip.is_unspecified or ip.is_loopback or ip.is_multicast or text == "255.255.255.255"
    return None if bad else ip
