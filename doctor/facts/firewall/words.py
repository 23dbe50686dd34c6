"""Names that nftables and iptables have for numbers, and other words that both are written in."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

PROTOCOLS = {"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58, "ipv6-icmp": 58, "sctp": 132}
CONNTRACK_STATES = {"invalid": 1, "established": 2, "related": 4, "new": 8, "untracked": 64}
CONNTRACK_STATUSES = {
    "expected": 1,
    "seen-reply": 2,
    "assured": 4,
    "confirmed": 8,
    "snat": 16,
    "dnat": 32,
    "dying": 512,
}
TCP_FLAGS = {"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32, "ecn": 64, "cwr": 128}
VALUES_BY_KIND: Mapping[str, Mapping[str, int]] = {
    "protocol": PROTOCOLS,
    "state": CONNTRACK_STATES,
    "status": CONNTRACK_STATUSES,
    "flags": TCP_FLAGS,
    "family": {"ipv4": 4, "ipv6": 6, "ip": 4, "ip6": 6, "arp": 1},
    "operation": {"request": 1, "reply": 2},
    "icmp6": {"nd-neighbor-solicit": 135, "nd-neighbor-advert": 136},
    "cast": {"host": 0, "unicast": 0, "broadcast": 1, "multicast": 2, "other": 3, "otherhost": 3},
    "route": {
        "unicast": 1, "local": 2, "broadcast": 3, "anycast": 4, "multicast": 5, "blackhole": 6, "unreachable": 7,
        "prohibit": 8,
    },
    "direction": {"original": 0, "reply": 1},
    "number": {},
    "address": {},
}  # fmt: skip


def network_span(text: str) -> tuple[int, int]:
    """The first and the last address of a network, as numbers. Raises: ValueError."""
    network = ipaddress.ip_network(text, strict=False)
    return int(network[0]), int(network[-1])


def single_item(part: Any) -> tuple[str, Any]:
    """The one key and the one value of a JSON object. Raises: ValueError, AttributeError, TypeError."""
    ((key, value),) = part.items()
    return key, value
