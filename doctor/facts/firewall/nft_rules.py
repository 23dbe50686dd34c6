"""What the rules of ``nft -j list ruleset`` do, step by step."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from doctor.facts.firewall.packets import ALWAYS, EVERY, NEVER, Condition, Is, Named, Not, Unclear, any_row, ranges
from doctor.facts.firewall.rules import Act, Choose, Lookup, Odd, Step
from doctor.facts.firewall.words import KINDS, single

METAS = {
    "l4proto": ("protocol", "protocol"),
    "nfproto": ("family", "family"),
    "protocol": ("family", "family"),
    "mark": ("mark", "number"),
    "pkttype": ("cast", "cast"),
    "iif": ("iif", "name"),
    "iifname": ("iif", "name"),
    "oif": ("oif", "name"),
    "oifname": ("oif", "name"),
}
ADDRESSES = {
    "saddr": ("saddr", "address"),
    "daddr": ("daddr", "address"),
    "protocol": ("protocol", "protocol"),
    "nexthdr": ("protocol", "protocol"),
}
PORTS = {
    "sport": ("sport", "number"),
    "dport": ("dport", "number"),
    "flags": ("flags", "flags"),
}
CONNECTIONS = {
    "state": ("state", "state"),
    "status": ("status", "status"),
    "direction": ("direction", "direction"),
    "mark": ("ctmark", "number"),
    "l3proto": ("family", "family"),
    "protocol": ("protocol", "protocol"),
    "proto": ("protocol", "protocol"),
}
HARMLESS = frozenset(
    ["counter", "log", "last", "dup", "flow", "ct helper", "ct timeout", "ct expectation", "secmark", "reset"]
)
MAYBE = frozenset(["limit", "quota", "ct count", "meter"])
NOT_TCP = frozenset(
    ["udp", "udplite", "icmp", "icmpv6", "igmp", "sctp", "dccp", "ah", "esp", "comp", "gre", "gretap", "arp", "vxlan"]
)


class Key(msgspec.Struct, frozen=True):
    """What a condition looks at."""

    field: str
    """Empty when it is nothing that is known of a packet."""
    kind: str = ""
    needs: tuple[Condition, ...] = ()
    """What nft itself takes for granted: ``ip saddr`` never holds for an IPv6 packet, ``!=`` included."""
    mask: int = -1


@lru_cache(maxsize=1 << 16)
def nft_steps(source: str) -> tuple[Step, ...]:
    """What a rule does, step by step."""
    return tuple(step for part in msgspec.json.decode(source) for step in _statement(part))


def _statement(part: Mapping[str, Any]) -> Iterator[Step]:
    kind, said = single(part)
    try:
        yield from _known_statement(kind, said)
    except (Odd, KeyError, TypeError, ValueError, AttributeError):
        # Whether it matches, and what it then does, are both open.
        yield Unclear()
        if kind not in ("match", "set", "map"):
            yield Act("unclear")


def _known_statement(kind: str, said: Any) -> Iterator[Step]:
    if kind == "match":
        yield from _match(said["op"], said["left"], said["right"])
    elif kind in ("accept", "drop", "reject", "return", "continue", "jump", "goto"):
        yield _verdict(kind, said)
    elif kind == "vmap":
        yield from _vmap(said["key"], said["data"])
    elif kind == "mangle":
        yield from _mangle(said["key"], said["value"])
    elif kind in ("set", "map"):
        if said.get("stmt"):
            yield Unclear()
    elif kind in MAYBE:
        yield Unclear()
    elif kind == "notrack":
        yield Act("untrack")
    elif kind in ("snat", "masquerade"):
        yield Act("accept")
    elif kind == "xt" and said.get("name") == "comment":
        return
    elif kind not in HARMLESS:
        # Redirected, queued to a program, taken by a proxy, or a statement of a newer nft.
        raise Odd(kind)


def _verdict(kind: str, said: Any) -> Act:
    if kind in ("jump", "goto"):
        return Act(kind, said["target"])  # type: ignore[arg-type]
    if kind in ("accept", "return", "continue"):
        return Act(kind)  # type: ignore[arg-type]
    return Act("block") if kind in ("drop", "reject") else Act("unclear")


def _vmap(key: Any, data: Any) -> Iterator[Step]:
    written = msgspec.json.encode(key).decode()
    if isinstance(data, str):
        yield Lookup(data.lstrip("@"), written, choose=True)
    else:
        yield from nft_lookup(written, msgspec.json.encode(data["set"]).decode(), False, True)


@lru_cache(maxsize=1 << 12)
def nft_lookup(key: str, held: str, negated: bool, choose: bool) -> tuple[Step, ...]:
    """The steps of a look-up in a set that holds these elements."""
    left, elements = msgspec.json.decode(key), msgspec.json.decode(held)
    try:
        if not choose:
            return _membership(left, elements, negated)
        needs = tuple(need for one in _keys(left) for need in one.needs)
        choices = tuple((_test(left, [_bare(one)]), _choice(act)) for one, act in elements)
        return (*needs, Choose(choices))
    except (Odd, KeyError, TypeError, ValueError, AttributeError):
        return (Unclear(), Act("unclear")) if choose else (Unclear(),)


def _choice(said: Mapping[str, Any]) -> Act:
    return _verdict(*single(said))


def _match(op: str, left: Any, right: Any) -> Iterator[Step]:
    negated = op == "!="
    if isinstance(right, str) and right.startswith("@"):
        yield Lookup(right[1:], msgspec.json.encode(left).decode(), negated)
    elif isinstance(right, dict) and "set" in right:
        held = right["set"]
        yield from _membership(left, held if isinstance(held, list) else [held], negated)
    elif op in ("==", "!="):
        yield from _membership(left, [right], negated)
    else:
        (key,) = _keys(left)
        yield from key.needs
        yield _compare(key, op, right)


def _compare(key: Key, op: str, right: Any) -> Condition:
    if not key.field or key.kind == "name":
        return Unclear()
    if op == "in":
        return Not(Is(key.field, ((0, 0),), _bits(key.kind, right)))
    low, high = _span(key.kind, right)
    spans = {"<": (0, low - 1), "<=": (0, high), ">": (high + 1, EVERY), ">=": (low, EVERY)}
    return Is(key.field, ranges([spans[op]]), key.mask)


def _membership(left: Any, elements: Sequence[Any], negated: bool) -> tuple[Condition, ...]:
    needs = tuple(need for one in _keys(left) for need in one.needs)
    test = _test(left, [_bare(element) for element in elements])
    return (*needs, Not(test) if negated else test)


def _bare(element: Any) -> Any:
    """An element without its comment and timeout."""
    return element["elem"]["val"] if isinstance(element, dict) and "elem" in element else element


def _test(left: Any, elements: Sequence[Any]) -> Condition:
    if "*" in elements:
        return ALWAYS
    keys = _keys(left)
    if len(keys) > 1:
        return any_row(tuple(map(_one, keys, element["concat"])) for element in elements)
    return _one(keys[0], *elements)


def _one(key: Key, *elements: Any) -> Condition:
    """The key holds one of the elements."""
    if not key.field:
        return Unclear()
    if key.kind == "name":
        return Named(key.field, tuple(str(element) for element in elements))
    return Is(key.field, ranges(_span(key.kind, element) for element in elements), key.mask)


def _keys(left: Any) -> list[Key]:
    if isinstance(left, dict) and "concat" in left:
        return [_key(part) for part in left["concat"]]
    return [_key(left)]


def _key(left: Mapping[str, Any]) -> Key:
    kind, said = single(left)
    if kind == "&":
        inner = _key(said[0])
        return msgspec.structs.replace(inner, mask=_bits(inner.kind, said[1])) if inner.field else inner
    if kind == "meta":
        return Key(*METAS.get(said["key"], ("", "")))
    if kind == "ct" and "dir" not in said:
        return Key(*CONNECTIONS.get(said["key"], ("", "")))
    if said == {"protocol": "ether", "field": "type"}:
        return Key("family", "family")
    if kind == "payload" and "protocol" in said:
        return _payload(said["protocol"], said["field"])
    if kind == "fib":
        return _route(said)
    if kind == "exthdr":
        # The job's packets carry no extension header: none exists, and no field of one holds anything.
        return Key("", needs=(NEVER,)) if "field" in said else Key("extension", "number")
    return Key("")


def _payload(protocol: str, field: str) -> Key:
    if protocol in NOT_TCP:
        return Key("", needs=(NEVER,))
    if protocol in ("ip", "ip6"):
        family = 4 if protocol == "ip" else 6
        return Key(*ADDRESSES.get(field, ("", "")), needs=(Is("family", ((family, family),)),))
    if protocol in ("tcp", "th"):
        return Key(*PORTS.get(field, ("", "")))
    return Key("")


def _route(said: Mapping[str, Any]) -> Key:
    """What the host's own routes say of an address of the packet."""
    flags = said["flags"]
    asked = {flags} if isinstance(flags, str) else set(flags)
    if said["result"] == "type":
        return Key("dtype" if "daddr" in asked else "stype", "route")
    if "saddr" not in asked:
        return Key("")
    return Key("reverse" if "iif" in asked else "routed", "number")


def _span(kind: str, value: Any) -> tuple[int, int]:
    if isinstance(value, dict):
        if "prefix" in value:
            network = ipaddress.ip_network(f"{value['prefix']['addr']}/{value['prefix']['len']}", strict=False)
            return int(network[0]), int(network[-1])
        if "range" in value:
            low, high = value["range"]
            return _span(kind, low)[0], _span(kind, high)[1]
    number = _bits(kind, value)
    return number, number


def _bits(kind: str, value: Any) -> int:
    """A value, or several that are put together."""
    if isinstance(value, dict) and "|" in value:
        value = value["|"]
    if isinstance(value, list):
        whole = 0
        for part in value:
            whole |= _bits(kind, part)
        return whole
    if isinstance(value, (bool, int)):
        return _number(kind, int(value))
    if not isinstance(value, str):
        raise Odd(repr(value))
    known = KINDS.get(kind, {})
    if value in known:
        return known[value]
    if kind == "address":
        return int(ipaddress.ip_address(value))
    if kind in ("protocol", "family") and not value.isdecimal():
        return 255  # neither TCP nor IP, by a name that need not be known
    return _number(kind, int(value, 0))


def _number(kind: str, value: int) -> int:
    if kind == "family":
        return {2: 4, 10: 6, 0x800: 4, 0x86DD: 6}.get(value, 0)
    return value


def _mangle(key: Mapping[str, Any], value: Any) -> Iterator[Step]:
    target = _key(key)
    if target.field == "mark" and "meta" in key:
        yield _mark(value)
    elif target.field == "ctmark":
        yield Act("forget", "ctmark")
    elif target.field:
        raise Odd("the packet's own addresses are changed")


def _mark(value: Any) -> Act:
    """``meta mark set`` to a number, or to the mark itself with bits set, kept or flipped."""
    if isinstance(value, int):
        return Act("mark", keep=0, flip=value)
    keep, flip = -1, 0
    try:
        ((op, (inner, bits)),) = value.items()
        if inner != {"meta": {"key": "mark"}}:
            before = _mark(inner)
            if before.verb != "mark":
                return before
            keep, flip = before.keep, before.flip
        if op == "&":
            return Act("mark", keep=keep & bits, flip=flip & bits)
        if op == "|":
            return Act("mark", keep=keep & ~bits, flip=flip & ~bits | bits)
        if op == "^":
            return Act("mark", keep=keep, flip=flip ^ bits)
    except (AttributeError, TypeError, ValueError):
        pass
    return Act("forget", "mark")
