"""Reads ``nft -j list ruleset`` (libnftables-json(5))."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from doctor.engine.fact import Unreadable
from doctor.engine.texts import filled
from doctor.facts.firewall.rules import Chain, Rule, RuleTable, is_deletable
from doctor.facts.firewall.words import single_item


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
