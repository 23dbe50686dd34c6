"""Which host of a list a record is of: by its name, its short name, or an address that it alone has. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from doctor.facts.names import is_address, plain


class Known(msgspec.Struct, frozen=True):
    """What one host is called."""

    name: str
    own: str = ""
    """What it calls itself."""
    addresses: tuple[str, ...] = ()


Keys = Callable[[Known], Iterable[str]]


def matched(expected: Sequence[str], known: Sequence[Known]) -> dict[str, int]:
    """The place in ``known`` of every expected host that is there.

    What fits exactly goes first. A name or address that may mean two of them, or that two of the list lay claim to,
    means none: a guess would judge one host by another's record.
    """
    found: dict[str, int] = {}
    for keys, alike in ((_names, _equal), (_all_names, _short_for), (_addresses, _equal)):
        left = [host for host in expected if host not in found]
        used = set(found.values())
        spelled: dict[str, set[tuple[int, str]]] = defaultdict(set)
        for place, one in enumerate(known):
            if place not in used:
                for key in keys(one):
                    spelled[_stem(key)].add((place, key))
        hits = {
            host: {place for place, key in spelled.get(_stem(host), ()) if alike(plain(host), key)} for host in left
        }
        sure = {host: next(iter(places)) for host, places in hits.items() if len(places) == 1}
        claims = Counter(sure.values())
        found.update((host, place) for host, place in sure.items() if claims[place] == 1)
    return found


def _names(one: Known) -> Iterable[str]:
    return (plain(one.name),)


def _all_names(one: Known) -> Iterable[str]:
    return (plain(name) for name in (one.name, one.own) if name)


def _addresses(one: Known) -> Iterable[str]:
    said = (plain(address.partition("%")[0]) for address in one.addresses)
    return (address for address in said if not (address.startswith("127.") or address == "::1"))


def _stem(name: str) -> str:
    """The short name, or the whole address."""
    return plain(name) if is_address(name) else name.lower().partition(".")[0]


def _equal(one: str, other: str) -> bool:
    return one == other


def _short_for(one: str, other: str) -> bool:
    """One is the other without its domain. Two that both have a domain are told apart by it."""
    if is_address(one) or is_address(other):
        return False
    return one == other or "." not in one or "." not in other
