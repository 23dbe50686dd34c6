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
from doctor.remote.runtime.netlink import netlink_entries
from doctor.remote.runtime.reading import read_text

SECONDS = 1.0
"""How long the kernel may take to find them. It asks at once, and answers in one network take a millisecond."""
ANSWERED = 0.03
"""Within so many seconds a neighbour that is asked for anew has answered."""
KNOWN_STATES = 0x02 | 0x04 | 0x08 | 0x10 | 0x80
"""NUD_REACHABLE, STALE, DELAY, PROBE and PERMANENT: the neighbour has answered at its hardware address."""
SETTINGS = "/proc/sys/net/ipv4/conf/"
MAX_NEIGHBOURS = 64 * MAX_ADDRESSES
_HARDWARE = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5,31}")


def find_hardware_addresses(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: sends an empty datagram to each target, and reads what the kernel has learned by it.

    The kernel keeps an answer of hours ago until it has not been confirmed for seconds: it is asked for anew before.
    """
    task = arguments[arguments["asked"]]  # type: ignore[literal-required]
    neighbours: dict = {}  # type: ignore[type-arg]
    end = time.monotonic() + task["seconds"]
    for interface, own, target in task["asked_anew"]:
        _ask_anew(interface, own, target)
    time.sleep(ANSWERED if task["asked_anew"] else 0)
    while True:
        for entry, values in netlink_entries(30, socket.AF_UNSPEC, 12):
            family, state = struct.unpack("=B7xH", entry[:10])
            target, hardware = values.get(1, b""), _format_hardware(values.get(2, b""))
            if state & KNOWN_STATES and hardware and len(target) == (4 if family == socket.AF_INET else 16):
                neighbours[socket.inet_ntop(family, target)] = hardware
        missing = [address for address in task["targets"] if address not in neighbours]
        if not missing or time.monotonic() >= end:
            break
        for address in missing:  # again: an own address that is still being checked sends nothing
            _send_to(address)
        time.sleep(0.1)
    links = netlink_entries(18, socket.AF_UNSPEC, 16)
    return {
        "local": sorted({_format_hardware(values.get(1, b"")) for _, values in links} - {""}),
        "proxies": [name for name in os.listdir(SETTINGS) if read_text(SETTINGS + name + "/proxy_arp").strip() == "1"],
        "neighbours": {address: neighbours[address] for address in task["targets"] if address in neighbours},
    }


def _send_to(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    _send(family, socket.SOCK_DGRAM, lambda sender: sender.sendto(b"", (address, 9)))


def _ask_anew(interface: str, own: str, target: str) -> None:
    """Broadcasts what the kernel would (ARP, RFC 826); the kernel takes the answer."""

    def ask_all(asker: Any) -> None:
        asker.bind((interface, 0x0806))
        card = asker.getsockname()[4]
        ends = card + socket.inet_aton(own) + bytes(6) + socket.inet_aton(target)
        if len(card) == 6:
            asker.send(b"\xff" * 6 + card + struct.pack("!5H", 0x0806, 1, 0x0800, 0x0604, 1) + ends)

    _send(socket.AF_PACKET, socket.SOCK_RAW, ask_all)


def _send(family: int, kind: int, send: Any) -> None:
    try:
        sender = socket.socket(family, kind, 0)
    except OSError:
        return
    try:
        sender.setblocking(False)
        send(sender)
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

        {"local": ["02:fc:00:00:00:01"], "proxies": [], "neighbours": {"10.0.0.2": "02:fc:00:00:00:02"}}
    """

    probe = ask(find_hardware_addresses, job=True, timeout=15)
    needs = (Interfaces, Reachability)

    local: tuple[str, ...]
    neighbours: dict[str, str]
    """By address of another host."""
    proxies: tuple[str, ...] = ()
    """Interfaces, or ``all``, on which it answers for the addresses of others (proxy_arp)."""

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
                asked_anew = [
                    [entry.interface, entry.address, target]
                    for target in targets
                    for entry in source.addresses
                    if ":" not in target and ip_address(target) in ip_network(entry.network)
                ]
                planned[host] = {"targets": targets, "asked_anew": asked_anew, "seconds": SECONDS}
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
        for address in value.neighbours:
            plain_address(address)
        if len(value.local) > MAX_LINKS or len(value.neighbours) > MAX_NEIGHBOURS:
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
