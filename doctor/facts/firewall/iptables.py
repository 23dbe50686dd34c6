"""Reads ``iptables-save`` and ``ip6tables-save``, and the sets of ``ipset save``."""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from doctor.engine.fact import Unreadable
from doctor.facts.firewall.packets import NEVER, All, Condition, Is, Named, Not, OneOf, Ranges, Unclear, ranges
from doctor.facts.firewall.rules import Act, Chain, Lookup, Odd, Rule, Step, Table, Tool
from doctor.facts.firewall.words import FLAGS, KINDS, PROTOCOLS, STATES, STATUSES, network_span

HOOKS = {
    "PREROUTING": "prerouting", "INPUT": "input", "OUTPUT": "output", "POSTROUTING": "postrouting",
    "FORWARD": "forward",
}  # fmt: skip
PRIORITIES = {"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}
GOING_ON = frozenset(
    (
        *("LOG", "NFLOG", "ULOG", "TCPMSS", "DSCP", "TOS", "TTL", "HL", "CHECKSUM", "CLASSIFY", "SECMARK"),
        *("CONNSECMARK", "AUDIT", "TRACE", "TEE", "IDLETIMER", "RATEEST", "SET", "LED", "ECN", "TCPOPTSTRIP", "HMARK"),
    )
)
ENDS = {
    "ACCEPT": "accept",
    "DROP": "block",
    "REJECT": "block",
    "RETURN": "return",
    "SNAT": "accept",
    "MASQUERADE": "accept",
}


@lru_cache(maxsize=256)
def read_saved(saved: str, tool: Tool, family: str, sets: tuple[tuple[str, str], ...] = ()) -> tuple[Table, ...]:
    """The tables of an ``iptables-save``.

    Raises: Unreadable when it is not what iptables-save prints.
    """
    tables: list[Table] = []
    chains: dict[str, tuple[str, list[Rule]]] | None = None
    name = ""
    for line in saved.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("*") and chains is None:
            name, chains = line[1:], {}
        elif line == "COMMIT" and chains is not None:
            tables.append(_table(tool, family, name, chains, sets))
            chains = None
        elif chains is None or not _into(chains, line):
            raise Unreadable(f"iptables-save: not understood: {line[:80]}")
    if chains is not None:
        raise Unreadable(f"iptables-save: broke off in the table {name}")
    return tuple(tables)


def _into(chains: dict[str, tuple[str, list[Rule]]], line: str) -> bool:
    head = re.fullmatch(r":(\S+) (\S+)(?: \[\d+:\d+\])?", line)
    if head:
        chains[head[1]] = (head[2], [])
        return True
    rule = re.match(r"(?:\[\d+:\d+\] )?(-A (\S+).*)", line)
    if not rule or rule[2] not in chains:
        return False
    chains[rule[2]][1].append(Rule(rule[1], rule[1]))
    return True


def _table(
    tool: Tool,
    family: str,
    name: str,
    chains: Mapping[str, tuple[str, list[Rule]]],
    sets: tuple[tuple[str, str], ...],
) -> Table:
    return Table(tool, family, name, tuple(_chain(name, chain, *said) for chain, said in chains.items()), sets)


def _chain(table: str, name: str, policy: str, rules: Sequence[Rule]) -> Chain:
    if policy == "-":
        return Chain(name, tuple(rules))
    if policy not in ("ACCEPT", "DROP") or name not in HOOKS:
        raise Unreadable(f"iptables-save: not understood: chain {name[:40]} with policy {policy[:40]}")
    source = table == "nat" and name in ("INPUT", "POSTROUTING")
    return Chain(
        name,
        tuple(rules),
        HOOKS[name],
        100 if source else PRIORITIES.get(table, 0),
        policy.lower(),
        "nat" if table == "nat" else "filter",
    )


class _Words:
    """The words of one rule, from left to right."""

    def __init__(self, line: str) -> None:
        self.words = shlex.split(line)[2:]
        self.at = 0

    def next(self) -> str:
        self.at += 1
        return self.words[self.at - 1] if self.at <= len(self.words) else ""

    def negated(self) -> bool:
        if self.at < len(self.words) and self.words[self.at] == "!":
            self.at += 1
            return True
        return False

    def rest(self) -> list[str]:
        return self.words[self.at :]


@lru_cache(maxsize=1 << 16)
def saved_steps(line: str) -> tuple[Step, ...]:
    """What a rule does, step by step."""
    try:
        return tuple(_steps(_Words(line)))
    except ValueError:  # an open quote
        return (Unclear(), Act("unclear"))


def _steps(words: _Words) -> Iterator[Step]:
    module = ""
    while words.rest():
        negated = words.negated()
        option = words.next()
        if option in ("-j", "-g"):
            yield from _target(words.next(), words.rest(), option)
            return
        if option == "-m":
            module = words.next()
            continue
        try:
            test = _condition(module, option, words)
        except (Odd, ValueError, KeyError, IndexError):
            yield from _to_target(words)
            return
        if isinstance(test, Lookup):
            yield msgspec.structs.replace(test, negated=negated)
        else:
            yield Not(test) if negated else test


def _to_target(words: _Words) -> Iterator[Step]:
    """A match that is not understood: whether the rule matches is open, and what it does is not."""
    yield Unclear()
    while words.rest():
        option = words.next()
        if option in ("-j", "-g"):
            yield from _target(words.next(), words.rest(), option)


def _condition(module: str, option: str, words: _Words) -> Condition | Lookup:
    if option in ("-i", "-o"):
        return Named(option[1] + "if", (_pattern(words.next()),))
    if option in ("-s", "-d"):
        return Is(option[1] + "addr", ranges([network_span(words.next())]))
    if option == "-p":
        return _protocol(words.next())
    if option == "-f":
        return NEVER
    return MATCHES[module, option](words)


def _pattern(name: str) -> str:
    return name[:-1] + "*" if name.endswith("+") else name


def _protocol(name: str) -> Condition:
    if name in ("all", "0"):
        return All()
    number = int(name) if name.isdecimal() else PROTOCOLS.get(name, 255)
    return Is("protocol", ((number, number),))


def _ports(text: str) -> Ranges:
    """``22``, ``1024:``, ``:1023``, or several of them with commas."""
    spans = []
    for part in text.split(","):
        low, colon, high = part.partition(":")
        spans.append((int(low or 0), int(high or 65535) if colon else int(low)))
    return ranges(spans)


def _bits(known: Mapping[str, int], text: str) -> int:
    """The bits of a list of names."""
    if text in ("NONE", "ALL"):
        return 0 if text == "NONE" else 0x3F
    whole = 0
    for name in text.split(","):
        whole |= known[name.lower()]
    return whole


def _any_bit(field: str, mask: int) -> Condition:
    return Not(Is(field, ((0, 0),), mask))


def _states(words: _Words) -> Condition:
    """ctstate lists states, and SNAT and DNAT, which are statuses."""
    names = words.next().split(",")
    states = ",".join(name for name in names if name not in ("SNAT", "DNAT"))
    parts = [_any_bit("state", _bits(STATES, states))] if states else []
    parts += [_any_bit("status", STATUSES[name.lower()]) for name in names if name in ("SNAT", "DNAT")]
    return parts[0] if len(parts) == 1 else OneOf(tuple(parts))


def _statuses(words: _Words) -> Condition:
    names = words.next()
    known = {**STATUSES, "seen_reply": 2}
    return Is("status", ((0, 0),)) if names == "NONE" else _any_bit("status", _bits(known, names))


def _flags(words: _Words) -> Condition:
    mask, wanted = _bits(FLAGS, words.next()), _bits(FLAGS, words.next())
    return Is("flags", ((wanted, wanted),), mask)


def _marked(field: str) -> Test:
    def test(words: _Words) -> Condition:
        value, _, mask = words.next().partition("/")
        number = int(value, 0)
        return Is(field, ((number, number),), int(mask, 0) if mask else -1)

    return test


def _between(field: str) -> Test:
    def test(words: _Words) -> Condition:
        low, _, high = words.next().partition("-")
        return Is(field, ranges([(int(ipaddress.ip_address(low)), int(ipaddress.ip_address(high or low)))]))

    return test


def _ported(*fields: str) -> Test:
    def test(words: _Words) -> Condition:
        spans = _ports(words.next())
        return OneOf(tuple(Is(field, spans) for field in fields)) if len(fields) > 1 else Is(fields[0], spans)

    return test


def _listed(field: str, kind: str) -> Test:
    """A list of names, in capitals for route types."""

    def test(words: _Words) -> Condition:
        numbers = [KINDS[kind][name.lower()] for name in words.next().split(",")]
        return Is(field, ranges((number, number) for number in numbers))

    return test


def _nothing(words: _Words) -> Condition:
    """An option that restricts nothing that matters here: a comment."""
    words.next()
    return All()


def _in_set(words: _Words) -> Lookup:
    name = words.next()
    return Lookup(name, words.next())


Test = Callable[[_Words], Condition | Lookup]
SYN = Is("flags", ((2, 2),), FLAGS["syn"] | FLAGS["ack"] | FLAGS["rst"] | FLAGS["fin"])
MATCHES = {
    ("tcp", "--dport"): _ported("dport"),
    ("tcp", "--sport"): _ported("sport"),
    ("tcp", "--tcp-flags"): _flags,
    ("tcp", "--syn"): lambda words: SYN,
    ("multiport", "--dports"): _ported("dport"),
    ("multiport", "--sports"): _ported("sport"),
    ("multiport", "--ports"): _ported("dport", "sport"),
    ("conntrack", "--ctstate"): _states,
    ("conntrack", "--ctstatus"): _statuses,
    ("conntrack", "--ctproto"): lambda words: _protocol(words.next()),
    ("conntrack", "--ctdir"): _listed("direction", "direction"),
    ("state", "--state"): _states,
    ("comment", "--comment"): _nothing,
    ("mark", "--mark"): _marked("mark"),
    ("connmark", "--mark"): _marked("ctmark"),
    ("iprange", "--src-range"): _between("saddr"),
    ("iprange", "--dst-range"): _between("daddr"),
    ("addrtype", "--src-type"): _listed("stype", "route"),
    ("addrtype", "--dst-type"): _listed("dtype", "route"),
    ("addrtype", "--limit-iface-in"): lambda words: All(),
    ("addrtype", "--limit-iface-out"): lambda words: All(),
    ("pkttype", "--pkt-type"): _listed("cast", "cast"),
    ("set", "--match-set"): _in_set,
}


def _target(name: str, rest: Sequence[str], option: str) -> Iterator[Step]:
    if option == "-g":
        yield Act("goto", name)
    elif name in ENDS:
        yield Act(ENDS[name])  # type: ignore[arg-type]
    elif name == "MARK":
        yield _mark(rest)
    elif name == "CONNMARK":
        yield Act("forget", "mark" if "--restore-mark" in rest else "ctmark")
    elif name == "NOTRACK" or (name == "CT" and "--notrack" in rest):
        yield Act("untrack")
    elif name not in GOING_ON and name != "CT":
        # A chain of the table, or a target that hands the packet to something else; the walk knows which.
        yield Act("jump", name)


def _mark(rest: Sequence[str]) -> Act:
    """(mark & ~mask) ^ value, in iptables-save's words."""
    value, _, mask = (rest[1] if len(rest) > 1 else "").partition("/")
    try:
        number, bits = int(value, 0), int(mask, 0) if mask else -1
    except ValueError:
        return Act("forget", "mark")
    if rest[0] == "--set-xmark":
        return Act("mark", keep=~bits, flip=number)
    if rest[0] == "--set-mark":
        return Act("mark", keep=~(bits | number), flip=number)
    if rest[0] == "--and-mark":
        return Act("mark", keep=number)
    if rest[0] == "--or-mark":
        return Act("mark", keep=~number, flip=number)
    return Act("mark", keep=-1, flip=number) if rest[0] == "--xor-mark" else Act("forget", "mark")
