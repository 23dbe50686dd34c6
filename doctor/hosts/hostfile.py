"""Hostfiles: ``host slots=8`` (Open MPI, DeepSpeed), ``host:8`` (MPICH), bare names. One host a line."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from doctor.hosts.nodeset import MOST, InventoryError, quote, shown, valid

MOST_SLOTS = 4096


class HostLine(msgspec.Struct, frozen=True):
    """What one line names."""

    host: str
    place: str
    form: str
    slots: int | None = None
    unused: tuple[str, ...] = ()
    """Settings of the line that mean nothing here."""


def parse(text: str, path: str) -> list[HostLine]:
    """All lines that name a host. Raises: InventoryError."""
    found: list[HostLine] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        found.append(_line(words, f"{shown(path, 200)}:{number}"))
        if len(found) > MOST:
            raise InventoryError(f"{found[-1].place}: more than {MOST} hosts; expected at most {MOST}")
    if not found:
        raise InventoryError(f"{shown(path, 200)}: names no host; expected one a line, such as: node01 slots=8")
    return found


def form(lines: Iterable[HostLine]) -> str:
    """The form of the whole file, in words."""
    forms = {line.form for line in lines}
    return forms.pop() if len(forms) == 1 else "mixed forms"


def _line(words: list[str], place: str) -> HostLine:
    host, count = _host_and_count(words[0])
    settings = _settings(words[1:], place)
    unused = tuple(sorted(settings.keys() - {"slots", "max_slots"}))
    if "slots" in settings:
        return HostLine(valid(host, place), place, "host slots=N", _slots(settings["slots"], place), unused)
    if count is not None:
        return HostLine(valid(host, place), place, "host:N", _slots(count, place), unused)
    return HostLine(valid(host, place), place, "bare names", None, unused)


def _host_and_count(word: str) -> tuple[str, str | None]:
    """A name, ``name:8``, an IPv6 address, or one in brackets with or without ``:8``."""
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(.*))?", word)
    if bracketed:
        return bracketed[1], bracketed[2]
    if word.count(":") == 1:
        host, _, count = word.partition(":")
        return host, count
    return word, None


def _settings(words: Iterable[str], place: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in re.sub(r"\s*=\s*", "=", " ".join(words)).split():
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z][A-Za-z_-]{0,30}", name):
            raise InventoryError(f"{place}: {quote(word)} is not understood; expected: host slots=8, host:8, or host")
        found[name.lower().replace("-", "_")] = value
    return found


def _slots(text: str, place: str) -> int:
    if re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) and 1 <= int(text) <= MOST_SLOTS:
        return int(text)
    raise InventoryError(f"{place}: {quote(text)} slots; expected a number from 1 to {MOST_SLOTS}")
