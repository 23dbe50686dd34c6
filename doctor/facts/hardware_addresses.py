"""The second round's: at which hardware addresses the hosts' kernels find one another: a second witness."""

from __future__ import annotations

import _socket as socket
import os
import re
import struct
import time
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec

from doctor.engine.addresses import plain_address
from doctor.engine.fact import Fact, PerHost, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.grouping import sets_by_key
from doctor.engine.texts import beginning, filled
from doctor.facts.interfaces import MAX_LINKS, Interfaces
from doctor.facts.peer_connections import MAX_ADDRESSES, connection_partners, target_addresses
from doctor.facts.visit import Reachability
from doctor.remote.runtime.neighbours import ask_neighbours
from doctor.remote.runtime.netlink import netlink_entries
from doctor.remote.runtime.reading import read_text

SECONDS = 1.0
"""How long the kernel may take to find them. It asks at once, and answers in one network take a millisecond."""
KNOWN_STATES = 0x02 | 0x04 | 0x08 | 0x10 | 0x80
"""NUD_REACHABLE, STALE, DELAY, PROBE and PERMANENT: the neighbour has answered at its hardware address."""
SETTINGS = "/proc/sys/net/ipv4/conf/"
MAX_NEIGHBOURS = 64 * MAX_ADDRESSES
_HARDWARE = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5,31}")


def find_hardware_addresses(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: sends an empty datagram to each target, and reads what the kernel has learned by it."""
    task = arguments[arguments["asked"]]  # type: ignore[literal-required]
    neighbours: dict = {}  # type: ignore[type-arg]
    end = time.monotonic() + task["seconds"]
    while True:
        for address in task["targets"]:
            if address not in neighbours:  # again: an own address that is still being checked sends nothing
                _send_to(address)
        for entry, values in netlink_entries(30, socket.AF_UNSPEC, 12):
            family, state = struct.unpack("=B7xH", entry[:10])
            target, hardware = values.get(1, b""), _format_hardware(values.get(2, b""))
            if state & KNOWN_STATES and hardware and len(target) == (4 if family == socket.AF_INET else 16):
                neighbours[socket.inet_ntop(family, target)] = hardware
        if time.monotonic() >= end or all(address in neighbours for address in task["targets"]):
            break
        time.sleep(0.1)
    answers = ask_neighbours(task["targets"], task["seconds"])  # type: ignore[no-untyped-call]
    neighbours.update((address, _format_hardware(answer)) for address, answer in answers.items())
    links = netlink_entries(18, socket.AF_UNSPEC, 16)
    return {
        "local": sorted({_format_hardware(values.get(1, b"")) for _, values in links} - {""}),
        "proxies": [name for name in os.listdir(SETTINGS) if read_text(SETTINGS + name + "/proxy_arp").strip() == "1"],
        "neighbours": {address: neighbours[address] for address in task["targets"] if neighbours.get(address)},
        "unanswered": [address for address in task["targets"] if answers.get(address) == b""],
    }


def _send_to(address: str) -> None:
    try:
        sender = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    except OSError:
        return
    try:
        sender.setblocking(False)
        sender.sendto(b"", (address, 9))
    except OSError:
        pass  # a rule of its own, or no route: the kernel may know the neighbour all the same
    finally:
        sender.close()


def _format_hardware(data: bytes) -> str:
    return ":".join(map("{:02x}".format, bytearray(data))) if len(data) >= 6 and any(data) else ""


class HardwareAddresses(Fact, frozen=True):
    """The hardware addresses of the host's interfaces, and those that answer for other hosts in its networks.

    A host that says that it has an address does not make it so: at another host the address must be found at a hardware
    address of the first. Above 9 hosts each looks for those 1, 2, 4, 8, ... places on; also for those that SSH did not
    reach.

    Raw output, as JSON::

        {"local": ["02:fc:00:00:00:01"], "neighbours": {"10.0.0.2": "02:fc:00:00:00:02"}, "unanswered": []}
    """

    probe = ask(find_hardware_addresses, job=True, timeout=15)
    needs = (Interfaces, Reachability)

    local: tuple[str, ...]
    neighbours: dict[str, str]
    """By address of another host; what answers now, else what the kernel knows."""
    proxies: tuple[str, ...] = ()
    """Interfaces, or ``all``, on which it answers for the addresses of others (proxy_arp)."""
    unanswered: tuple[str, ...] = ()
    """Addresses in its own network that did not answer when it asked all (ARP), also where the kernel knows them."""

    @classmethod
    def plan(cls, fleet_facts: Mapping[type[Fact], PerHost[Any]]) -> dict[str, object]:
        interfaces: PerHost[Interfaces] = fleet_facts[Interfaces]
        visits: PerHost[Reachability] = fleet_facts[Reachability]
        silent = {host: [visit.address] for host, visit in visits.items() if host not in interfaces and visit.address}
        planned: dict[str, object] = {}
        for host, peers in connection_partners([*interfaces, *silent]).items():
            if source := interfaces.get(host):
                targets = [
                    address
                    for peer in peers
                    for address in silent.get(peer) or target_addresses(source, interfaces[peer], ())
                    if peer not in silent
                    or any(ip_address(address) in ip_network(each.network) for each in source.addresses)
                ]
                planned[host] = {"targets": targets, "seconds": SECONDS}
        return planned

    @classmethod
    def read(cls, answer: ProbeAnswer) -> HardwareAddresses:
        try:
            value = msgspec.convert(answer.json(), cls)
        except msgspec.ValidationError as error:
            raise Unreadable(filled("no hardware addresses: {0}", error)) from None
        for hardware in (*value.local, *value.neighbours.values()):
            if not _HARDWARE.fullmatch(hardware):
                raise Unreadable(filled("{0} is no hardware address", f"{beginning(hardware, 40)!r}"))
        for address in (*value.neighbours, *value.unanswered):
            plain_address(address)
        if len(value.local) > MAX_LINKS or len(value.neighbours) + len(value.unanswered) > MAX_NEIGHBOURS:
            raise Unreadable(
                filled("it has {0} hardware addresses and {1} neighbours", len(value.local), len(value.neighbours))
            )
        return value


def cards_seen_elsewhere(hardware: Mapping[str, HardwareAddresses]) -> dict[str, dict[str, dict[str, set[str]]]]:
    """By host, hardware address that it alone claims, and address found there: the other hosts that find it."""
    owners = sets_by_key((card, host) for host, fact in hardware.items() for card in fact.local)
    addresses_by_card: dict[str, dict[str, dict[str, set[str]]]] = {}
    for witness, fact in hardware.items():
        for address, hardware_address in fact.neighbours.items():
            holders = owners.get(hardware_address, set())
            if len(holders) == 1 and witness not in holders:
                by_card = addresses_by_card.setdefault(next(iter(holders)), {})
                by_card.setdefault(hardware_address, {}).setdefault(address, set()).add(witness)
    return addresses_by_card
