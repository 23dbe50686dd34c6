"""Pseudonyms for hosts, addresses and users, in any text. Pure.

A pseudonym is a keyed hash: the same name has the same one in every report made with the same key, and who lacks the
key cannot find the name by trying all addresses. It is spelled in letters alone, so that no node set folds it.

Replaced are: the run's own hosts; other names within a host's domain, or under a domain of the net; IPv4, IPv6 and MAC
addresses; the user in ``/home/USER``, ``~USER`` and ``USER@``. Loopback, unspecified, broadcast and netmask addresses
stay, and so do words that only begin or end like a host's name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address

from doctor.engine.secrets import hide_secrets
from doctor.hosts.nodeset import InventoryError, expand_nodeset

_LETTERS = "bcdfghjklmnpqrstvwxz"
_LENGTH = 10
"""Letters of a pseudonym: 43 bits, so that two of 1000 hosts share one in 1 of 10 million fleets."""
_DOMAINS = (
    "com|net|org|edu|gov|mil|int|info|cloud|cn|de|fr|uk|jp|kr|ru|eu|ch|nl|"
    "local|lan|internal|intra|corp|localdomain|arpa|cluster"
)
_KEPT_NAMES = ("root", "localhost", "localhost.localdomain")
_DOMAIN_NAME = re.compile(rf"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.(?:{_DOMAINS})\Z", re.I)
_PARTS = re.compile(r"[-_.]|[^-_.]+")
_PATTERN = r"""
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
_MAX_SET_HOSTS = 4096
"""Hosts of a node set within a text that are spelled out."""


class Redactor:
    """Replaces names that identify the site. ``hosts`` are the names that are known to be hosts."""

    def __init__(self, key: bytes, hosts: Iterable[str]) -> None:
        self.key = key
        self.pseudonyms: dict[str, str] = {}
        for host in hosts:
            if host and host not in _KEPT_NAMES:
                self.pseudonyms[host] = self.pseudonym(host)
        self.distinctive_names = {host for host in self.pseudonyms if re.search(r"[\d.-]", host)}
        """Names that are no ordinary word: searched within longer ones, too."""
        suffixes = {host.partition(".")[2] for host in self.pseudonyms if not _address(host)}
        self.suffixes = tuple(f".{suffix}" for suffix in suffixes if suffix)
        unusual_names = sorted(
            (host for host in self.pseudonyms if not re.fullmatch(r"[A-Za-z0-9_][\w.-]*", host)), key=len
        )
        names = "|".join(re.escape(host) for host in reversed(unusual_names))
        self.pattern = re.compile(f"(?P<odd>{names})|{_PATTERN}" if names else _PATTERN, re.X)
        self.cache: dict[str, str] = {}

    def hashed(self, kind: str, text: str) -> str:
        import hmac  # only where pseudonyms are asked for

        digest = hmac.new(self.key, f"{kind}\0{text}".encode("utf-8", "backslashreplace"), hashlib.sha256).digest()
        number = int.from_bytes(digest[:16], "big")
        letters = []
        for _ in range(_LENGTH):
            number, index = divmod(number, len(_LETTERS))
            letters.append(_LETTERS[index])
        return f"{kind}-{''.join(letters)}"

    def pseudonym(self, host: str) -> str:
        if not host or host in _KEPT_NAMES:
            return host
        address = _address(host)
        return self.address(address) if address else self.hashed("host", host)

    def address(self, address: IPv4Address | IPv6Address) -> str:
        if _is_common(address):
            return str(address)
        return self.hashed("ip" if address.version == 4 else "ipv6", str(address))

    def host(self, name: str) -> str:
        """A host's name where nothing else can stand."""
        return self.pseudonyms.get(name) or self.pseudonym(name)

    def text(self, text: str) -> str:
        """``text`` with all of it replaced; secrets first, since some are recognized by the name before them."""
        if text not in self.cache:
            self.cache[text] = self.pattern.sub(self._replace_match, hide_secrets(text))
        return self.cache[text]

    def template(self, text: str) -> str:
        """A check's own words: what is between braces is a place, and no word of a sentence is a host."""
        parts = re.split(r"(\{[^{}]*\})", text)
        return "".join(part if number % 2 else self._replace_in_template(part) for number, part in enumerate(parts))

    def _replace_in_template(self, text: str) -> str:
        ordinary_names = {host for host in self.pseudonyms if host not in self.distinctive_names}
        return self.pattern.sub(
            lambda match: match[0] if match[0] in ordinary_names else self._replace_match(match), text
        )

    def _replace_match(self, match: re.Match[str]) -> str:
        kind, text = match.lastgroup or "", match[0]
        if kind == "odd":
            return self.pseudonyms[text]
        if kind == "user":
            return match["before"] + (
                match["user"] if match["user"] in _KEPT_NAMES else self.hashed("user", match["user"])
            )
        return _REPLACERS[kind](self, text)

    def _mac(self, text: str) -> str:
        digits = re.sub("[:-]", "", text).lower()
        return text if digits in ("0" * 12, "f" * 12) else self.hashed("mac", digits)

    def _ip(self, text: str) -> str:
        address = _address(text)
        if address is None and text.endswith(":"):  # one that a sentence goes on after
            return self._ip(text[:-1]) + ":"
        return self.address(address) if address else text

    def _replace_user(self, text: str) -> str:
        user = text[:-1]
        return text if user in _KEPT_NAMES else f"{self.hashed('user', user)}@"

    def _set(self, text: str) -> str:
        """A node set, spelled out when a host of it is known; else its parts, each by itself."""
        try:
            names = expand_nodeset(text, "")
        except InventoryError:
            names = []
        if len(names) <= _MAX_SET_HOSTS and any(name in self.pseudonyms for name in names):
            return ",".join(self.host(name) for name in names)
        head, bracket, tail = text.partition("[")
        return self._word(head) + bracket + tail

    def _word(self, text: str) -> str:
        """A name, or a word that holds one: a host and its interface, a host in a domain."""
        word = text.rstrip(".")
        dots = text[len(word) :]
        if word in self.pseudonyms:
            return self.pseudonyms[word] + dots
        if word in _KEPT_NAMES or not word:
            return text
        if (self.suffixes and word.endswith(self.suffixes)) or _DOMAIN_NAME.match(word):
            return self.hashed("host", word) + dots
        first, dot, _ = word.partition(".")
        if dot and first in self.distinctive_names:
            return self.hashed("host", word) + dots
        parts = "".join(self._replace_hosts(_PARTS.findall(word)))
        return _IP4.sub(lambda match: self._ip(match[0]), parts) + dots

    def _replace_hosts(self, parts: list[str]) -> Iterator[str]:
        """The parts of a word, with the longest run of them that is a host's name replaced."""
        position = 0
        while position < len(parts):
            ends = range(min(len(parts), position + 12), position, -1)
            end = next((stop for stop in ends if "".join(parts[position:stop]) in self.distinctive_names), 0)
            yield self.pseudonyms["".join(parts[position:end])] if end else parts[position]
            position = end or position + 1


_REPLACERS: dict[str, Callable[[Redactor, str], str]] = {
    "mac": Redactor._mac,
    "ip6": Redactor._ip,
    "ip4": Redactor._ip,
    "at": Redactor._replace_user,
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
