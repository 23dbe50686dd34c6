"""Pseudonyms for what names a place: hosts, addresses and users, in any text. Pure.

A pseudonym is a keyed hash: the same name has the same one in every report made with the same key, and who lacks the
key cannot find the name by trying all addresses. It is spelled in letters alone, so that no node set folds it.

Replaced are: the run's own hosts; other names within a host's domain, or under a domain of the net; IPv4, IPv6 and MAC
addresses; the user in ``/home/USER``, ``~USER`` and ``USER@``. Loopback, unspecified, broadcast and netmask addresses
stay, and so do words that only begin or end like a host's name.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address

_LETTERS = "bcdfghjklmnpqrstvwxz"
_LENGTH = 10
"""Letters of a pseudonym: 43 bits, so that two of 1000 hosts share one in 1 of 10 million fleets."""
_DOMAINS = (
    "com|net|org|edu|gov|mil|int|info|cloud|cn|de|fr|uk|jp|kr|ru|eu|ch|nl|"
    "local|lan|internal|intra|corp|localdomain|arpa|cluster"
)
_STAY = ("root", "localhost", "localhost.localdomain")
_NET = re.compile(rf"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.(?:{_DOMAINS})\Z", re.I)
_PARTS = re.compile(r"[-_.]|[^-_.]+")
_SHAPES = r"""
    (?P<mac>(?<![\w:-])[0-9A-Fa-f]{2}(?P<by>[:-])[0-9A-Fa-f]{2}(?:(?P=by)[0-9A-Fa-f]{2}){4}(?![\w:-]))
  | (?P<ip6>(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,8}(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9A-Fa-f]{1,4})?(?![\w:]))
  | (?P<ip4>(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d))
  | (?P<before>/(?:home|Users|users)/|(?<![\w~/.-])~)(?P<user>[A-Za-z_][\w.-]*)
  | (?P<at>(?<![\w@.+-])[A-Za-z_][\w.+-]*)@(?=[\w\[])
  | (?P<set>[A-Za-z0-9_.-]*(?:\[\d[\d,-]*\][A-Za-z0-9_.-]*)+)
  | (?P<name>(?<![\w.-])[A-Za-z0-9_][\w.-]*)
"""
_IP4 = re.compile(r"(?<![\dv])(?<!\d\.)(?:\d{1,3}\.){3}\d{1,3}(?!\d|\.\d)")
"""The same within a longer word."""
_MOST = 4096
"""Hosts of a node set within a text that are spelled out."""


class Redactor:
    """Replaces what would tell where a report comes from. ``hosts`` are the names that are known to be hosts."""

    def __init__(self, key: bytes, hosts: Iterable[str]) -> None:
        self.key = key
        self.known: dict[str, str] = {}
        for host in hosts:
            if host and host not in _STAY:
                self.known[host] = self.name(host)
        self.telling = {host for host in self.known if re.search(r"[\d.-]", host)}
        """Names that are no ordinary word: looked for within longer ones, too."""
        suffixes = {host.partition(".")[2] for host in self.known if not _address(host)}
        self.suffixes = tuple(f".{one}" for one in suffixes if one)
        odd = sorted((host for host in self.known if not re.fullmatch(r"[A-Za-z0-9_][\w.-]*", host)), key=len)
        names = "|".join(re.escape(host) for host in reversed(odd))
        self.shapes = re.compile(f"(?P<odd>{names})|{_SHAPES}" if names else _SHAPES, re.X)
        self.seen: dict[str, str] = {}

    def hashed(self, kind: str, text: str) -> str:
        digest = hmac.new(self.key, f"{kind}\0{text}".encode("utf-8", "backslashreplace"), hashlib.sha256).digest()
        number = int.from_bytes(digest[:16], "big")
        letters = []
        for _ in range(_LENGTH):
            number, place = divmod(number, len(_LETTERS))
            letters.append(_LETTERS[place])
        return f"{kind}-{''.join(letters)}"

    def name(self, host: str) -> str:
        """The pseudonym of a name or address."""
        if not host or host in _STAY:
            return host
        address = _address(host)
        return self.address(address) if address else self.hashed("host", host)

    def address(self, address: IPv4Address | IPv6Address) -> str:
        if _is_common(address):
            return str(address)
        return self.hashed("ip" if address.version == 4 else "ipv6", str(address))

    def host(self, name: str) -> str:
        """A host's name where nothing else can stand."""
        return self.known.get(name) or self.name(name)

    def text(self, text: str) -> str:
        """``text`` with all of it replaced."""
        if text not in self.seen:
            self.seen[text] = self.shapes.sub(self._replaced, text)
        return self.seen[text]

    def template(self, text: str) -> str:
        """A check's own words: what is between braces is a place, and no word of a sentence is a host."""
        parts = re.split(r"(\{[^{}]*\})", text)
        return "".join(part if number % 2 else self._telling(part) for number, part in enumerate(parts))

    def _telling(self, text: str) -> str:
        plain = {host for host in self.known if host not in self.telling}
        return self.shapes.sub(lambda found: found[0] if found[0] in plain else self._replaced(found), text)

    def _replaced(self, found: re.Match[str]) -> str:
        kind, text = found.lastgroup or "", found[0]
        if kind == "odd":
            return self.known[text]
        if kind == "user":
            return found["before"] + (found["user"] if found["user"] in _STAY else self.hashed("user", found["user"]))
        return _KINDS[kind](self, text)

    def _mac(self, text: str) -> str:
        plain = re.sub("[:-]", "", text).lower()
        return text if plain in ("0" * 12, "f" * 12) else self.hashed("mac", plain)

    def _ip(self, text: str) -> str:
        address = _address(text)
        if address is None and text.endswith(":"):  # one that a sentence goes on after
            return self._ip(text[:-1]) + ":"
        return self.address(address) if address else text

    def _at(self, text: str) -> str:
        user = text[:-1]
        return text if user in _STAY else f"{self.hashed('user', user)}@"

    def _set(self, text: str) -> str:
        """A node set, spelled out when a host of it is known; else its parts, each by itself."""
        from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

        try:
            nodes = NodeSet(text, resolver=RESOLVER_NOGROUP)
            names = list(nodes) if len(nodes) <= _MOST else []
        except NodeSetException:
            names = []
        if any(name in self.known for name in names):
            return ",".join(self.host(name) for name in names)
        head, bracket, tail = text.partition("[")
        return self._word(head) + bracket + tail

    def _word(self, text: str) -> str:
        """A name, or a word that holds one: a host and its interface, a host in a domain."""
        word = text.rstrip(".")
        dots = text[len(word) :]
        if word in self.known:
            return self.known[word] + dots
        if word in _STAY or not word:
            return text
        if (self.suffixes and word.endswith(self.suffixes)) or _NET.match(word):
            return self.hashed("host", word) + dots
        first, dot, _ = word.partition(".")
        if dot and first in self.telling:
            return self.hashed("host", word) + dots
        parts = "".join(self._within(_PARTS.findall(word)))
        return _IP4.sub(lambda found: self._ip(found[0]), parts) + dots

    def _within(self, parts: list[str]) -> Iterator[str]:
        """The parts of a word, with the longest run of them that is a host's name replaced."""
        place = 0
        while place < len(parts):
            ends = range(min(len(parts), place + 12), place, -1)
            end = next((one for one in ends if "".join(parts[place:one]) in self.telling), 0)
            yield self.known["".join(parts[place:end])] if end else parts[place]
            place = end or place + 1


_KINDS: dict[str, Callable[[Redactor, str], str]] = {
    "mac": Redactor._mac,
    "ip6": Redactor._ip,
    "ip4": Redactor._ip,
    "at": Redactor._at,
    "set": Redactor._set,
    "name": Redactor._word,
}


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _is_common(address: IPv4Address | IPv6Address) -> bool:
    """Says nothing of a place: loopback, unspecified, or a netmask (broadcast is one, too)."""
    if address.is_loopback or address.is_unspecified:
        return True
    if address.version == 6:
        return False
    return int(address) >= 0x80000000 and "01" not in f"{int(address):032b}"
