"""The ``[[waive]]`` tables of a ``doctor.toml``, read: every word checked, every fault told with its place. Pure.

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

from doctor.config.file import BadSettings, Settings, nearest, tables
from doctor.engine.result import Finding
from doctor.hosts.nodeset import InventoryError, expand, quote, same, shown

TABLE = "waive"
KEYS = ("check", "checks", "hosts", "reason", "until")
EVERY = "*"
LONGEST = 400
"""Characters of a reason."""
LONGEST_SET = 100


class Waiver(msgspec.Struct, frozen=True):
    """One check's, on some hosts or on all."""

    check: str
    hosts: frozenset[str]
    """As `doctor.hosts.nodeset.same` spells them; empty for all."""
    where: str
    """The hosts as they were written."""
    reason: str
    until: date

    def covers(self, finding: Finding) -> bool:
        """All that the finding blames is waived."""
        return not self.hosts or (bool(finding.hosts) and spelled(finding.hosts) <= self.hosts)

    def __str__(self) -> str:
        return f"{self.check} for {self.where}"


class Waivers(msgspec.Struct, frozen=True):
    """What a file waives."""

    path: str = ""
    each: tuple[Waiver, ...] = ()


def parse(text: str, path: str, known: Collection[str]) -> Waivers:
    """The waivers of a ``doctor.toml``; ``known`` are the names of all checks. Raises: BadSettings."""
    found = tables(Settings(path, text), (TABLE,)).get(TABLE, [])
    name = shown(path, 200)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise BadSettings(f"{name}: {TABLE}: expected tables that begin with [[{TABLE}]]")
    read = [_Table(one, f"{name}: [[{TABLE}]] {number}", known).waivers() for number, one in enumerate(found, 1)]
    return Waivers(path, tuple(waiver for some in read for waiver in some))


class _Table:
    """One ``[[waive]]``; ``place`` says which in messages."""

    def __init__(self, table: Mapping[str, Any], place: str, known: Collection[str]) -> None:
        self.table, self.place, self.known = table, place, known

    def waivers(self) -> list[Waiver]:
        for key in self.table:
            if key not in KEYS:
                raise BadSettings(f"{self.place}: {quote(key)}: no such key{nearest(key, KEYS)}")
        checks, (where, hosts) = self.checks(), self.hosts()
        reason, until = self.reason(), self.until()
        return [Waiver(check, hosts, where, reason, until) for check in checks]

    def wrong(self, key: str, wanted: str) -> BadSettings:
        got = quote(str(self.table[key])) if key in self.table else "is not there"
        return BadSettings(f"{self.place}: {key}: {got}; expected {wanted}")

    def checks(self) -> Sequence[str]:
        if "check" in self.table and "checks" in self.table:
            raise BadSettings(f"{self.place}: check and checks are both there; expected one of them")
        key = "checks" if "checks" in self.table else "check"
        names = self.table.get(key) if key == "checks" else [self.table.get(key)]
        if not isinstance(names, list) or not names or not all(isinstance(one, str) and one for one in names):
            raise self.wrong(key, 'names of checks, as in ["a", "b"]' if key == "checks" else "the name of a check")
        for one in names:
            if one not in self.known:
                hint = nearest(one, self.known) or "; those of --checks DIR are known with it"
                raise BadSettings(f"{self.place}: {key}: no check is named {quote(one)}{hint}")
        return list(dict.fromkeys(names))

    def hosts(self) -> tuple[str, frozenset[str]]:
        text = self.table.get("hosts", EVERY)
        if not isinstance(text, str):
            raise self.wrong("hosts", f'a node set as in "node[01-04]", or "{EVERY}" for all')
        if text.strip() == EVERY:
            return "every host", frozenset()
        try:
            hosts = frozenset(map(same, expand(text, f"{self.place}: hosts")))
        except InventoryError as error:
            raise BadSettings(str(error)) from None
        where = " ".join(text.split())
        # A node set that is cut is none, and what redacts a report would not know the names in it.
        return (where if len(where) <= LONGEST_SET else f"{len(hosts)} hosts"), hosts

    def reason(self) -> str:
        text = self.table.get("reason")
        if not isinstance(text, str) or not text.strip():
            raise self.wrong("reason", "why the finding is put up with")
        return shown(" ".join(text.split()), LONGEST)

    def until(self) -> date:
        day = self.table.get("until")
        if not isinstance(day, date) or isinstance(day, datetime):
            raise self.wrong("until", "the last day on which it holds, without quotes, as in 2026-12-31")
        return day


def spelled(hosts: Iterable[str]) -> frozenset[str]:
    """Each host as `same` spells it; a check may blame what is no host name."""
    found: set[str] = set()
    for host in hosts:
        try:
            found.add(same(host))
        except ValueError:
            found.add(host)
    return frozenset(found)
