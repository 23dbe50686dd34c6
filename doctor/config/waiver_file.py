"""The ``[[waive]]`` tables of a ``doctor.toml``, parsed and validated; every error has its place. Pure.

[[waive]]
check = "pid-limit-low"
hosts = "node[01-04]"        # without it, or with "*": every host
reason = "small hosts, replaced in spring"
until = 2026-12-31           # the last day on which it holds
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import msgspec

from doctor.config.file import TABLES, ConfigError, ConfigFile, did_you_mean, read_tables
from doctor.engine.result import Finding
from doctor.engine.sanitize import printable_excerpt, quote
from doctor.engine.texts import filled
from doctor.hosts.nodeset import InventoryError, canonical_host, expand_nodeset

TABLE = "waive"
KEYS = ("check", "checks", "hosts", "reason", "until")
ALL_HOSTS = "*"
MAX_REASON = 400
"""Characters of a reason."""
MAX_NODE_SET = 100


class Waiver(msgspec.Struct, frozen=True):
    """One check's, on some hosts or on all."""

    check: str
    hosts: frozenset[str]
    """As `doctor.hosts.nodeset.canonical_host` spells them; empty for all."""
    hosts_text: str
    """The hosts as they were written."""
    reason: str
    until: date

    def covers(self, finding: Finding) -> bool:
        """Every host and value of the finding is waived."""
        return not self.hosts or (bool(finding.hosts) and canonical_hosts(finding.hosts) <= self.hosts)

    def __str__(self) -> str:
        return filled("{0} for {1}", self.check, self.hosts_text)


class Waivers(msgspec.Struct, frozen=True):
    """The waivers of a file."""

    path: str = ""
    entries: tuple[Waiver, ...] = ()


def parse_waivers(text: str, path: str, known_checks: Collection[str]) -> Waivers:
    """The waivers of a ``doctor.toml``; ``known_checks`` are the names of all checks. Raises: BadSettings."""
    entries = read_tables(ConfigFile(path, text), TABLES).get(TABLE, [])
    name = printable_excerpt(path, 200)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(filled("{0}: {1}: expected tables that begin with [[{2}]]", name, TABLE, TABLE))
    read = [
        _WaiverTable(entry, f"{name}: [[{TABLE}]] {number}", known_checks).waivers()
        for number, entry in enumerate(entries, 1)
    ]
    return Waivers(path, tuple(waiver for some in read for waiver in some))


class _WaiverTable:
    """One ``[[waive]]``; ``location`` identifies it in messages."""

    def __init__(self, table: Mapping[str, Any], place: str, known_checks: Collection[str]) -> None:
        self.table, self.location, self.known_checks = table, place, known_checks

    def waivers(self) -> list[Waiver]:
        for key in self.table:
            if key not in KEYS:
                raise ConfigError(
                    filled("{0}: {1}: no such key{2}", self.location, quote(key), did_you_mean(key, KEYS))
                )
        checks, (where, hosts) = self.checks(), self.hosts()
        reason, until = self.reason(), self.until()
        return [Waiver(check, hosts, where, reason, until) for check in checks]

    def invalid_value(self, key: str, expected: str) -> ConfigError:
        got = quote(str(self.table[key])) if key in self.table else "is missing"
        return ConfigError(filled("{0}: {1}: {2}; expected {3}", self.location, key, got, expected))

    def checks(self) -> Sequence[str]:
        if "check" in self.table and "checks" in self.table:
            raise ConfigError(filled("{0}: check and checks are both set; expected one of them", self.location))
        key = "checks" if "checks" in self.table else "check"
        names = self.table.get(key) if key == "checks" else [self.table.get(key)]
        if not isinstance(names, list) or not names or not all(isinstance(value, str) and value for value in names):
            raise self.invalid_value(
                key, 'names of checks, for example ["a", "b"]' if key == "checks" else "the name of a check"
            )
        for name in names:
            if name not in self.known_checks:
                hint = did_you_mean(name, self.known_checks) or "; site checks need --checks DIR"
                raise ConfigError(filled("{0}: {1}: no check is named {2}{3}", self.location, key, quote(name), hint))
        return list(dict.fromkeys(names))

    def hosts(self) -> tuple[str, frozenset[str]]:
        text = self.table.get("hosts", ALL_HOSTS)
        if not isinstance(text, str):
            raise self.invalid_value(
                "hosts", filled('a node set, for example "node[01-04]", or "{0}" for all', ALL_HOSTS)
            )
        if text.strip() == ALL_HOSTS:
            return "every host", frozenset()
        try:
            hosts = frozenset(map(canonical_host, expand_nodeset(text, f"{self.location}: hosts")))
        except InventoryError as error:
            raise ConfigError(str(error)) from None
        where = " ".join(text.split())
        # A node set that is cut is none, and what redacts a report would not know the names in it.
        return (where if len(where) <= MAX_NODE_SET else filled("{0} hosts", len(hosts))), hosts

    def reason(self) -> str:
        text = self.table.get("reason")
        if not isinstance(text, str) or not text.strip():
            raise self.invalid_value("reason", "why the finding is accepted")
        return printable_excerpt(" ".join(text.split()), MAX_REASON)

    def until(self) -> date:
        day = self.table.get("until")
        if not isinstance(day, date) or isinstance(day, datetime):
            raise self.invalid_value("until", "its last day, without quotes, for example 2026-12-31")
        return day


def canonical_hosts(hosts: Iterable[str]) -> frozenset[str]:
    """Each host as `canonical_host` spells it; a check may blame what is no host name."""
    names: set[str] = set()
    for host in hosts:
        try:
            names.add(canonical_host(host))
        except ValueError:
            names.add(host)
    return frozenset(names)
