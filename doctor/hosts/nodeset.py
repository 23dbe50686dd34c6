"""Node sets and host names, as users write them: every name checked before anything is done with it.

A host is named as ssh names it: its name stands in reports and is what the hosts call each other. Of ``user@host`` and
``user@host:port`` the user and the port are kept apart, as a `HostLogin`; ``host:8`` means slots, in hostfiles alone.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sized
from itertools import islice, product
from typing import NamedTuple

from doctor.engine.addresses import is_plain_address
from doctor.engine.sanitize import printable_excerpt, quote
from doctor.engine.secrets import HIDDEN
from doctor.engine.texts import filled

PORT_HINT = "expected USER@HOST:PORT where a host has a port of its own, or --port for all"
SLURM_COMPONENTS = {
    "SLURM_HET_SIZE": "SLURM_JOB_NODELIST_HET_GROUP_",
    "SLURM_PACK_SIZE": "SLURM_JOB_NODELIST_PACK_GROUP_",
}
"""Of a heterogeneous job, by the variable with the number of its components, how the names of their lists begin."""
MAX_HOSTS = 10_000
"""Hosts. More than this is a slip in a range, not a cluster."""


_PART = re.compile(r"(?:\[[^\]]*\]?|[^\s,\[])+")
_USER = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@([^@]+?)(?::([0-9]{1,5}))?", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12})(?:/([0-9]{1,6}))?)?")


class InventoryError(Exception):
    """One line: the error, its place, and the expected value."""


class HostLogin(NamedTuple):
    """How one host is to be logged in to, where its list says so."""

    user: str = ""
    port: int = 0


def split_login(word: str) -> tuple[HostLogin, str]:
    """The login of a word of a list of hosts, and the rest of the word: ``user@host:port``.

    >>> split_login("root@n1:2222"), split_login("n1:8")
    ((HostLogin(user='root', port=2222), 'n1'), (HostLogin(user='', port=0), 'n1:8'))
    """
    match = _USER.fullmatch(word)
    if match is None or (match[3] and not 0 < int(match[3]) < 65536) or (match[2].count(":") and "[" not in match[2]):
        return HostLogin(), word
    return HostLogin(match[1], int(match[3] or 0)), match[2]


def expand_with_logins(text: str, place: str) -> tuple[list[str], dict[str, HostLogin]]:
    """`expand_nodeset` with groups, of a text whose parts may begin with ``user@``; and the logins of those hosts.

    Raises: InventoryError.
    """
    parts = [split_login(part) for part in _PART.findall(text)]
    hosts = expand_nodeset(",".join(rest for _, rest in parts), place, groups=True)
    named = [(login, rest) for login, rest in parts if login != HostLogin()]
    return hosts, {host: login for login, rest in named for host in expand_nodeset(rest, place)}


def expand_nodeset(text: str, place: str, groups: bool = False) -> list[str]:
    """The hosts of a node set, part by part in the order given: ``node[001-064],gpu7``, ``10.1.2.[1-32]``.

    Parts are separated by commas or white space. ``groups``: ``@name`` is a group of ClusterShell's configuration,
    which may run commands. Set operators are not supported.

    Raises: InventoryError.
    """
    parts = _PART.findall(text)
    if not parts:
        raise InventoryError(filled("{0}: no host is named; expected a node set such as node[01-16],gpu7", place))
    if sum(_part_size(part) for part in parts) > MAX_HOSTS:
        raise InventoryError(
            filled("{0}: names more than {1} hosts; expected at most {2}; check the range", place, MAX_HOSTS, MAX_HOSTS)
        )
    hosts = [validate_host(host, place) for part in parts for host in _expand_part(part, place, groups)]
    limit_hosts(hosts, place)
    return hosts


def limit_hosts(hosts: Sized, place: str) -> None:
    """Raises: InventoryError for too many hosts."""
    if len(hosts) > MAX_HOSTS:
        raise InventoryError(
            filled("{0}: names more than {1} hosts; expected at most {2}", place, MAX_HOSTS, MAX_HOSTS)
        )


def _part_size(part: str) -> int:
    """How many hosts a part may stand for, reckoned without making them."""
    size = 1
    for inside in re.findall(r"\[([^\[\]]*)", part):
        if re.search(r"[0-9]{13}", inside):
            return MAX_HOSTS + 1
        ranges = [re.match(r"([0-9]+)-([0-9]+)", range_text) for range_text in inside.split(",")]
        size *= sum(max(int(match[2]) - int(match[1]) + 1, 1) if match else 1 for match in ranges)
    return size


def _expand_group(part: str, place: str) -> list[str]:
    """``@gpu``, or ``@source:gpu``, by ClusterShell's configuration of groups."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import (
        GroupResolverError,
        GroupResolverSourceError,
        GroupSourceError,
        GroupSourceQueryFailed,
    )

    why = "no host is in it"
    try:
        hosts = [str(host) for host in islice(NodeSet(part), MAX_HOSTS + 1)]
    except GroupSourceQueryFailed:
        hosts, why = [], "ClusterShell's source of groups does not list it, or failed"
    except GroupResolverSourceError as error:
        source = printable_excerpt(str(error))
        why = filled("ClusterShell's configuration has no source of groups called {0}", source)
        hosts, why = [], "ClusterShell's configuration has no source of groups" if source == "<default>" else why
    except (NodeSetException, GroupResolverError, GroupSourceError, OSError) as error:
        hosts, why = [], printable_excerpt(str(error).replace('"', ""))
    if any(re.fullmatch(r"example[0-9]{1,3}", host) for host in hosts):
        hosts, why = [], "it is an example that comes with ClusterShell"
    if not hosts:
        raise InventoryError(filled("{0}: {1}: {2}; expected a group that `nodeset -l` lists", place, quote(part), why))
    return hosts


def _expand_part(part: str, place: str, groups: bool) -> list[str]:
    if groups and re.fullmatch(r"@[A-Za-z0-9_.:-]{1,200}", part, re.ASCII):
        return _expand_group(part, place)
    if re.fullmatch(r"\[[0-9A-Fa-f:.]+\]", part) and ":" in part:
        return [part[1:-1]]
    if "[" not in part and "]" not in part:
        return [part]
    if re.fullmatch(r"(?:[^@\[\]]+@)?\[[^\[\]]+\]:\d{1,5}", part) and not re.match(r"[^\[]*\[\d[\d,/-]*\]", part):
        raise InventoryError(filled("{0}: {1}: {2}", place, quote(part), PORT_HINT))
    if re.search(r"[^A-Za-z0-9._:,/\[\]-]", part):
        raise InventoryError(
            filled("{0}: {1} is not a node set; expected letters, digits, dots and [ranges]", place, quote(part))
        )
    pieces = re.split(r"\[([^\[\]]*)\]", part)
    texts, insides = pieces[::2], pieces[1::2]
    if any("[" in text or "]" in text for text in texts):
        raise InventoryError(
            filled("{0}: {1}: missing bracket; expected a range such as [01-16,20]", place, quote(part))
        )
    if "" in texts[1:-1]:
        raise InventoryError(
            filled("{0}: {1}: a bracket follows another; expected text between them", place, quote(part))
        )
    numbers = [_expand_ranges(inside, part, place) for inside in insides]
    form = "{}".join(texts)
    return list(dict.fromkeys(form.format(*chosen) for chosen in product(*numbers)))


def _expand_ranges(inside: str, part: str, place: str) -> list[str]:
    return [number for text in inside.split(",") for number in _expand_range(text, part, place)]


def _expand_range(text: str, part: str, place: str) -> list[str]:
    """The numbers of ``7``, ``01-16`` or ``0-30/2`` as they are written. Raises: InventoryError."""
    match = _RANGE.fullmatch(text)
    if not match:
        why = "empty range" if not text else filled("{0} is not a range", quote(text))
    else:
        low, high, step = match[1], match[2] or match[1], int(match[3] or 1)
        if int(low) <= int(high) and step and (len(low) == len(high) or not (low + high).startswith("0") or low == "0"):
            return [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1, step)]
        why = (
            "the first number is larger"
            if int(low) > int(high)
            else filled("{0} has numbers of unlike widths", quote(text))
        )
    raise InventoryError(filled("{0}: {1}: {2}; expected a range such as [01-16,20]", place, quote(part), why))


def _without_password(host: str) -> str:
    """A host without the password of ``user:password@host``.

    >>> _without_password("me:hunter2@n1"), _without_password("me@n1")
    ('me:[hidden]@n1', 'me@n1')
    """
    return re.sub(r"(?<=:)[^@]*(?=@)", HIDDEN, host)


def validate_host(host: str, place: str) -> str:
    """The host name or address itself. Raises: InventoryError when it is neither."""
    if "@" in host:
        hint = (
            "groups are for --hosts and DOCTOR_HOSTS"
            if host[0] == "@"
            else "name the user with --user or in ~/.ssh/config"
        )
        raise InventoryError(
            filled(
                "{0}: {1} has an @; expected a host name or address: {2}", place, quote(_without_password(host)), hint
            )
        )
    if host.startswith(("./", "../", "/", "~/")) or host in (".", "..", "~"):
        raise InventoryError(
            filled("{0}: {1} is a file or folder; expected a host name or address", place, quote(host))
        )
    if ":" in host or re.fullmatch(r"[0-9.]+", host, re.ASCII):
        if not is_plain_address(host):
            hint = filled("; {0}", PORT_HINT) if host.count(":") == 1 else ""
            raise InventoryError(filled("{0}: {1} is not an IPv4 or IPv6 address{2}", place, quote(host), hint))
    elif not re.fullmatch(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?", host, re.ASCII):
        expected = "letters, digits, dots and hyphens, beginning and ending with a letter or digit"
        raise InventoryError(filled("{0}: {1} is not a host name; expected {2}", place, quote(host), expected))
    return host


def canonical_host(host: str) -> str:
    """What two spellings of one host have in common."""
    return str(ipaddress.ip_address(host)) if ":" in host else host.lower()
