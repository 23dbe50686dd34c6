"""Addresses that may be written down on other hosts: no single host decides about them."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from doctor.engine.addresses import is_localhost, is_plain_address, plain_address
from doctor.engine.check import once_per_fleet
from doctor.engine.grouping import sets_by_key
from doctor.facts.address_proofs import AddressProofs, addresses_proven_elsewhere
from doctor.facts.hardware_addresses import HardwareAddresses, cards_seen_elsewhere
from doctor.facts.names import HostNames, is_address
from doctor.facts.network import HostAddresses
from doctor.facts.visit import Reachability


def hosts_file_lines(
    requested_names: Iterable[str],
    names: Mapping[str, HostNames],
    addresses: Mapping[str, HostAddresses],
    visits: Mapping[str, Reachability],
    file_names: HostNames | None = None,
) -> list[str]:
    """Lines for /etc/hosts, ``ADDRESS NAME``, of the names whose address is agreed.

    That is the one address that the named host itself has, and that SSH reached it by or another host resolves the
    name to. A name that the list of hosts does not have, and one with two such addresses, gets no line. ``file_names``:
    those of the one host whose file it is, which may say what it calls itself.
    """
    lines = []
    index = _name_index(names)
    for name in sorted(set(requested_names)):
        owner = index.host_by_names[id(file_names)] if file_names and file_names.own == name else index.owner(name)
        if not owner or owner not in addresses or not name.isprintable() or any(map(str.isspace, name)):
            continue
        own_addresses = set(_usable(addresses[owner].addresses))
        reached = visits[owner].address if owner in visits else ""
        resolved = index.resolved_elsewhere(name, owner)
        agreed = own_addresses & resolved or own_addresses & {reached}
        if reached in agreed:
            agreed = {reached}
        if len(agreed) == 1:
            lines.append(f"{agreed.pop()} {name}")
    return lines


def hosts_file_command(lines: Sequence[str], name: str = "<name>") -> str:
    r"""The shell command that appends lines to /etc/hosts; without a line, one for ``name`` and an open address.

    >>> print(hosts_file_command(["192.0.2.10 node001", "192.0.2.11 a'b"]))
    printf '%s\n' '192.0.2.10 node001' '192.0.2.11 a'"'"'b' >> /etc/hosts
    """
    words = [shlex.quote(line) for line in lines if "`" not in line]
    words = words or [shlex.quote(f"<address> {name}")]
    return f"printf '%s\\n' {' '.join(words)} >> /etc/hosts"


def hosts_file_correction(name: str, lines: Sequence[str]) -> str:
    """Commands that take a name out of /etc/hosts, and enter the right line; an editor where no address is agreed."""
    if not lines or not re.fullmatch(r"[\w.-]{1,253}", name, re.ASCII):
        return "vi /etc/hosts"
    pattern = name.replace(".", "[.]")
    remove = rf"sed -i.bak -E '/^[^#]/s/[[:space:]]{pattern}([[:space:]]|$)/\1/g' /etc/hosts"
    return f"{remove}; {hosts_file_command(lines)}"


def listed_name(host_names: HostNames, names: Mapping[str, HostNames]) -> str:
    """The name by which the list of hosts has a host; empty where that is an address, or several hosts go by it."""
    index = _name_index(names)
    name = index.host_by_names.get(id(host_names), "")
    is_name = re.fullmatch(r"[A-Za-z][\w.-]{0,62}", name, re.ASCII) and not is_localhost(name)
    return name if is_name and index.owner(name) == name else ""


class _NameIndex:
    """The names of the list of hosts, and what each of them means to whom."""

    def __init__(self, names: Mapping[str, HostNames]) -> None:
        self.listed = frozenset(names)
        self.host_by_names = {id(host_names): host for host, host_names in names.items()}
        self.hosts_by_label: dict[str, list[str]] = {}
        """Hosts that are listed with a domain, by the name without it."""
        self.witnesses: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        """By name and address: up to two hosts that resolve the one to the other."""
        for host, host_names in names.items():
            self.hosts_by_label.setdefault(host if is_address(host) else host.partition(".")[0], []).append(host)
            for name, meaning in host_names.names.items():
                by_address = self.witnesses[name]
                for address in meaning.addresses:
                    witnesses = by_address[address]
                    if len(witnesses) < 2:
                        witnesses.add(host)

    def owner(self, name: str) -> str:
        """The host that the list of hosts has by this name, with or without a domain; empty if not exactly one.

        What a host calls itself makes it the owner of nothing: it could take any name, such as that of MASTER_ADDR.
        """
        owners = [name] if name in self.listed else self.hosts_by_label.get(name, [])
        return owners[0] if len(owners) == 1 else ""

    def resolved_elsewhere(self, name: str, owner: str) -> set[str]:
        """The addresses that another host than the owner resolves the name to."""
        return {address for address, hosts in self.witnesses.get(name, {}).items() if hosts - {owner}}


@once_per_fleet
def _name_index(names: Mapping[str, HostNames]) -> _NameIndex:
    return _NameIndex(names)


class AddressWitnesses(msgspec.Struct, frozen=True):
    """What the hosts have seen of one another's addresses, where that is known."""

    hardware: Mapping[str, HardwareAddresses] = {}
    proofs: Mapping[str, AddressProofs] = {}

    def seen_elsewhere(self, confirmed: Mapping[str, set[str]]) -> dict[str, set[str]]:
        """By host: its addresses by other hosts' word.

        That is where it has proven itself, and what others find at a card of its own. A card is its own if no other
        host claims it and others find ``confirmed`` addresses there, of this host alone: a host that claims the
        hardware address of a stranger has none there, and at that of a router there are those of others.
        """
        witnessed = addresses_proven_elsewhere(self.proofs)
        owners = sets_by_key((address, host) for host, addresses in confirmed.items() for address in addresses)
        for host, by_card in cards_seen_elsewhere(self.hardware).items():
            for witnesses in by_card.values():
                if {owner for address in witnesses for owner in owners.get(address, ())} == {host}:
                    witnessed.setdefault(host, set()).update(witnesses)
        return witnessed


@once_per_fleet
def agreed_addresses(
    names: Mapping[str, HostNames],
    addresses: Mapping[str, HostAddresses],
    visits: Mapping[str, Reachability],
    hardware: Mapping[str, HardwareAddresses] | None = None,
    proofs: Mapping[str, AddressProofs] | None = None,
) -> set[str]:
    """The addresses of the fleet that a firewall may be opened to: each has a second witness beside its host.

    Of each host: the one that SSH reached it by, those that another host resolves its name in the list of hosts to,
    those at which it has proven itself to another host, and those that another host finds at its card. A host that does
    not have the address by which SSH reached it has none: its list is not true, or its addresses are translated.
    """
    index = _name_index(names)
    held: dict[str, set[str]] = {}
    confirmed: dict[str, set[str]] = {}
    for host, host_addresses in addresses.items():
        own_addresses = set(_usable(host_addresses.addresses))
        reached = visits[host].address if host in visits else ""
        if not reached or reached in own_addresses or plain_address(reached).is_loopback:
            held[host] = own_addresses
            confirmed[host] = own_addresses & ({reached} | index.resolved_elsewhere(host, host))
    witnessed = AddressWitnesses(hardware or {}, proofs or {}).seen_elsewhere(confirmed)
    return {
        address
        for host, own_addresses in held.items()
        for address in confirmed[host] | (own_addresses & witnessed.get(host, set()))
    }


def _usable(addresses: Iterable[str]) -> Iterable[str]:
    for address in addresses:
        if is_plain_address(address) and not (
            plain_address(address).is_loopback or plain_address(address).is_link_local
        ):
            yield address
