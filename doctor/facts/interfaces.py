"""The host's network interfaces: state, MTU, addresses, and the networks that its routes lead to."""

from __future__ import annotations

import _socket as socket
import ipaddress
import os
import re
import shlex
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache

import msgspec

from doctor.engine.addresses import plain_address
from doctor.engine.fact import Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.quantities import number_text, seconds_text
from doctor.engine.texts import filled, joined
from doctor.facts.names import is_address, normalize_host
from doctor.facts.network import CONTAINER_INTERFACES, MAX_ADDRESSES, is_external
from doctor.job.variables import ADDRESSES
from doctor.remote.runtime.netlink import (
    driver_values,
    listed_addresses,
    name_text,
    netlink_attributes,
    netlink_entries,
    sending_delays,
)

OFFLOADS = ((0x14, "rx"), (0x16, "tx"), (0x1E, "tso"), (0x23, "gso"), (0x2B, "gro"))
"""ETHTOOL_GRXCSUM and those after it, by the names that ``ethtool -K`` has."""
MAX_LINKS = 2048
"""Interfaces of one host. A host of many containers has hundreds."""


def _offloads(asking: socket.socket, name: str) -> dict:  # type: ignore[type-arg]
    answers = [(offload, driver_values(asking, name, [command, 0])) for command, offload in OFFLOADS]
    return {offload: "on" if answer[1] else "off" for offload, answer in answers if answer}


def _has_rules() -> bool:
    """Whether there are policy rules beside the kernel's own; some kernels have no policy routing."""
    try:
        return any(
            len(netlink_entries(34, family, 12)) > own for family, own in ((socket.AF_INET, 3), (socket.AF_INET6, 2))
        )
    except OSError:
        return False


def list_interfaces(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: links, addresses, policy rules, main routes and what slows sending, as netlink lists them."""
    links, names, asking = [], {}, socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for entry, values in netlink_entries(18, socket.AF_UNSPEC, 16, 4096):
        index, flags = struct.unpack("=iI", entry[4:12])
        name = names[index] = name_text(values.get(3, b""))
        kind = name_text(netlink_attributes(values.get(18, b"")).get(1, b""))
        mtu = struct.unpack("=I", values[4])[0] if 4 in values else 0
        physical = os.path.exists("/sys/class/net/" + name + "/device")
        driver = {} if flags & 8 else _offloads(asking, name)
        driver["qdisc"] = name_text(values.get(6, b""))
        driver["txqueuelen"] = str(struct.unpack("=I", values.get(13, bytes(4)))[0])
        if 41 in values:
            driver["gso_max_size"] = str(struct.unpack("=I", values[41])[0])
        links.append([name, bool(flags & 1), bool(flags & 64), bool(flags & 8), mtu, kind, physical, 10 in values])
        links[-1] += [driver, index]
    asking.close()
    addresses = []
    for index, family, value, prefix, label in listed_addresses(4096):
        if index in names:
            address = socket.inet_ntop(family, value)
            addresses.append([name_text(label) or names[index], names[index], address, prefix])
    routes, limit = [], 4096
    for family in (socket.AF_INET, socket.AF_INET6):
        for entry, values in netlink_entries(26, family, 12, 4 * limit):
            _, prefix, _, _, table, _, _, kind = struct.unpack("=8B", entry[:8])
            if table == 254 and kind == 1 and (4 in values or 9 in values):
                target = values.get(1, b"\0" * (4 if family == socket.AF_INET else 16))
                index = struct.unpack("=I", values[4])[0] if 4 in values else 0
                routes.append([socket.inet_ntop(family, target), prefix, names.get(index, "")])
    return {
        "links": links,
        "addresses": addresses,
        "routes": routes if len(routes) <= limit else None,
        "has_rules": _has_rules(),
        "delays": sending_delays(names)[:64],
    }


class Link(msgspec.Struct, frozen=True, array_like=True):
    """One network interface."""

    name: str
    is_up: bool
    is_running: bool
    """Up, and with a carrier."""
    is_loopback: bool
    mtu: int
    """Bytes."""
    kind: str
    """The kernel's name of a virtual interface, such as bridge, veth, vlan or bond; empty for a physical one."""
    is_physical: bool
    """It has a device: a network card, or a virtual function of one."""
    has_master: bool
    """It is a port of a bridge or a bond."""
    driver: dict[str, str] | None = None
    """What its driver is set to: offloads, on or off, and the length of its queue; None: not read."""
    index: int = 0
    """The kernel's number of it; 0: not read."""

    @property
    def is_container_bridge(self) -> bool:
        """It connects the host with its own containers or virtual machines, by the name that their software gives."""
        return self.name.startswith(CONTAINER_INTERFACES)

    @property
    def is_network_card(self) -> bool:
        """It is up, has a place of its own in a network, and is more than a second address of another interface."""
        inner = self.is_loopback or self.has_master or self.is_container_bridge or self.kind in INNER_KINDS
        return self.is_up and not inner


INNER_KINDS = ("macvlan", "ipvlan", "dummy", "ifb", "tun", "sit", "gre", "ipip", "ip6tnl", "vxlan", "wireguard", "vrf")
"""Kinds of interfaces that share another one's card, or that lead through a tunnel."""


class LinkAddress(msgspec.Struct, frozen=True, array_like=True):
    """One address, in the kernel's order: all IPv4 addresses before all IPv6 ones."""

    label: str
    """What programs take for the interface's name: ``eth0``, or an alias such as ``eth0:1``."""
    interface: str
    address: str
    prefix: int
    """Bits of the network part."""

    @property
    def network(self) -> str:
        """Its network: ``10.0.0.0/24``."""
        return network_of(self.address, self.prefix)

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.address

    @property
    def is_link_local(self) -> bool:
        return self.is_ipv6 and self.address.lower().startswith(("fe8", "fe9", "fea", "feb"))


class RouteTarget(msgspec.Struct, frozen=True, array_like=True):
    """A network that a route of the main table leads to."""

    network: str
    prefix: int
    interface: str
    """Empty for a route over several interfaces."""


LEAST_RATE, LEAST_LOSS, LEAST_SECONDS = 1.25e6, 0.02, 0.1
"""10 Mbit/s, and what lets TCP send as little over a way of 50 ms."""


class SendingDelay(msgspec.Struct, frozen=True, array_like=True):
    """A queueing discipline (tc-netem(8), tc-tbf(8)) that delays, loses or limits what an interface sends."""

    interface: str
    kind: str
    seconds: float
    """By which each packet is late."""
    loss: float
    """The share of packets that it drops at random."""
    rate: float
    """Bytes a second; 0: any."""

    @property
    def holds_back(self) -> bool:
        """It slows a training so much that data seems not to arrive."""
        return 0 < self.rate < LEAST_RATE or self.loss >= LEAST_LOSS or self.seconds >= LEAST_SECONDS

    @property
    def deeds(self) -> str:
        texts = (
            filled("delays by {0}", seconds_text(self.seconds)) if self.seconds > 0 else "",
            filled("drops {0} %", number_text(100 * self.loss, 2)) if self.loss > 0 else "",
            filled("limits to {0} Mbit/s", number_text(self.rate / 125e3, 4)) if self.rate > 0 else "",
        )
        return joined(" and ", filter(None, texts))


class Interfaces(Fact, frozen=True, dict=True):
    """Every network interface of the host where the job runs, with its addresses, and where its routes lead.

    Raw output, as JSON::

        {"links": [["lo", true, true, true, 65536, "", false, false],
                   ["eth0", true, true, false, 1500, "", true, false]],
         "addresses": [["lo", "lo", "127.0.0.1", 8], ["eth0", "eth0", "10.0.0.1", 24]],
         "routes": [["10.0.0.0", 24, "eth0"]], "has_rules": false,
         "delays": [["eth0", "netem", 0.05, 0.01, 0], ["eth0", "tbf", 0, 0, 25000000]]}
    """

    probe = ask(list_interfaces, job=True)
    is_shared = False

    links: tuple[Link, ...]
    addresses: tuple[LinkAddress, ...]
    routes: tuple[RouteTarget, ...] | None
    """None: there are too many."""
    has_rules: bool
    """The administrator has added rules for policy routing, which are not followed here."""
    delays: tuple[SendingDelay, ...] = ()

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Interfaces:
        interfaces = msgspec.convert(answer.json(), cls)
        if not interfaces.links:
            raise Unreadable("the kernel lists no interface, not even lo")
        if len(interfaces.links) > MAX_LINKS:
            raise Unreadable(filled("it has {0} interfaces; expected at most {1}", len(interfaces.links), MAX_LINKS))
        if len(interfaces.addresses) > 2 * MAX_ADDRESSES:
            raise Unreadable(
                filled("it has {0} addresses; expected at most {1}", len(interfaces.addresses), 2 * MAX_ADDRESSES)
            )
        for address in interfaces.addresses:
            network_of(address.address, address.prefix)
        for route in interfaces.routes or ():
            network_of(route.network, route.prefix)
        return interfaces

    def networks_of(self, name: str) -> set[str]:
        return {each.network for each in self.addresses if name and each.interface == name and not each.is_ipv6}

    def link(self, name: str) -> Link | None:
        return self._links.get(name)

    @cached_property
    def _links(self) -> dict[str, Link]:
        return {link.name: link for link in reversed(self.links)}

    def holder(self, address: str) -> LinkAddress | None:
        return self._holders.get(normalize_host(address))

    @cached_property
    def _holders(self) -> dict[str, LinkAddress]:
        """The first entry of each address, in the one spelling."""
        return {normalize_host(entry.address): entry for entry in reversed(self.addresses)}

    def leads_to(self, address: str) -> bool | None:
        """Whether the host has a route to the address, and its interface a carrier; None where that is not known."""
        if self.holder(address) or any(has_carrier for _, has_carrier, _ in self._paths(address)):
            return True
        return None if self.routes is None or self.has_rules else False

    def surely_leads_to(self, address: str) -> bool:
        """By its networks and routes alone, and not by a default route: so does every host with the same `targets`."""
        paths = self._paths(address)
        return any(has_carrier for _, has_carrier, _ in paths) and any(prefix for prefix, *_ in paths)

    def relies_on_router(self, address: str) -> bool:
        """Only a default route leads to the address: whether its router does is not known here."""
        return not self.holder(address) and {prefix for prefix, *_ in self._paths(address)} == {0}

    def is_off_default_route(self, address: str) -> bool:
        """The host has the address, on no bridge of containers, and its default routes go over other interfaces."""
        entry, used = self.holder(address), {interface for prefix, _, interface in self._paths(address, True)}
        link = self.link(entry.interface) if entry else None
        return link is not None and not link.is_container_bridge and bool(used) and not used & {link.name, ""}

    def _paths(self, address: str, default: bool = False) -> list[_Path]:
        """Prefix, carrier and interface of the narrowest routes to an address; ``default``: of the default routes."""
        paths = _all_paths(self.targets, address)
        narrowest = 0 if default else max((prefix for prefix, *_ in paths), default=0)
        return [path for path in paths if path[0] == narrowest]

    @cached_property
    def targets(self) -> tuple[tuple[str, _Path], ...]:
        """The networks that interfaces lead to which are up: equal on hosts of the same networks."""
        targets = [
            (entry.network, entry.prefix, entry.interface) for entry in self.addresses if not entry.is_link_local
        ]
        targets += [
            (network_of(route.network, route.prefix), route.prefix, route.interface) for route in self.routes or ()
        ]
        return tuple(
            (network, (prefix, link is None or link.is_running, interface))
            for network, prefix, interface in targets
            if (link := self.link(interface)) is None or link.is_up
        )


_Path = tuple[int, bool, str]


@lru_cache(maxsize=1 << 14)
def _all_paths(targets: tuple[tuple[str, _Path], ...], address: str) -> list[_Path]:
    """Of hosts of the same networks once for all."""
    number = plain_address(address)
    return [path for network, path in targets if number in _parsed_network(network)]


@lru_cache(maxsize=1 << 16)
def network_of(address: str, prefix: int) -> str:
    """``10.0.0.0/24`` for 10.0.0.7 and 24. Raises: ValueError."""
    return str(ipaddress.ip_network(f"{address}/{prefix}", strict=False))


_parsed_network = lru_cache(maxsize=1 << 16)(ipaddress.ip_network)


def same_address(first: str, other: str) -> bool:
    """Whether two texts are one address."""
    return is_address(first) and normalize_host(first) == normalize_host(other)


def _external(interfaces: Interfaces, without: str = "") -> list[LinkAddress]:
    """The addresses that other hosts may reach; where there is another one, not the address ``without``."""
    external = []
    for entry in interfaces.addresses:
        link = interfaces.link(entry.interface)
        if link and link.is_running and not link.is_loopback and is_external(entry.interface, entry.address):
            external.append(entry)
    return [entry for entry in external if entry.address != without] or external


DELETE_DELAY = (
    "As root on {0}: `tc qdisc del dev {1} root` deletes it. `grep -rsl 'tc qdisc' /etc` prints the files that may set "
    "it again at boot."
)


def delaying(
    hosts: Iterable[str], interfaces: Mapping[str, Interfaces], slows: Callable[[SendingDelay], bool]
) -> Iterator[tuple[str, str]]:
    """What slows down the sending of these hosts, each with its remedy; nothing that all hosts have alike.

    ``slows``: whether a discipline counts. That of an interface counts which other hosts may reach, or that has no
    address, as the port of a bond.
    """
    for host in hosts:
        for delay in interfaces[host].delays if host in interfaces else ():
            addresses = [entry for entry in interfaces[host].addresses if entry.interface == delay.interface]
            is_inner = addresses and not {*addresses} & {*_external(interfaces[host])}
            if slows(delay) and not is_inner and not all(_delays_alike(each, delay) for each in interfaces.values()):
                text = filled("; {0} on {1} of {2} {3}", delay.kind, delay.interface, host, delay.deeds)
                yield text, filled(DELETE_DELAY, host, shlex.quote(delay.interface))


def _delays_alike(interfaces: Interfaces, delay: SendingDelay) -> bool:
    return any(msgspec.structs.replace(each, interface=delay.interface) == delay for each in interfaces.delays)


def usable_names(interfaces: Interfaces) -> str:
    """The names of the interfaces that other hosts may reach, for a remedy: ``eth0 or ib0``."""
    names = list(dict.fromkeys(entry.label for entry in _external(interfaces)))
    return joined(" or ", names[:4]) or "an interface with an address that the other hosts reach"


def usable_addresses(interfaces: Interfaces, without: str = "") -> str:
    """The same with their addresses: ``eth0 (10.0.0.1)``; but for ``without``, which others do not reach."""
    texts = [filled("{0} ({1})", entry.label, entry.address) for entry in _external(interfaces, without)]
    return joined(" or ", texts[:4]) or "an interface with an address that the other hosts reach"


def only_usable(interfaces: Interfaces, without: str = "") -> LinkAddress | None:
    """The one address that other hosts may reach, but for ``without``; None where there are several, or none."""
    external = _external(interfaces, without)
    return external[0] if len(external) == 1 else None


def export_commands(variable: str, interfaces: Mapping[str, Interfaces], limit: int = 8) -> str:
    """The whole commands that set a variable to each host's interface, or address, that the others may reach."""
    is_address, commands = variable in ADDRESSES, dict[str, str]()
    for host, here in interfaces.items():
        names = dict.fromkeys(entry.address if is_address else entry.label for entry in _external(here))
        choices = [shlex.quote(name) for name in names][:4] or ["<address>" if is_address else "<network interface>"]
        commands[host] = joined(" or ", [f"`export {variable}={choice}`" for choice in choices])
    if len(set(commands.values())) == 1 and len(commands) > 1:
        return filled(
            "Where the ranks of these hosts are started, as in the job's script: {0}.", next(iter(commands.values()))
        )
    lines = [filled("On {0}: {1}.", host, command) for host, command in list(commands.items())[:limit]]
    lines += [filled("Likewise on {0} more hosts.", len(commands) - limit)] if len(commands) > limit else []
    return joined(" ", lines)


def routing_commands(network: str, addresses: Mapping[str, str]) -> str:
    """Commands by which packets of each address leave by its own interface; a list where a name is no plain word."""
    if not all(re.fullmatch(r"[\w.@-]{1,15}", name, re.ASCII) for name in addresses):
        return "ip -br address"
    ip = "ip -6" if ":" in network else "ip"
    commands = []
    for table, (name, address) in enumerate(sorted(addresses.items()), 101):
        commands += [
            [ip, "route", "replace", network, "dev", name, "src", address, "table", str(table)],
            [ip, "rule", "add", "from", address, "table", str(table)],
        ]
    return "; ".join(map(" ".join, commands))


def prefix_remedy(host: str, interfaces: Mapping[str, Interfaces]) -> str:
    """Where the prefix of the host's address leaves out the others: both prefixes, and the command."""
    source = interfaces.get(host)
    for mine in source.addresses if source else ():
        number = ipaddress.ip_address(mine.address)
        networks = Counter(
            other.prefix
            for peer, theirs in interfaces.items()
            for other in theirs.addresses
            if peer != host and other.prefix < mine.prefix and number in _parsed_network(other.network)
        )
        for right, count in networks.most_common(1):
            if 2 * count >= len(interfaces):
                return filled(
                    "{0} on {1} has the prefix /{2}, and /{3} on the other hosts. On {4}: {5}, then {6}; and the "
                    "same in the file that sets it at boot.",
                    mine.address,
                    mine.interface,
                    mine.prefix,
                    right,
                    host,
                    f"`ip address add {mine.address}/{right} dev {shlex.quote(mine.interface)}`",
                    f"`ip address del {mine.address}/{mine.prefix} dev {shlex.quote(mine.interface)}`",
                )
    return ""
