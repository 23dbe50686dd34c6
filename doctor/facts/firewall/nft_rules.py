"""What the rules of ``nft -j list ruleset`` do, step by step."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from doctor.facts.firewall.packets import (
    ALWAYS,
    ARP,
    NEVER,
    NUMBER_LIMIT,
    Condition,
    FieldIn,
    InterfaceIn,
    Not,
    Unclear,
    any_row_matches,
    to_ranges,
)
from doctor.facts.firewall.rules import Action, SetLookup, Step, UnsupportedRule, VerdictMap
from doctor.facts.firewall.words import VALUES_BY_KIND, network_span, single_item

META_FIELDS = {
    "l4proto": ("protocol", "protocol"),
    "nfproto": ("family", "family"),
    "protocol": ("family", "family"),
    "mark": ("mark", "number"),
    "length": ("length", "number"),
    "pkttype": ("cast", "cast"),
    "iif": ("iif", "name"),
    "iifname": ("iif", "name"),
    "oif": ("oif", "name"),
    "oifname": ("oif", "name"),
}
IP_FIELDS = {
    "saddr": ("saddr", "address"),
    "daddr": ("daddr", "address"),
    "protocol": ("protocol", "protocol"),
    "nexthdr": ("protocol", "protocol"),
    "hoplimit": ("hoplimit", "number"),
}
ARP_FIELDS = {
    **{name: (name, "address") for name in ("saddr", "daddr")},
    **{name: (name, "number") for name in ("htype", "hlen", "plen")},
    "operation": ("operation", "operation"),
    "ptype": ("ptype", "family"),
}
TCP_FIELDS = {"sport": ("sport", "number"), "dport": ("dport", "number"), "flags": ("flags", "flags")}
CONNTRACK_FIELDS = {
    "state": ("state", "state"),
    "status": ("status", "status"),
    "direction": ("direction", "direction"),
    "mark": ("ctmark", "number"),
    "l3proto": ("family", "family"),
    "protocol": ("protocol", "protocol"),
    "proto": ("protocol", "protocol"),
}
IGNORED_STATEMENTS = frozenset(
    ["counter", "log", "last", "dup", "flow", "ct helper", "ct timeout", "ct expectation", "secmark", "reset"]
)
UNCLEAR_STATEMENTS = frozenset(["limit", "quota", "ct count", "meter"])
OTHER_PROTOCOLS = frozenset(
    ["udp", "udplite", "icmp", "igmp", "sctp", "dccp", "ah", "esp", "comp", "gre", "gretap", "vxlan"]
)


class PacketKey(msgspec.Struct, frozen=True):
    """What a condition compares."""

    field: str
    """Empty when it is nothing that is known of a packet."""
    kind: str = ""
    implied: tuple[Condition, ...] = ()
    """What nft itself takes for granted: ``ip saddr`` never holds for an IPv6 packet, ``!=`` included."""
    mask: int = -1


@lru_cache(maxsize=1 << 16)
def nft_steps(source: str) -> tuple[Step, ...]:
    """What a rule does, step by step."""
    return tuple(step for part in msgspec.json.decode(source) for step in _statement_steps(part))


def _statement_steps(part: Mapping[str, Any]) -> Iterator[Step]:
    kind, operand = single_item(part)
    try:
        yield from _known_statement_steps(kind, operand)
    except (UnsupportedRule, KeyError, TypeError, ValueError, AttributeError):
        # Whether it matches, and what it then does, are both open.
        yield Unclear()
        if kind not in ("match", "set", "map"):
            yield Action("unclear")


def _known_statement_steps(kind: str, operand: Any) -> Iterator[Step]:
    if kind == "match":
        yield from _match_steps(operand["op"], operand["left"], operand["right"])
    elif kind in ("accept", "drop", "reject", "return", "continue", "jump", "goto"):
        yield _verdict_action(kind, operand)
    elif kind == "vmap":
        yield from _vmap_steps(operand["key"], operand["data"])
    elif kind == "mangle":
        yield from _mangle_steps(operand["key"], operand["value"])
    elif kind in ("set", "map"):
        if operand.get("stmt"):
            yield Unclear()
    elif kind in UNCLEAR_STATEMENTS:
        yield Unclear()
    elif kind == "notrack":
        yield Action("untrack")
    elif kind in ("snat", "masquerade"):
        yield Action("accept")
    elif kind == "xt" and operand.get("name") == "comment":
        return
    elif kind not in IGNORED_STATEMENTS:
        # Redirected, queued to a program, taken by a proxy, or a statement of a newer nft.
        raise UnsupportedRule(kind)


def _verdict_action(kind: str, operand: Any) -> Action:
    if kind in ("jump", "goto"):
        return Action(kind, operand["target"])  # type: ignore[arg-type]
    if kind in ("accept", "return", "continue"):
        return Action(kind)  # type: ignore[arg-type]
    return Action("block") if kind in ("drop", "reject") else Action("unclear")


def _vmap_steps(key: Any, data: Any) -> Iterator[Step]:
    written = msgspec.json.encode(key).decode()
    if isinstance(data, str):
        yield SetLookup(data.lstrip("@"), written, is_verdict_map=True)
    else:
        yield from nft_lookup(written, msgspec.json.encode(data["set"]).decode(), False, True)


@lru_cache(maxsize=1 << 12)
def nft_lookup(key: str, held: str, negated: bool, choose: bool) -> tuple[Step, ...]:
    """The steps of a match against a set that holds these elements."""
    expression, elements = msgspec.json.decode(key), msgspec.json.decode(held)
    try:
        if not choose:
            return _membership_conditions(expression, elements, negated)
        needs = tuple(need for key_part in _parse_keys(expression) for need in key_part.implied)
        choices = tuple(
            (_elements_condition(expression, [_element_value(element)]), _verdict_action(*single_item(action)))
            for element, action in elements
        )
        return (*needs, VerdictMap(choices))
    except (UnsupportedRule, KeyError, TypeError, ValueError, AttributeError):
        return (Unclear(), Action("unclear")) if choose else (Unclear(),)


def _match_steps(op: str, expression: Any, right: Any) -> Iterator[Step]:
    negated = op == "!="
    if isinstance(right, str) and right.startswith("@"):
        yield SetLookup(right[1:], msgspec.json.encode(expression).decode(), negated)
    elif isinstance(right, dict) and "set" in right:
        held = right["set"]
        yield from _membership_conditions(expression, held if isinstance(held, list) else [held], negated)
    elif op in ("==", "!="):
        yield from _membership_conditions(expression, [right], negated)
    else:
        (key,) = _parse_keys(expression)
        yield from key.implied
        yield _compare(key, op, right)


def _compare(key: PacketKey, op: str, right: Any) -> Condition:
    if not key.field or key.kind == "name":
        return Unclear()
    if op == "in":
        return Not(FieldIn(key.field, ((0, 0),), _to_number(key.kind, right)))
    low, high = _value_span(key.kind, right)
    spans = {"<": (0, low - 1), "<=": (0, high), ">": (high + 1, NUMBER_LIMIT), ">=": (low, NUMBER_LIMIT)}
    return FieldIn(key.field, to_ranges([spans[op]]), key.mask)


def _membership_conditions(expression: Any, elements: Sequence[Any], negated: bool) -> tuple[Condition, ...]:
    needs = tuple(need for key in _parse_keys(expression) for need in key.implied)
    test = _elements_condition(expression, [_element_value(element) for element in elements])
    return (*needs, Not(test) if negated else test)


def _element_value(element: Any) -> Any:
    """An element without its comment and timeout."""
    return element["elem"]["val"] if isinstance(element, dict) and "elem" in element else element


def _elements_condition(expression: Any, elements: Sequence[Any]) -> Condition:
    if "*" in elements:
        return ALWAYS
    keys = _parse_keys(expression)
    if len(keys) > 1:
        return any_row_matches(tuple(map(_key_condition, keys, element["concat"])) for element in elements)
    return _key_condition(keys[0], *elements)


def _key_condition(key: PacketKey, *elements: Any) -> Condition:
    """The key holds one of the elements."""
    if not key.field:
        return Unclear()
    if key.kind == "name":
        return InterfaceIn(key.field, tuple(str(element) for element in elements))
    return FieldIn(key.field, to_ranges(_value_span(key.kind, element) for element in elements), key.mask)


def _parse_keys(expression: Any) -> list[PacketKey]:
    if isinstance(expression, dict) and "concat" in expression:
        return [_parse_key(part) for part in expression["concat"]]
    return [_parse_key(expression)]


def _parse_key(expression: Mapping[str, Any]) -> PacketKey:
    kind, operand = single_item(expression)
    if kind == "&":
        inner = _parse_key(operand[0])
        return msgspec.structs.replace(inner, mask=_to_number(inner.kind, operand[1])) if inner.field else inner
    if kind == "meta":
        return PacketKey(*META_FIELDS.get(operand["key"], ("", "")))
    if kind == "ct" and "dir" not in operand:
        return PacketKey(*CONNTRACK_FIELDS.get(operand["key"], ("", "")))
    if operand == {"protocol": "ether", "field": "type"}:
        return PacketKey("family", "family")
    if kind == "payload" and "protocol" in operand:
        return _payload_key(operand["protocol"], operand["field"])
    if kind == "fib":
        return _fib_key(operand)
    if kind == "exthdr":
        # The job's packets carry no extension header: none exists, and no field of one holds anything.
        return PacketKey("", implied=(NEVER,)) if "field" in operand else PacketKey("extension", "number")
    return PacketKey("")


def _payload_key(protocol: str, field: str) -> PacketKey:
    if protocol in OTHER_PROTOCOLS:
        return PacketKey("", implied=(NEVER,))
    if protocol in ("ip", "ip6"):
        family = 4 if protocol == "ip" else 6
        fields = {**IP_FIELDS, "length": ("length", "number")} if family == 4 else IP_FIELDS
        return PacketKey(*fields.get(field, ("", "")), implied=(FieldIn("family", ((family, family),)),))
    if protocol == "arp":
        return PacketKey(
            *ARP_FIELDS.get(field.removesuffix(" ip"), ("", "")), implied=(FieldIn("family", ((ARP, ARP),)),)
        )
    if protocol == "icmpv6":
        kind = ("icmptype", "icmp6") if field == "type" else ("", "")
        return PacketKey(*kind, implied=(FieldIn("protocol", ((58, 58),)),))
    if protocol in ("tcp", "th"):
        implied = (FieldIn("protocol", ((6, 6),)),) if protocol == "tcp" else ()
        return PacketKey(*TCP_FIELDS.get(field, ("", "")), implied=implied)
    return PacketKey("")


def _fib_key(operand: Mapping[str, Any]) -> PacketKey:
    """What the host's own routes say of an address of the packet."""
    flags = operand["flags"]
    inputs = {flags} if isinstance(flags, str) else set(flags)
    if operand["result"] == "type":
        return PacketKey("dtype" if "daddr" in inputs else "stype", "route")
    if "saddr" not in inputs:
        return PacketKey("")
    return PacketKey("reverse" if "iif" in inputs else "routed", "number")


def _value_span(kind: str, value: Any) -> tuple[int, int]:
    if isinstance(value, dict):
        if "prefix" in value:
            return network_span(f"{value['prefix']['addr']}/{value['prefix']['len']}")
        if "range" in value:
            low, high = value["range"]
            return _value_span(kind, low)[0], _value_span(kind, high)[1]
    number = _to_number(kind, value)
    return number, number


def _to_number(kind: str, value: Any) -> int:
    """A value, or several that are put together."""
    if isinstance(value, dict) and "|" in value:
        value = value["|"]
    if isinstance(value, list):
        combined = 0
        for part in value:
            combined |= _to_number(kind, part)
        return combined
    if isinstance(value, (bool, int)):
        return _canonical_number(kind, int(value))
    if not isinstance(value, str):
        raise UnsupportedRule(repr(value))
    values_by_name = VALUES_BY_KIND.get(kind, {})
    if value in values_by_name:
        return values_by_name[value]
    if kind == "address":
        return int(ipaddress.ip_address(value))
    if kind in ("protocol", "family", "operation", "icmp6") and not value.isdecimal():
        return 255  # none of the job's packets, by a name that need not be known
    return _canonical_number(kind, int(value, 0))


def _canonical_number(kind: str, value: int) -> int:
    if kind == "family":
        return {2: 4, 10: 6, 3: ARP, 0x800: 4, 0x86DD: 6, 0x806: ARP}.get(value, 0)
    return value


def _mangle_steps(key: Mapping[str, Any], value: Any) -> Iterator[Step]:
    target = _parse_key(key)
    if target.field == "mark" and "meta" in key:
        yield _mark_action(value)
    elif target.field == "ctmark":
        yield Action("forget", "ctmark")
    elif target.field:
        raise UnsupportedRule("the packet's own addresses are changed")


def _mark_action(value: Any) -> Action:
    """``meta mark set`` to a number, or to the mark itself with bits set, kept or flipped."""
    if isinstance(value, int):
        return Action("mark", keep_bits=0, flip_bits=value)
    keep, flip = -1, 0
    try:
        ((op, (inner, bits)),) = value.items()
        if inner != {"meta": {"key": "mark"}}:
            before = _mark_action(inner)
            if before.verb != "mark":
                return before
            keep, flip = before.keep_bits, before.flip_bits
        if op == "&":
            return Action("mark", keep_bits=keep & bits, flip_bits=flip & bits)
        if op == "|":
            return Action("mark", keep_bits=keep & ~bits, flip_bits=flip & ~bits | bits)
        if op == "^":
            return Action("mark", keep_bits=keep, flip_bits=flip ^ bits)
    except (AttributeError, TypeError, ValueError):
        pass
    return Action("forget", "mark")
