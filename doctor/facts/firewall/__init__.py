"""The rules of a host's firewall: nftables, and iptables in both its kinds. ufw and firewalld end up in one of them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from doctor.engine.addresses import plain_address
from doctor.engine.decoding import StreamTooLarge, inflate
from doctor.engine.fact import Absent, Fact, Output, ProbeAnswer, Unreadable, ask, unusable_reason
from doctor.engine.texts import filled, joined
from doctor.facts.firewall.host_rules import TOOLS, list_rules
from doctor.facts.firewall.ipset import parse_ipsets
from doctor.facts.firewall.iptables import parse_iptables_save
from doctor.facts.firewall.rules import Chain, Rule, RuleTable, Tool, is_deletable
from doctor.facts.firewall.words import single_item

NEEDS_ROOT = "only root may read the firewall's rules: log in as root, or use --sudo"
NO_RIGHT = "root of this container may not read firewall rules (CAP_NET_ADMIN); those of its host are read there"
MAX_OUTPUT_BYTES = 64 << 20


@lru_cache(maxsize=256)
def parse_nft(listing: str, text_listing: str = "") -> tuple[RuleTable, ...]:
    """The tables of a JSON listing; ``text_listing`` is ``nft -a list ruleset``, for the rules' own words.

    Raises: Unreadable when the listing is not what nft prints.
    """
    try:
        parts = msgspec.json.decode(listing)["nftables"]
        return tuple(_build_tables([single_item(part) for part in parts], _rule_texts(text_listing)))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(filled("nft -j list ruleset: not understood: {0}: {1}", type(error).__name__, error)) from None


def _build_tables(parts: Sequence[tuple[str, Any]], texts: Mapping[tuple[str, str, int], str]) -> Iterator[RuleTable]:
    chains: dict[tuple[str, str], dict[str, Chain]] = {}
    rules: dict[tuple[str, str, str], list[Rule]] = {}
    sets: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for kind, properties in parts:
        if kind == "table":
            chains[properties["family"], properties["name"]] = {}
        elif kind == "chain":
            chains[properties["family"], properties["table"]][properties["name"]] = _build_chain(properties)
        elif kind == "rule":
            text = texts.get((properties["family"], properties["table"], properties["handle"]), "")
            rules.setdefault((properties["family"], properties["table"], properties["chain"]), []).append(
                _build_rule(properties["expr"], text, int(properties["handle"]))
            )
        elif kind in ("set", "map"):
            held = msgspec.json.encode(properties.get("elem", [])).decode()
            sets.setdefault((properties["family"], properties["table"]), []).append((properties["name"], held))
    for (family, name), named in chains.items():
        filled = tuple(
            msgspec.structs.replace(chain, rules=tuple(rules.get((family, name, chain.name), ())))
            for chain in named.values()
        )
        yield RuleTable("nft", family, name, filled, tuple(sets.get((family, name), ())))


def _build_chain(properties: Mapping[str, Any]) -> Chain:
    devices = properties.get("dev", properties.get("devices", []))
    policy = properties.get("policy", "accept")
    if policy not in ("accept", "drop"):
        raise ValueError(f"policy {policy!r}")
    return Chain(
        name=str(properties["name"]),
        hook=str(properties.get("hook", "")),
        priority=int(properties.get("prio", 0)),
        policy=policy,
        kind=str(properties.get("type", "filter")),
        devices=(devices,) if isinstance(devices, str) else tuple(map(str, devices)),
    )


def _build_rule(parts: list[Any], text: str, handle: int) -> Rule:
    """Counters are left out, and most handles: with them no two hosts would have one rule set."""
    kept = [part for part in parts if single_item(part)[0] != "counter"]
    source = msgspec.json.encode(kept).decode()
    return Rule(text or source, source, handle if is_deletable(source) else 0)


def _rule_texts(text_listing: str) -> dict[tuple[str, str, int], str]:
    """Each rule in nft's words, by family, table and handle."""
    texts: dict[tuple[str, str, int], str] = {}
    family = table = ""
    for line in text_listing.splitlines():
        head = re.match(r"table (\w+) (\S+) {", line)
        if head:
            family, table = head[1], head[2].strip('"')
        body = re.fullmatch(r"\t\t(.*) # handle (\d+)", line)
        if body:
            texts[family, table, int(body[2])] = body[1]
    return texts


class FirewallDump(msgspec.Struct, frozen=True):
    """What `list_rules` and `list_boot_rules` return."""

    outputs: dict[str, Output]
    tables: list[tuple[str, str]]
    legacy: dict[str, list[str]]
    local: list[str]
    bridges: list[str]
    refused: bool
    error: str
    without_arp: list[str] = []
    root: bool = False
    """The user is root, who can be refused only in a container, or root could read no more in this container."""
    failed: list[str] = []
    """At boot: what could not be loaded."""
    unclear: list[list[str]] = []
    """At boot: a script that is run, and why it cannot be followed where it loads rules itself."""
    idle: list[str] = []
    """At boot: services that have a file of rules and are not started."""


class FirewallRules(Fact, frozen=True):
    r"""All packet filter rules of a host, of nftables and of iptables, as its kernel holds them.

    Raw output, as JSON::

        {"outputs": {"iptables-legacy": {"out":
            "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n"}},
         "tables": [], "legacy": {"ip": ["filter"], "ip6": []}, "bridges": [],
         "error": "", "refused": false, "local": ["127.0.0.1"]}
    """  # noqa: E501

    probe = ask(list_rules, root=True, timeout=40)

    tables: tuple[RuleTable, ...]
    """Those that hold rules or chains; none at all on a host without a firewall."""
    local_addresses: tuple[str, ...]
    """The addresses of the network namespace that these rules are for."""
    bridges: tuple[str, ...]
    without_arp: tuple[str, ...] = ()
    """Interfaces that ask for no hardware address, such as those of tunnels."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> FirewallRules:
        dump = msgspec.convert(answer.json(), FirewallDump)
        return cls.from_dump(dump)

    @classmethod
    def from_dump(cls, dump: FirewallDump) -> FirewallRules:
        """Raises: Absent; Unreadable."""
        if dump.error:
            if dump.refused and dump.root:
                raise Absent(NO_RIGHT)
            raise Unreadable(NEEDS_ROOT if dump.refused else dump.error, by_trial=dump.refused)
        if not dump.local:
            raise Unreadable("the kernel lists no address of the host")
        for address in dump.local:
            plain_address(address)
        unread: dict[str, str] = {}
        rule_tables = (*_nft_tables(dump, unread), *_legacy_tables(dump, unread))
        names = tuple(dump.bridges), tuple(dump.without_arp)
        return cls(rule_tables, tuple(dump.local), *names, unread=unread)


def _nft_tables(dump: FirewallDump, unread: dict[str, str]) -> Iterator[RuleTable]:
    """The tables in nftables: as nft lists them, or as iptables does where nft cannot express their rules."""
    if not dump.tables:
        return
    listed, why_nft = _listed_tables(dump.outputs)
    saved, why_saved = _saved_tables(dump, "iptables", "(nf_tables)")
    for key in dump.tables:
        table = listed.get(key)
        if table is not None and not (_has_opaque_matches(table) and key in saved):
            yield table
        elif key in saved:
            yield saved[key]
        else:
            unread[filled("table {0}", " ".join(key))] = joined("; ", filter(None, (why_nft, why_saved)))


def _has_opaque_matches(table: RuleTable) -> bool:
    """Of iptables' own matches nft knows the names, and not what they are to match."""
    return any('{"xt":' in rule.source for chain in table.chains for rule in chain.rules)


def _listed_tables(outputs: Mapping[str, Output]) -> tuple[dict[tuple[str, str], RuleTable], str]:
    """The tables by family and name, or why nft did not list them."""
    json_listing, why = _tool_output(outputs, "nft")
    if why:
        return {}, why
    text_listing, _ = _tool_output(outputs, "nft -a")
    return {(table.family, table.name): table for table in parse_nft(json_listing, text_listing)}, ""


def _saved_tables(dump: FirewallDump, command: str, kind: str) -> tuple[dict[tuple[str, str], RuleTable], str]:
    """The tables that iptables-save and ip6tables-save list, when they are of the requested kind."""
    tables, why = {}, ""
    sets = parse_ipsets(_tool_output(dump.outputs, "ipset")[0])
    tool: Tool = "iptables-legacy" if command.endswith("legacy") else "iptables"
    for family, of_family in TOOLS:
        saved_text, failed = _tool_output(dump.outputs, command.replace("iptables", of_family))
        first = saved_text.partition("\n")[0]
        if failed or (("(nf_tables)" in first) != (kind == "(nf_tables)")):
            why = failed or why
            continue
        for table in parse_iptables_save(saved_text, tool, family, sets):
            tables[family, table.name] = table
    return tables, why


def _legacy_tables(dump: FirewallDump, unread: dict[str, str]) -> Iterator[RuleTable]:
    saved, why = _saved_tables(dump, "iptables-legacy", "")
    for family, names in dump.legacy.items():
        for name in names:
            if (family, name) in saved:
                yield saved[family, name]
            else:
                unread[filled("table {0} of legacy {1}tables", name, family)] = (
                    why or "not in the output of iptables-save"
                )


def _tool_output(outputs: Mapping[str, Output], name: str) -> tuple[str, str]:
    """What a tool printed, or why there is nothing."""
    if name not in outputs:
        return "", ""
    output = outputs[name]
    if output.ended == "absent":
        return "", filled("{0} is not installed", name.partition(" ")[0])
    why = unusable_reason(output)
    if why:
        return "", NEEDS_ROOT if "not permitted" in why or "ermission denied" in why else why
    if not output.out.startswith("zlib:"):
        return output.out, ""
    try:
        content = inflate(base64.b64decode(output.out[5:], validate=True), MAX_OUTPUT_BYTES)
    except StreamTooLarge:
        return "", filled("{0}: more than 64 MiB", name)
    except ValueError as error:
        return "", filled("{0}: {1}", name, error)
    return content.decode("utf-8", "replace"), ""
