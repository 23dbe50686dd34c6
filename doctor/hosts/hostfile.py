"""Hostfiles in the forms of launchers and schedulers, one host a line.

Open MPI and DeepSpeed (``host slots=8``), MPICH and Intel MPI (``host:8``), MVAPICH (``host:8:mlx5_0``), Grid Engine
and Donau (``host 8 queue ...``), bare names. A host that is repeated has one slot a line, as in the files of PBS and
OAR. Of ``user@host`` and ``user@host:port`` the login is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from doctor.engine.addresses import is_plain_address
from doctor.engine.sanitize import printable_excerpt, quote
from doctor.engine.texts import filled
from doctor.hosts.nodeset import MAX_HOSTS, HostLogin, InventoryError, canonical_host, split_login, validate_host

MAX_SLOTS = 4096
MAX_LINES = 1_000_000
"""Lines with a host: `MAX_HOSTS` with a line for each of some hundred cores."""


class HostLine(msgspec.Struct, frozen=True):
    """What one line names."""

    host: str
    location: str
    form: str
    slots: int | None = None
    unused_settings: tuple[str, ...] = ()
    """Parts of the line that mean nothing here."""
    login: HostLogin = HostLogin()


class _Word(msgspec.Struct, frozen=True):
    """The first word of a line. ``count``: slots as text."""

    host: str
    count: str | None = None
    unused: tuple[str, ...] = ()
    form: str = "host:N"
    login: HostLogin = HostLogin()


def parse_hostfile(text: str, path: str) -> list[HostLine]:
    """The hosts in their order, each once; a host's slots are those of all its lines. Raises: InventoryError."""
    host_lines: dict[str, list[HostLine]] = {}
    place, number_of_lines = printable_excerpt(path, 200), 0
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        number_of_lines += 1
        host_line = _parse_line(fields, f"{place}:{number}")
        host_lines.setdefault(canonical_host(host_line.host), []).append(host_line)
        if len(host_lines) > MAX_HOSTS or number_of_lines > MAX_LINES:
            raise InventoryError(
                filled("{0}: more than {1} hosts; expected at most {2}", host_line.location, MAX_HOSTS, MAX_HOSTS)
            )
    if not host_lines:
        raise InventoryError(filled("{0}: contains no host; expected one per line, for example: node01 slots=8", place))
    repeated = any(len(lines) > 1 for lines in host_lines.values())
    return [_merged(lines, repeated) for lines in host_lines.values()]


def file_form(lines: Iterable[HostLine]) -> str:
    """The form of the file, as text."""
    forms = {line.form for line in lines}
    return forms.pop() if len(forms) == 1 else "mixed forms"


def merge_repeated(hosts: Iterable[str], location: str, form: str) -> list[HostLine]:
    """Hosts of a list in which a host stands once for each of its slots; in their order, each once."""
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for host in hosts:
        names.setdefault(canonical_host(host), host)
        counts[canonical_host(host)] += 1
    return [HostLine(host, location, form, counts[name]) for name, host in names.items()]


def _merged(lines: list[HostLine], repeated: bool) -> HostLine:
    """``repeated``: some host of the file is in several lines, so that a line without slots is one slot."""
    first = lines[0]
    if not repeated:
        return first
    form = "a line for each slot" if first.form == "bare names" else first.form
    unused = tuple(dict.fromkeys(setting for line in lines for setting in line.unused_settings))
    return HostLine(first.host, first.location, form, sum(line.slots or 1 for line in lines), unused, first.login)


def _parse_line(fields: list[str], place: str) -> HostLine:
    word = _first_word(fields[0])
    host = validate_host(word.host, place)
    if len(fields) > 1 and fields[1].isdecimal():
        return HostLine(host, place, "host N", _parse_slots(fields[1], place), word.unused, word.login)
    settings = _parse_settings(fields[1:], place)
    unused = (*word.unused, *sorted(settings.keys() - {"slots", "max_slots"}))
    if "slots" in settings:
        return HostLine(host, place, "host slots=N", _parse_slots(settings["slots"], place), unused, word.login)
    if word.count is not None:
        return HostLine(host, place, word.form, _parse_slots(word.count, place), unused, word.login)
    return HostLine(host, place, "bare names", None, unused, word.login)


def _first_word(word: str) -> _Word:
    """A name, ``name:8``, ``name:8:hca``, ``user@name:22``, an IPv6 address, or one in brackets with ``:8``."""
    login, rest = split_login(word)
    if login != HostLogin():
        inner = _first_word(rest)
        return _Word(inner.host, inner.count, inner.unused, inner.form, login)
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(.*))?", word)
    if bracketed:
        return _Word(bracketed[1], bracketed[2])
    if is_plain_address(word.partition("%")[0]):
        return _Word(word)
    adapter = re.fullmatch(r"([^:]+):([0-9]+):([A-Za-z0-9_.-]{1,64})", word, re.ASCII)
    if adapter:
        return _Word(adapter[1], adapter[2], (filled("adapter {0}", adapter[3]),), "host:N:adapter")
    if word.count(":") == 1:
        host, _, count = word.partition(":")
        return _Word(host, count)
    return _Word(word)


def _parse_settings(fields: Iterable[str], place: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for word in re.sub(r" ?= ?", "=", " ".join(fields)).split():
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z][A-Za-z_-]{0,30}", name):
            raise InventoryError(
                filled("{0}: {1} has an unknown form; expected: host slots=8, host:8, or host", place, quote(word))
            )
        settings[name.lower().replace("-", "_")] = value
    return settings


def _parse_slots(text: str, place: str) -> int:
    if re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) and 1 <= int(text) <= MAX_SLOTS:
        return int(text)
    raise InventoryError(filled("{0}: {1} slots; expected a number from 1 to {2}", place, quote(text), MAX_SLOTS))
