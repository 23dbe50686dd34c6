"""Hostfiles: ``host slots=8`` (Open MPI, DeepSpeed), ``host:8`` (MPICH), bare names. One host a line."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from doctor.hosts.nodeset import MAX_HOSTS, InventoryError, printable_excerpt, quote, validate_host

MAX_SLOTS = 4096


class HostLine(msgspec.Struct, frozen=True):
    """What one line names."""

    host: str
    location: str
    form: str
    slots: int | None = None
    unused_settings: tuple[str, ...] = ()
    """Settings of the line that mean nothing here."""


def parse_hostfile(text: str, path: str) -> list[HostLine]:
    """All lines that name a host. Raises: InventoryError."""
    host_lines: list[HostLine] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        host_lines.append(_parse_line(fields, f"{printable_excerpt(path, 200)}:{number}"))
        if len(host_lines) > MAX_HOSTS:
            raise InventoryError(
                f"{host_lines[-1].location}: more than {MAX_HOSTS} hosts; expected at most {MAX_HOSTS}"
            )
    if not host_lines:
        raise InventoryError(
            f"{printable_excerpt(path, 200)}: contains no host; expected one per line, for example: node01 slots=8"
        )
    return host_lines


def file_form(lines: Iterable[HostLine]) -> str:
    """The form of the file, as text."""
    forms = {line.form for line in lines}
    return forms.pop() if len(forms) == 1 else "mixed forms"


def _parse_line(fields: list[str], place: str) -> HostLine:
    host, count = _host_and_count(fields[0])
    settings = _parse_settings(fields[1:], place)
    unused = tuple(sorted(settings.keys() - {"slots", "max_slots"}))
    if "slots" in settings:
        return HostLine(
            validate_host(host, place), place, "host slots=N", _parse_slots(settings["slots"], place), unused
        )
    if count is not None:
        return HostLine(validate_host(host, place), place, "host:N", _parse_slots(count, place), unused)
    return HostLine(validate_host(host, place), place, "bare names", None, unused)


def _host_and_count(word: str) -> tuple[str, str | None]:
    """A name, ``name:8``, an IPv6 address, or one in brackets with or without ``:8``."""
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(.*))?", word)
    if bracketed:
        return bracketed[1], bracketed[2]
    if word.count(":") == 1:
        host, _, count = word.partition(":")
        return host, count
    return word, None


def _parse_settings(fields: Iterable[str], place: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for word in re.sub(r" ?= ?", "=", " ".join(fields)).split():
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z][A-Za-z_-]{0,30}", name):
            raise InventoryError(f"{place}: {quote(word)} has an unknown form; expected: host slots=8, host:8, or host")
        settings[name.lower().replace("-", "_")] = value
    return settings


def _parse_slots(text: str, place: str) -> int:
    if re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) and 1 <= int(text) <= MAX_SLOTS:
        return int(text)
    raise InventoryError(f"{place}: {quote(text)} slots; expected a number from 1 to {MAX_SLOTS}")
