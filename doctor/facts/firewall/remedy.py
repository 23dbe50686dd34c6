"""The commands that let the job's packets through, in the words of whatever manages the host's rules."""

from __future__ import annotations

import ipaddress
import shlex

from doctor.facts.firewall.job import Block
from doctor.facts.firewall.packets import Ranges

MOST = 32
"""Addresses that a command lists; for more it names the network that they are in."""

_SAVE = "It is gone after a restart, unless it is saved: `netfilter-persistent save` (Debian, Ubuntu), or "
_SAVE += "`service iptables save` (RHEL, openEuler)."
_KEPT = {
    "ufw": "ufw keeps it.",
    "firewalld": "firewalld keeps it.",
    "nftables": "It is gone after a restart: write the rule to `/etc/nftables.conf` as well.",
}


def kept(block: Block) -> str:
    """Whether the command outlives a restart."""
    if _before_ufw(block):
        return "It is gone after a restart: the rule that is in the way stands in `/etc/ufw/before.rules`."
    return _SAVE if block.later and block.manager == "ufw" else _KEPT.get(block.manager, _SAVE)


def remedy(block: Block) -> str:
    """One line for a root shell: accepts exactly these ports, from or to exactly these hosts."""
    if block.later:
        return _let_later(block)
    sources = networks(block.addresses)
    if len(sources) > MOST and block.route.on_link:
        _, low, high = block.route.own.network
        sources = networks(((low, high),))
    if _before_ufw(block):
        return _iptables(block, sources)
    return {"ufw": _ufw, "firewalld": _firewalld, "nftables": _nft}.get(block.manager, _iptables)(block, sources)


def _before_ufw(block: Block) -> bool:
    """The rule comes before all that the command ufw can add."""
    return block.places[0].chain.startswith(("ufw-before", "ufw6-before"))


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
    way, end = ("out", "from any to $a") if block.outgoing else ("in", "from $a to any")
    ports = ",".join(_spans(block.ports, ":"))
    return f"for a in {' '.join(sources)}; do ufw prepend allow {way} proto tcp {end} port {ports}; done"


def _firewalld(block: Block, sources: list[str]) -> str:
    family = "ipv6" if ":" in sources[0] else "ipv4"
    each = f"for a in {' '.join(sources)}; do for p in {' '.join(_spans(block.ports, '-'))}; do"
    first = " priority=-1" if block.places[0].chain.endswith("_deny") else ""
    end = "destination" if block.outgoing else "source"
    rule = f'--add-rich-rule="rule{first} family={family} {end} address=$a port port=$p protocol=tcp accept"'
    if block.outgoing:
        policy = "firewall-cmd --permanent --policy=training"
        made = f"firewall-cmd --permanent --new-policy=training; {policy} --set-priority=-100"
        made += f"; {policy} --add-ingress-zone=HOST; {policy} --add-egress-zone=ANY"
        return f"{made}; {each} {policy} {rule}; done; done; {_RELOAD}"
    device = shlex.quote(block.route.own.device)
    zone = f"z=$(firewall-cmd --get-zone-of-interface={device} || firewall-cmd --get-default-zone)"
    return f"{zone}; {each} firewall-cmd --permanent --zone=$z {rule}; done; done; {_RELOAD}"


_RELOAD = "firewall-cmd --reload"


def _nft(block: Block, sources: list[str]) -> str:
    family = "ip6" if ":" in sources[0] else "ip"
    end = "daddr" if block.outgoing else "saddr"
    hosts, ports = ", ".join(sources), ", ".join(_spans(block.ports, "-"))
    match = f"{family} {end} {{ {hosts} }} tcp dport {{ {ports} }}"
    return _nft_rule(block, f"{match} accept")


def _nft_rule(block: Block, rule: str) -> str:
    place = block.places[0]
    where = f"{place.table.family} {place.table.name} {place.base.name}"
    return f"nft {shlex.quote(f'insert rule {where} {rule}')}"


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
    return f"{command}{table} -I {shlex.quote(place.base.name)}"


def _let_later(block: Block) -> str:
    if block.manager in ("nftables", "firewalld"):
        return _nft_rule(block, "ct state established,related accept")
    return f"{_insert(block)} -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"
