"""The commands that let the job's packets through, in the syntax of the host's rule manager, and back."""

from __future__ import annotations

import ipaddress
import shlex
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from doctor.engine.texts import filled
from doctor.facts.firewall.job import BlockedConnections
from doctor.facts.firewall.packets import Ranges

Operation = Literal["add", "remove"]
MAX_ADDRESSES = 64
"""Addresses and networks that a command may list. It never names a network that holds others than the fleet's hosts."""

_SAVE_NOTE = (
    "lost after a restart unless saved: `netfilter-persistent save` on Debian and Ubuntu, `service iptables save` on "
    "RHEL and openEuler"
)
_PERSISTENCE = {"ufw": "ufw saves it", "firewalld": "firewalld saves it", "firewalld-policy": "firewalld saves it"}
_NFT_FILES = "/etc/nftables.conf /etc/sysconfig/nftables.conf"


def persistence_note(block: BlockedConnections) -> str:
    """Whether the command outlives a restart, for the brackets behind it."""
    if _before_ufw(block):
        return "lost after a restart: the blocking rule is in `/etc/ufw/before.rules`"
    method = _method(block)
    if method != "nft":
        return _PERSISTENCE.get(method, _SAVE_NOTE)
    table = block.positions[0].table
    find = shlex.quote(rf"^[[:space:]]*table {table.family} {table.name}\b")
    add = shlex.quote(
        f"$a add chain {_nft_chain(block)}; insert rule {_nft_chain(block)} {_tagged(_nft_accept(block))}"
    )
    append = f"grep -lEs {find} {_NFT_FILES} | xargs -r sed -i {add}"
    return filled("lost after a restart; where a file of nftables has this table, `{0}` adds the rule to it", append)


def allow_command(block: BlockedConnections) -> str:
    """One line for a root shell: accepts exactly these ports, from or to exactly these hosts."""
    return _WAYS[_method(block)](block, "add")


def undo_command(block: BlockedConnections) -> str:
    """One line for a root shell: takes away exactly what `allow_command` adds, and leaves all other rules in place."""
    return _WAYS[_method(block)](block, "remove")


def fix_values(block: BlockedConnections) -> dict[str, str | list[str]]:
    """What the playbook's fixed commands read, for each way to change the rules; ``method`` names the one that fits."""
    sources = networks(block.addresses)
    nft_rule = _nft_accept(block)
    matches = _matches(block)
    table = block.positions[0].table
    tool = "ip6tables" if table.family == "ip6" else "iptables"
    return {
        "method": _method(block),
        "sources": list(sources),
        "nft_chain": _nft_chain(block),
        "nft_rule": _tagged(nft_rule),
        "nft_tag": _tag(nft_rule),
        "iptables_tool": tool + ("-legacy" if table.tool == "iptables-legacy" else ""),
        "iptables_rules": [f"{block.positions[0].base.name} {match} -j ACCEPT" for match in matches],
        "ufw_ports": ",".join(_format_spans(block.ports, ":")),
        "device": block.route.local.device,
        "rich_rules": [
            rule.replace("$a", source).replace("$p", span).strip('"')
            for rule in (_rich_rule(block, sources)[1],)
            for source in sources
            for span in _format_spans(block.ports, "-")
        ],
    }


def _method(block: BlockedConnections) -> str:
    if block.manager == "nftables" or (block.stage in _FOR_ALL and block.manager == "firewalld"):
        return "nft"
    if block.stage in _FOR_ALL or _before_ufw(block) or block.manager not in ("ufw", "firewalld"):
        return "iptables"
    return "firewalld-policy" if block.manager == "firewalld" and block.outgoing else block.manager


def boot_lines(block: BlockedConnections) -> list[str]:
    """What the file that the rules are loaded from at boot must hold as well; for iptables what comes after ``-I``."""
    if block.manager == "nftables":
        return [f"insert rule {_nft_chain(block)} {_tagged(_nft_accept(block))}"]
    if block.manager in ("iptables", "iptables-legacy"):
        matches = _matches(block)
        return [f"{shlex.quote(block.positions[0].base.name)} {match} -j ACCEPT" for match in matches]
    return [f"# {block.manager} keeps its rules itself"]


def boot_files(block: BlockedConnections) -> list[str]:
    """Where the distributions have iptables' saved rules, of the family that is blocked."""
    six = block.positions[0].table.family == "ip6"
    return (
        ["/etc/iptables/rules.v6", "/etc/sysconfig/ip6tables"]
        if six
        else ["/etc/iptables/rules.v4", "/etc/sysconfig/iptables"]
    )


def _before_ufw(block: BlockedConnections) -> bool:
    """The rule comes before all that the command ufw can add."""
    return block.positions[0].chain.startswith(("ufw-before", "ufw6-before"))


def is_listable(block: BlockedConnections) -> bool:
    """Whether its peers are few enough for a command that names them all."""
    return len(block.addresses) <= MAX_ADDRESSES and len(networks(block.addresses)) <= MAX_ADDRESSES


@lru_cache(maxsize=8)
def networks(addresses: Ranges) -> Sequence[str]:
    """The addresses in as few networks as hold no other one; of many, some more than a command may name."""
    texts: list[str] = []
    for low, high in addresses[: MAX_ADDRESSES + 1]:
        texts += _networks_between(low, high)
        if len(texts) > MAX_ADDRESSES:
            break
    return tuple(texts)


@lru_cache(maxsize=1 << 12)
def _networks_between(low: int, high: int) -> Sequence[str]:
    """Of hosts that have peers in common once for all."""
    kind = ipaddress.IPv4Address if high < 1 << 32 else ipaddress.IPv6Address
    between = ipaddress.summarize_address_range(kind(low), kind(high))
    return tuple(str(network).removesuffix(f"/{network.max_prefixlen}") for network in between)


def _format_spans(ports: Ranges, between: str) -> list[str]:
    return [str(low) if low == high else f"{low}{between}{high}" for low, high in ports]


def _ufw(block: BlockedConnections, operation: Operation) -> str:
    way, end = ("out", "from any to $a") if block.outgoing else ("in", "from $a to any")
    sources, ports = " ".join(networks(block.addresses)), ",".join(_format_spans(block.ports, ":"))
    verb = "prepend" if operation == "add" else "delete"
    return f"for a in {sources}; do ufw {verb} allow {way} proto tcp {end} port {ports}; done"


def _firewalld(block: BlockedConnections, operation: Operation) -> str:
    each, rule = _rich_rule(block, networks(block.addresses))
    if block.outgoing:
        create_policy = f"firewall-cmd --permanent --new-policy=training; {_POLICY} --set-priority=-100"
        create_policy += f"; {_POLICY} --add-ingress-zone=HOST; {_POLICY} --add-egress-zone=ANY"
        delete_policy = f'test -n "$({_POLICY} --list-rich-rules)" || firewall-cmd --permanent --delete-policy=training'
        rules = f"{each} {_POLICY} --{operation}-rich-rule={rule}; done; done"
        return f"{create_policy}; {rules}; {_RELOAD}" if operation == "add" else f"{rules}; {delete_policy}; {_RELOAD}"
    now, at_boot = (f"firewall-cmd {which}--zone=$z --{operation}-rich-rule={rule}" for which in ("", "--permanent "))
    return f"{_zone(block)}; {each} {now}; {at_boot}; done; done"


def _rich_rule(block: BlockedConnections, sources: Sequence[str]) -> tuple[str, str]:
    """The loops over peers and ports, and the rule for one of each."""
    family = "ipv6" if ":" in sources[0] else "ipv4"
    each = f"for a in {' '.join(sources)}; do for p in {' '.join(_format_spans(block.ports, '-'))}; do"
    first = " priority=-1" if block.positions[0].chain.endswith("_deny") else ""
    end = "destination" if block.outgoing else "source"
    return each, f'"rule{first} family={family} {end} address=$a port port=$p protocol=tcp accept"'


def _zone(block: BlockedConnections) -> str:
    device = shlex.quote(block.route.local.device)
    return f"z=$(firewall-cmd --get-zone-of-interface={device} || firewall-cmd --get-default-zone)"


_RELOAD = "firewall-cmd --reload"
_POLICY = "firewall-cmd --permanent --policy=training"


def _nft_accept(block: BlockedConnections) -> str:
    if block.stage in _FOR_ALL:
        return f"{_FOR_ALL[block.stage][0]} accept"
    sources = networks(block.addresses)
    family = "ip6" if ":" in sources[0] else "ip"
    end = "daddr" if block.outgoing else "saddr"
    hosts, ports = ", ".join(sources), ", ".join(_format_spans(block.ports, "-"))
    return f"{family} {end} {{ {hosts} }} tcp dport {{ {ports} }} accept"


def _nft(block: BlockedConnections, operation: Operation) -> str:
    rule = _nft_accept(block)
    if operation == "add":
        return filled("nft {0}", shlex.quote(f"insert rule {_nft_chain(block)} {_tagged(rule)}"))
    where = shlex.quote(_nft_chain(block))
    find = f's/.*comment "{_tag(rule)}".* # handle \\([0-9]*\\)$/\\1/p'
    handles = f"$(nft -a list chain {where} | sed -n {shlex.quote(find)})"
    return f"for h in {handles}; do nft delete rule {where} handle $h; done"


def _nft_chain(block: BlockedConnections) -> str:
    place = block.positions[0]
    return f"{place.table.family} {place.table.name} {place.base.name}"


def _tag(rule: str) -> str:
    """By which a rule is found again: nft deletes by handle alone, and prints rules in other words than it takes."""
    return f"cluster-doctor {zlib.crc32(rule.encode()):08x}"


def _tagged(rule: str) -> str:
    return f'{rule} comment "{_tag(rule)}"'


def _iptables(block: BlockedConnections, operation: Operation) -> str:
    command = _command(block)
    rules = [f"{shlex.quote(block.positions[0].base.name)} {match} -j ACCEPT" for match in _matches(block)]
    if operation == "add":
        return "; ".join(f"{command} -I {rule}" for rule in rules)
    return "; ".join(f"! {command} -C {rule} 2>/dev/null || {command} -D {rule}" for rule in rules)


def _matches(block: BlockedConnections) -> list[str]:
    """Of as many ports as one rule takes."""
    if block.stage in _FOR_ALL:
        return list(_FOR_ALL[block.stage][1])
    end = "-d" if block.outgoing else "-s"
    parts = _format_spans(block.ports, ":")
    match = f"-p tcp {end} {','.join(networks(block.addresses))} -m multiport --dports"
    return [f"{match} {','.join(parts[at : at + 7])}" for at in range(0, len(parts), 7)]


def _command(block: BlockedConnections) -> str:
    table = block.positions[0].table
    command = {"ip6": "ip6tables", "arp": "arptables", "bridge": "ebtables"}.get(table.family, "iptables")
    command += "-legacy" if table.tool == "iptables-legacy" else ""
    return command + ("" if table.name == "filter" else f" -t {table.name}")


_FOR_ALL: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "later": ("ct state established,related", ("-m conntrack --ctstate ESTABLISHED,RELATED",)),
    "arp": ("arp operation { request, reply }", ("--opcode 1", "--opcode 2")),
    "discovery": (
        "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert }",
        ("-p ipv6-icmp --icmpv6-type 135", "-p ipv6-icmp --icmpv6-type 136"),
    ),
}
"""What is accepted whoever sends it, in the words of nft and of iptables."""


_WAYS: Mapping[str, Callable[[BlockedConnections, Operation], str]] = {
    "nft": _nft,
    "iptables": _iptables,
    "ufw": _ufw,
    "firewalld": _firewalld,
    "firewalld-policy": _firewalld,
}
