"""Reads ``ipset save``: the sets that iptables rules use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from doctor.facts.firewall.packets import NEVER, Condition, FieldIn, Not, Unclear, any_row_matches, to_ranges
from doctor.facts.firewall.rules import Step, UnsupportedRule
from doctor.facts.firewall.words import network_span


def parse_ipsets(saved: str) -> tuple[tuple[str, str], ...]:
    """The sets of ``ipset save``: of each its type, then its entries, one a line."""
    sets: dict[str, list[str]] = {}
    for line in saved.splitlines():
        tokens = line.split()
        if len(tokens) >= 3 and tokens[0] == "create":
            sets[tokens[1]] = [tokens[2]]
        elif len(tokens) >= 3 and tokens[0] == "add" and tokens[1] in sets:
            sets[tokens[1]].append(tokens[2] + (" nomatch" if "nomatch" in tokens[3:] else ""))
    return tuple((name, "\n".join(held)) for name, held in sets.items())


@lru_cache(maxsize=1 << 12)
def ipset_lookup(key: str, held: str, negated: bool) -> tuple[Step, ...]:
    """The steps of ``--match-set NAME src,dst`` for a set that holds these entries."""
    try:
        kind, *entries = held.splitlines()
        fields = _set_fields(kind, key)
        test = _any_entry(fields, entries)
        return (Not(test) if negated else test,)
    except (UnsupportedRule, ValueError):
        return (Unclear(),)


def _set_fields(kind: str, key: str) -> list[str]:
    sides, parts = key.split(","), kind.partition(":")[2].split(",")
    kinds = {"ip": "addr", "net": "addr", "port": "port"}
    if kind.startswith("list:") or len(parts) > len(sides) or not set(parts) <= set(kinds):
        raise UnsupportedRule(kind)
    return [side[0] + kinds[part] for side, part in zip(sides, parts, strict=False)]


def _any_entry(fields: Sequence[str], entries: Sequence[str]) -> Condition:
    """One field: one set of numbers. More of them: one condition an entry."""
    if any(entry.endswith(" nomatch") for entry in entries):
        raise UnsupportedRule("exceptions")
    return any_row_matches(tuple(map(_entry_condition, fields, entry.split(","))) for entry in entries)


def _entry_condition(field: str, text: str) -> Condition:
    """One part of an entry."""
    if field.endswith("port"):
        protocol, _, ports = text.rpartition(":")
        low, _, high = ports.partition("-")
        return FieldIn(field, ((int(low), int(high or low)),)) if protocol in ("", "tcp") else NEVER
    low, dash, high = text.partition("-")
    return FieldIn(field, to_ranges([(network_span(low)[0], network_span(high)[1]) if dash else network_span(low)]))
