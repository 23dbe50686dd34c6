"""Reads ``iptables-save`` and ``ip6tables-save``, and the sets of ``ipset save``."""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from doctor.engine.fact import Unreadable
from doctor.engine.texts import beginning, filled
from doctor.facts.firewall.packets import (
    NEVER,
    AllOf,
    AnyOf,
    Condition,
    FieldIn,
    InterfaceIn,
    Not,
    Ranges,
    Unclear,
    to_ranges,
)
from doctor.facts.firewall.rules import Action, Chain, Rule, RuleTable, SetLookup, Step, Tool, UnsupportedRule
from doctor.facts.firewall.words import (
    CONNTRACK_STATES,
    CONNTRACK_STATUSES,
    PROTOCOLS,
    TCP_FLAGS,
    VALUES_BY_KIND,
    network_span,
)

HOOKS = {
    "PREROUTING": "prerouting", "INPUT": "input", "OUTPUT": "output", "POSTROUTING": "postrouting",
    "FORWARD": "forward",
}  # fmt: skip
TABLE_PRIORITIES = {"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}
NON_TERMINAL_TARGETS = frozenset(
    (
        *(
            "LOG",
            "NFLOG",
            "ULOG",
            "TCPMSS",
            "DSCP",
            "TOS",
            "TTL",
            "HL",
            "CHECKSUM",
            "CLASSIFY",
            "SECMARK",
            "LED",
            "ECN",
        ),
        *("CONNSECMARK", "AUDIT", "TRACE", "TEE", "IDLETIMER", "RATEEST", "SET", "TCPOPTSTRIP", "HMARK", "CONTINUE"),
    )
)
TERMINAL_ACTIONS = {
    "ACCEPT": "accept",
    "DROP": "block",
    "REJECT": "block",
    "RETURN": "return",
    "SNAT": "accept",
    "MASQUERADE": "accept",
}


@lru_cache(maxsize=256)
def parse_iptables_save(
    saved: str, tool: Tool, family: str, sets: tuple[tuple[str, str], ...] = ()
) -> tuple[RuleTable, ...]:
    """The tables of an ``iptables-save``.

    Raises: Unreadable when it is not what iptables-save prints.
    """
    tables: list[RuleTable] = []
    chains: dict[str, tuple[str, list[Rule]]] | None = None
    name, module = "", {"arp": "arp", "bridge": "ether"}.get(family, "")
    if saved.startswith("Chain "):
        saved = _listed_as_saved(saved)
    if module and "\nCOMMIT" not in saved:  # arptables-save and ebtables-save end a table where the next one begins
        saved = "".join(f"*{table.rstrip()}\nCOMMIT\n" for table in re.split(r"(?m)^\*", saved)[1:])
    for line in saved.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("*") and chains is None:
            name, chains = line[1:], {}
        elif line == "COMMIT" and chains is not None:
            built = tuple(_build_chain(name, chain, *contents) for chain, contents in chains.items())
            tables.append(RuleTable(tool, family, name, built, sets))
            chains = None
        elif chains is None or not _add_line(chains, line, module):
            raise Unreadable(filled("iptables-save: not understood: {0}", beginning(line, 80)))
    if chains is not None:
        raise Unreadable(filled("iptables-save: incomplete output in the table {0}", name))
    return tuple(tables)


def _listed_as_saved(listing: str) -> str:
    """What ``arptables -L`` prints, as arptables-save does."""
    heads, rules, name = [], [], ""
    for line in listing.splitlines():
        head = re.match(r"Chain (\S+) \((?:policy )?([A-Z]*)", line)
        if head:
            name = head[1]
            heads.append(f":{name} {head[2] or '-'}")
        elif line.strip():
            rules.append(f"-A {name} {line.strip()}")
    return "\n".join(("*filter", *heads, *rules))


def _add_line(chains: dict[str, tuple[str, list[Rule]]], line: str, module: str) -> bool:
    """``module``: that of options without one, of arptables and ebtables; the former print the target first."""
    head = re.fullmatch(r":(\S+) (\S+)(?: \[\d+:\d+\])?", line)
    if head:
        chains[head[1]] = (head[2], [])
        return True
    rule = re.match(r"(?:\[\d+:\d+\] )?(-A (\S+).*)", line)
    if not rule or rule[2] not in chains:
        return False
    source = re.sub(r"^(-A \S+)( -j \S+)?(.*)", rf"\1 -m {module}\3\2", rule[1]) if module else rule[1]
    source = re.sub("--(?:arp-ip|ip6)-", "--ip-", source) if module == "ether" else source
    chains[rule[2]][1].append(Rule(rule[1], source))
    return True


def _build_chain(table: str, name: str, policy: str, rules: Sequence[Rule]) -> Chain:
    if policy == "-":
        return Chain(name, tuple(rules))
    if policy not in ("ACCEPT", "DROP") or name not in HOOKS:
        raise Unreadable(
            filled(
                "iptables-save: not understood: chain {0} with policy {1}", beginning(name, 40), beginning(policy, 40)
            )
        )
    source = table == "nat" and name in ("INPUT", "POSTROUTING")
    return Chain(
        name,
        tuple(rules),
        HOOKS[name],
        100 if source else TABLE_PRIORITIES.get(table, 0),
        policy.lower(),
        "nat" if table == "nat" else "filter",
    )


class _RuleTokens:
    """The words of one rule, from left to right."""

    def __init__(self, line: str) -> None:
        self.tokens = shlex.split(line)[2:]
        self.position = 0

    def next_token(self) -> str:
        self.position += 1
        return self.tokens[self.position - 1] if self.position <= len(self.tokens) else ""

    def take_negation(self) -> bool:
        if self.position < len(self.tokens) and self.tokens[self.position] == "!":
            self.position += 1
            return True
        return False

    def skip_to(self, options: Sequence[str]) -> None:
        while self.position < len(self.tokens) and self.tokens[self.position] not in options:
            self.position += 1

    def remaining(self) -> list[str]:
        return self.tokens[self.position :]


@lru_cache(maxsize=1 << 16)
def iptables_steps(line: str) -> tuple[Step, ...]:
    """What a rule does, step by step."""
    try:
        return tuple(_rule_steps(_RuleTokens(line)))
    except ValueError:  # an open quote
        return (Unclear(), Action("unclear"))


def _rule_steps(tokens: _RuleTokens) -> Iterator[Step]:
    module = ""
    while tokens.remaining():
        negated = tokens.take_negation()
        option = tokens.next_token()
        if option in ("-j", "-g"):
            yield from _target_steps(tokens.next_token(), tokens.remaining(), option)
            return
        if option == "-m":
            module = tokens.next_token()
            continue
        try:
            test = _parse_match(module, option, tokens)
        except (UnsupportedRule, ValueError, KeyError, IndexError):
            # Whether this match fits is not known; those behind it still narrow what the rule is for.
            yield Unclear()
            tokens.skip_to(("-m", "-j", "-g"))
            continue
        if isinstance(test, SetLookup):
            yield msgspec.structs.replace(test, negated=negated)
        else:
            yield Not(test) if negated else test


def _parse_match(module: str, option: str, tokens: _RuleTokens) -> Condition | SetLookup:
    if (module, option) in MATCH_PARSERS:
        return MATCH_PARSERS[module, option](tokens)
    if option in ("-i", "-o"):
        return InterfaceIn(option[1] + "if", (re.sub(r"\+\Z", "*", tokens.next_token()),))
    if option in ("-s", "-d") and module != "ether":  # whose card it is, is not known here
        return FieldIn(option[1] + "addr", to_ranges([network_span(tokens.next_token())]))
    if option == "-p":
        return _protocol_condition(tokens.next_token())
    if option == "-f":
        return NEVER
    raise UnsupportedRule(option)


def _protocol_condition(name: str) -> Condition:
    if name in ("all", "0"):
        return AllOf()
    number = int(name) if name.isdecimal() else PROTOCOLS.get(name, 255)
    return FieldIn("protocol", ((number, number),))


def _parse_ports(text: str) -> Ranges:
    """``22``, ``1024:``, ``:1023``, or several of them with commas."""
    spans = []
    for part in text.split(","):
        low, colon, high = part.partition(":")
        spans.append((int(low or 0), int(high or 65535) if colon else int(low)))
    return to_ranges(spans)


def _combine_bits(values_by_name: Mapping[str, int], text: str) -> int:
    """The bits of a list of names."""
    if text in ("NONE", "ALL"):
        return 0 if text == "NONE" else 0x3F
    combined = 0
    for name in text.split(","):
        combined |= values_by_name[name.lower()]
    return combined


def _any_bit(field: str, mask: int) -> Condition:
    return Not(FieldIn(field, ((0, 0),), mask))


def _state_test(tokens: _RuleTokens) -> Condition:
    """A --ctstate lists states, and SNAT and DNAT, which are statuses."""
    names = tokens.next_token().split(",")
    states = ",".join(name for name in names if name not in ("SNAT", "DNAT"))
    parts = [_any_bit("state", _combine_bits(CONNTRACK_STATES, states))] if states else []
    parts += [_any_bit("status", CONNTRACK_STATUSES[name.lower()]) for name in names if name in ("SNAT", "DNAT")]
    return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))


def _status_test(tokens: _RuleTokens) -> Condition:
    names = tokens.next_token()
    statuses = {**CONNTRACK_STATUSES, "seen_reply": 2}
    return FieldIn("status", ((0, 0),)) if names == "NONE" else _any_bit("status", _combine_bits(statuses, names))


def _flags_test(tokens: _RuleTokens) -> Condition:
    mask, expected = _combine_bits(TCP_FLAGS, tokens.next_token()), _combine_bits(TCP_FLAGS, tokens.next_token())
    return FieldIn("flags", ((expected, expected),), mask)


def _mark_test(field: str) -> Test:
    def test(tokens: _RuleTokens) -> Condition:
        value, _, mask = tokens.next_token().partition("/")
        number = int(value, 0)
        return FieldIn(field, ((number, number),), int(mask, 0) if mask else -1)

    return test


def _address_range_test(field: str) -> Test:
    def test(tokens: _RuleTokens) -> Condition:
        low, _, high = tokens.next_token().partition("-")
        return FieldIn(field, to_ranges([(int(ipaddress.ip_address(low)), int(ipaddress.ip_address(high or low)))]))

    return test


def _port_test(*fields: str) -> Test:
    def test(tokens: _RuleTokens) -> Condition:
        spans = _parse_ports(tokens.next_token())
        return AnyOf(tuple(FieldIn(field, spans) for field in fields)) if len(fields) > 1 else FieldIn(fields[0], spans)

    return test


def _ignore_value(tokens: _RuleTokens) -> Condition:
    """An option that restricts nothing that matters here: a comment."""
    tokens.next_token()
    return AllOf()


def _set_lookup(tokens: _RuleTokens) -> SetLookup:
    name = tokens.next_token()
    return SetLookup(name, tokens.next_token())


def _number_test(field: str, kind: str = "number") -> Test:
    """Names, numbers or addresses, behind ``!`` in ebtables; a type of ICMP may have its code behind it."""

    def test(tokens: _RuleTokens) -> Condition:
        negated = tokens.take_negation()
        texts = tokens.next_token().lower().split(",")
        if kind == "address":
            spans = [network_span(text) for text in texts]
        else:
            names = VALUES_BY_KIND[kind]
            spans = [2 * (names[text] if text in names else int(text.partition("/")[0], 0),) for text in texts]
        held = FieldIn(field, to_ranges(spans))
        return Not(held) if negated else held

    return test


Test = Callable[[_RuleTokens], Condition | SetLookup]
SYN_MATCH = FieldIn("flags", ((2, 2),), TCP_FLAGS["syn"] | TCP_FLAGS["ack"] | TCP_FLAGS["rst"] | TCP_FLAGS["fin"])
MATCH_PARSERS = {
    ("tcp", "--dport"): _port_test("dport"),
    ("tcp", "--sport"): _port_test("sport"),
    ("tcp", "--tcp-flags"): _flags_test,
    ("tcp", "--syn"): lambda tokens: SYN_MATCH,
    ("length", "--length"): _port_test("length"),
    ("multiport", "--dports"): _port_test("dport"),
    ("multiport", "--sports"): _port_test("sport"),
    ("multiport", "--ports"): _port_test("dport", "sport"),
    ("conntrack", "--ctstate"): _state_test,
    ("conntrack", "--ctstatus"): _status_test,
    ("conntrack", "--ctproto"): lambda tokens: _protocol_condition(tokens.next_token()),
    ("conntrack", "--ctdir"): _number_test("direction", "direction"),
    ("state", "--state"): _state_test,
    ("comment", "--comment"): _ignore_value,
    ("mark", "--mark"): _mark_test("mark"),
    ("connmark", "--mark"): _mark_test("ctmark"),
    ("iprange", "--src-range"): _address_range_test("saddr"),
    ("iprange", "--dst-range"): _address_range_test("daddr"),
    ("addrtype", "--src-type"): _number_test("stype", "route"),
    ("addrtype", "--dst-type"): _number_test("dtype", "route"),
    ("addrtype", "--limit-iface-in"): lambda tokens: AllOf(),
    ("addrtype", "--limit-iface-out"): lambda tokens: AllOf(),
    ("pkttype", "--pkt-type"): _number_test("cast", "cast"),
    ("set", "--match-set"): _set_lookup,
    ("icmp6", "--icmpv6-type"): _number_test("icmptype", "icmp6"),
    ("hl", "--hl-eq"): _number_test("hoplimit"),
    ("arp", "--opcode"): _number_test("operation", "operation"),
    ("ether", "-p"): _number_test("family", "family"),
    ("ether", "--arp-op"): _number_test("operation", "operation"),
    ("ether", "--ip-src"): _number_test("saddr", "address"),
    ("ether", "--ip-dst"): _number_test("daddr", "address"),
    ("ether", "--ip-proto"): _number_test("protocol", "protocol"),
    ("ether", "--ip-sport"): _port_test("sport"),
    ("ether", "--ip-dport"): _port_test("dport"),
}


def _target_steps(name: str, rest: Sequence[str], option: str) -> Iterator[Step]:
    if option == "-g":
        yield Action("goto", name)
    elif name in TERMINAL_ACTIONS:
        yield Action(TERMINAL_ACTIONS[name])  # type: ignore[arg-type]
    elif name == "MARK":
        yield _mark_action(rest)
    elif name == "CONNMARK":
        yield Action("forget", "mark" if "--restore-mark" in rest else "ctmark")
    elif name == "NOTRACK" or (name == "CT" and "--notrack" in rest):
        yield Action("untrack")
    elif name not in NON_TERMINAL_TARGETS and name != "CT":
        # A chain of the table, or a target that hands the packet to something else; the walk knows which.
        yield Action("jump", name)


def _mark_action(rest: Sequence[str]) -> Action:
    """(mark & ~mask) ^ value, in iptables-save's words."""
    value, _, mask = (rest[1] if len(rest) > 1 else "").partition("/")
    try:
        number, bits = int(value, 0), int(mask, 0) if mask else -1
    except ValueError:
        return Action("forget", "mark")
    if rest[0] == "--set-xmark":
        return Action("mark", keep_bits=~bits, flip_bits=number)
    if rest[0] == "--set-mark":
        return Action("mark", keep_bits=~(bits | number), flip_bits=number)
    if rest[0] == "--and-mark":
        return Action("mark", keep_bits=number)
    if rest[0] == "--or-mark":
        return Action("mark", keep_bits=~number, flip_bits=number)
    return Action("mark", keep_bits=-1, flip_bits=number) if rest[0] == "--xor-mark" else Action("forget", "mark")
