"""The commands that let the job's packets through, in the words of whatever manages the host's rules."""

from __future__ import annotations

import ipaddress

from doctor.facts.firewall.job import Block
from doctor.facts.firewall.packets import Ranges

MOST = 32
"""Addresses that a command lists; for more it names the network that they are in."""

_SAVE = "It is gone after a restart, unless it is saved: `netfilter-persistent save` (Debian, Ubuntu), or "
_SAVE += "`service iptables save` (RHEL, openEuler)."
KEEP = {
    "ufw": "ufw keeps it.",
    "firewalld": "firewalld keeps it.",
    "nftables": "It is gone after a restart: write the rule to `/etc/nftables.conf` as well.",
    "iptables": _SAVE,
    "iptables-legacy": _SAVE,
}
"""Whether the command outlives a restart."""


def remedy(block: Block) -> str:
    """One line for a root shell: accepts exactly these ports, from or to exactly these hosts."""
    if block.later:
        return _let_later(block)
    sources = networks(block.addresses)
    if len(sources) > MOST and block.route.on_link:
        _, low, high = block.route.own.network
        sources = networks(((low, high),))
    return {"ufw": _ufw, "firewalld": _firewalld, "nftables": _nft}.get(block.manager, _iptables)(block, sources)


def networks(addresses: Ranges) -> list[str]:
    """The addresses in as few networks as hold no other one."""
    found: list[str] = []
    for low, high in addresses:
        kind = ipaddress.IPv4Address if high < 1 << 32 else ipaddress.IPv6Address
        for network in ipaddress.summarize_address_range(kind(low), kind(high)):
            single = network.prefixlen == network.max_prefixlen
            found.append(str(network.network_address) if single else str(network))
    return found


def _spans(ports: Ranges, between: str) -> list[str]:
    return [str(low) if low == high else f"{low}{between}{high}" for low, high in ports]


def _ufw(block: Block, sources: list[str]) -> str:
    way, end = ("allow out", "from any to $a") if block.outgoing else ("allow", "from $a to any")
    ports = ",".join(_spans(block.ports, ":"))
    return f"for a in {' '.join(sources)}; do ufw {way} proto tcp {end} port {ports}; done"


def _firewalld(block: Block, sources: list[str]) -> str:
    family = "ipv6" if ":" in sources[0] else "ipv4"
    each = f"for a in {' '.join(sources)}; do for p in {' '.join(_spans(block.ports, '-'))}; do"
    if block.outgoing:
        rule = f"firewall-cmd --permanent --direct --add-rule {family} filter OUTPUT 0 -d $a -p tcp --dport"
        ports = " ".join(_spans(block.ports, ":"))
        return f"for a in {' '.join(sources)}; do for p in {ports}; do {rule} $p -j ACCEPT; done; done; {_RELOAD}"
    zone = f"z=$(firewall-cmd --get-zone-of-interface={block.route.own.device} || firewall-cmd --get-default-zone)"
    rule = f'"rule family={family} source address=$a port port=$p protocol=tcp accept"'
    return f"{zone}; {each} firewall-cmd --permanent --zone=$z --add-rich-rule={rule}; done; done; {_RELOAD}"


_RELOAD = "firewall-cmd --reload"


def _nft(block: Block, sources: list[str]) -> str:
    place = block.places[0]
    family = "ip6" if ":" in sources[0] else "ip"
    end = "daddr" if block.outgoing else "saddr"
    hosts, ports = ", ".join(sources), ", ".join(_spans(block.ports, "-"))
    match = f"{family} {end} {{ {hosts} }} tcp dport {{ {ports} }}"
    return f"nft 'insert rule {place.table.family} {place.table.name} {place.base.name} {match} accept'"


def _iptables(block: Block, sources: list[str]) -> str:
    end = "-d" if block.outgoing else "-s"
    parts = _spans(block.ports, ":")
    match = f"-p tcp {end} {','.join(sources)} -m multiport --dports"
    inserts = [f"{_insert(block)} {match} {','.join(parts[at : at + 7])} -j ACCEPT" for at in range(0, len(parts), 7)]
    return "; ".join(inserts)


def _insert(block: Block) -> str:
    place = block.places[0]
    command = "ip6tables" if place.table.family == "ip6" else "iptables"
    command += "-legacy" if place.table.tool == "iptables-legacy" else ""
    table = "" if place.table.name == "filter" else f" -t {place.table.name}"
    return f"{command}{table} -I {place.base.name}"


def _let_later(block: Block) -> str:
    place = block.places[0]
    if block.manager in ("nftables", "firewalld"):
        where = f"{place.table.family} {place.table.name} {place.base.name}"
        return f"nft 'insert rule {where} ct state established,related accept'"
    return f"{_insert(block)} -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"
