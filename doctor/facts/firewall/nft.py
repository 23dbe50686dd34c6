"""Reads ``nft -j list ruleset`` (libnftables-json(5))."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from doctor.engine.fact import Unreadable
from doctor.facts.firewall.rules import Chain, Rule, Table
from doctor.facts.firewall.words import single


@lru_cache(maxsize=256)
def read_nft(listing: str, plain: str = "") -> tuple[Table, ...]:
    """The tables of a JSON listing; ``plain`` is ``nft -a list ruleset``, for the rules' own words.

    Raises: Unreadable when the listing is not what nft prints.
    """
    try:
        parts = msgspec.json.decode(listing)["nftables"]
        return tuple(_tables([single(part) for part in parts], _texts(plain)))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"nft -j list ruleset: not understood: {type(error).__name__}: {error}") from None


def _tables(parts: Sequence[tuple[str, Any]], texts: Mapping[tuple[str, str, int], str]) -> Iterator[Table]:
    chains: dict[tuple[str, str], dict[str, Chain]] = {}
    rules: dict[tuple[str, str, str], list[Rule]] = {}
    sets: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for kind, said in parts:
        if kind == "table":
            chains[said["family"], said["name"]] = {}
        elif kind == "chain":
            chains[said["family"], said["table"]][said["name"]] = _chain(said)
        elif kind == "rule":
            text = texts.get((said["family"], said["table"], said["handle"]), "")
            rules.setdefault((said["family"], said["table"], said["chain"]), []).append(_rule(said["expr"], text))
        elif kind in ("set", "map"):
            held = msgspec.json.encode(said.get("elem", [])).decode()
            sets.setdefault((said["family"], said["table"]), []).append((said["name"], held))
    for (family, name), named in chains.items():
        filled = tuple(
            msgspec.structs.replace(chain, rules=tuple(rules.get((family, name, chain.name), ())))
            for chain in named.values()
        )
        yield Table("nft", family, name, filled, tuple(sets.get((family, name), ())))


def _chain(said: Mapping[str, Any]) -> Chain:
    devices = said.get("dev", said.get("devices", []))
    policy = said.get("policy", "accept")
    if policy not in ("accept", "drop"):
        raise ValueError(f"policy {policy!r}")
    return Chain(
        name=str(said["name"]),
        hook=str(said.get("hook", "")),
        priority=int(said.get("prio", 0)),
        policy=policy,
        kind=str(said.get("type", "filter")),
        devices=(devices,) if isinstance(devices, str) else tuple(map(str, devices)),
    )


def _rule(parts: list[Any], text: str) -> Rule:
    """Counters are left out: with them no two hosts would have one rule set."""
    kept = [part for part in parts if single(part)[0] != "counter"]
    source = msgspec.json.encode(kept).decode()
    return Rule(text or source, source)


def _texts(plain: str) -> dict[tuple[str, str, int], str]:
    """Each rule in nft's words, by family, table and handle."""
    found: dict[tuple[str, str, int], str] = {}
    family = table = ""
    for line in plain.splitlines():
        head = re.match(r"table (\w+) (\S+) {", line)
        if head:
            family, table = head[1], head[2].strip('"')
        body = re.fullmatch(r"\t\t(.*) # handle (\d+)", line)
        if body:
            found[family, table, int(body[2])] = body[1]
    return found
