"""Which host of a list a record is of: by its name, its short name, or an address that it alone has. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from doctor.engine.addresses import means_own_host
from doctor.facts.names import is_address, normalize_host, short_name


class HostIdentity(msgspec.Struct, frozen=True):
    """What one host is called."""

    name: str
    self_name: str = ""
    """What it calls itself."""
    addresses: tuple[str, ...] = ()


def match_hosts(expected: Sequence[str], identities: Sequence[HostIdentity]) -> dict[str, int]:
    """The index in ``identities`` of every expected host that has a record.

    Exact matches go first. A name or address that matches two records, or that two hosts of the list match, is not
    used: a guess could assign one host's record to another.
    """
    matches: dict[str, int] = {}
    for keys, alike in ((_names, _is_equal), (_all_names, _is_short_name), (_routable_addresses, _is_equal)):
        unmatched = [host for host in expected if host not in matches]
        used = set(matches.values())
        by_stem: dict[str, set[tuple[int, str]]] = defaultdict(set)
        for place, identity in enumerate(identities):
            if place not in used:
                for key in keys(identity):
                    by_stem[short_name(key)].add((place, key))
        candidates = {
            host: {place for place, key in by_stem.get(short_name(host), ()) if alike(normalize_host(host), key)}
            for host in unmatched
        }
        sure = {host: next(iter(places)) for host, places in candidates.items() if len(places) == 1}
        claims = Counter(sure.values())
        matches.update((host, place) for host, place in sure.items() if claims[place] == 1)
    return matches


def _names(identity: HostIdentity) -> Iterable[str]:
    return (normalize_host(identity.name),)


def _all_names(identity: HostIdentity) -> Iterable[str]:
    return (normalize_host(name) for name in (identity.name, identity.self_name) if name)


def _routable_addresses(identity: HostIdentity) -> Iterable[str]:
    addresses = (normalize_host(address.partition("%")[0]) for address in identity.addresses)
    return (address for address in addresses if not means_own_host(address))


def _is_equal(name: str, other: str) -> bool:
    return name == other


def _is_short_name(name: str, other: str) -> bool:
    """One is the other without its domain. If both have a domain, they differ in it and are two hosts."""
    if is_address(name) or is_address(other):
        return False
    return name == other or "." not in name or "." not in other
