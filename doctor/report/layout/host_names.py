"""Host lists in few words: ``node[007,023] (2/64)``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from doctor.engine.result import Finding, fill, say
from doctor.report.layout.formatting import LONGEST, clean, count

# What ClusterShell reads as one name and writes back as it was: no group, operator, bracket, wildcard, no IPv6.
_FOLDS = re.compile(r"(?:[A-Za-z0-9_.-]+@)?[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


class Fleet:
    """The hosts of a run, in inventory order. ``longest`` limits a folded list, in characters; 0 does not."""

    def __init__(self, hosts: Iterable[str], longest: int = 0) -> None:
        self.longest = longest
        self.hosts = tuple(dict.fromkeys(hosts))
        self.place = {host: number for number, host in enumerate(self.hosts)}
        self._folded: dict[tuple[str, ...], str] = {}

    def ordered(self, hosts: Iterable[str]) -> tuple[str, ...]:
        """Each host once: those of the inventory in its order, then the others by name. The empty name is dropped."""
        unique = {host for host in hosts if host}
        if len(unique) < 2:
            return tuple(unique)
        return tuple(sorted(unique, key=lambda host: (self.place.get(host, len(self.place)), host)))

    def fold(self, hosts: Collection[str]) -> str:
        """The names of ``hosts``, as a nodeset where that is safe, else with commas between."""
        key = tuple(hosts)
        if key not in self._folded:
            text = _fold(key)
            if self.longest and len(text) > self.longest and "," in text[: self.longest]:
                text = text[: text.rindex(",", 0, self.longest)] + ",..."
            self._folded[key] = text
        return self._folded[key]

    def where(self, hosts: Collection[str], looked: Collection[str] | None = None) -> str:
        """``node[007,023] (2/64)``; where not every host was looked at, how many were: ``node7 (1/60 of 64)``."""
        if not hosts:
            return ""
        strangers = [host for host in hosts if host not in self.place]
        known, total = len(hosts) - len(strangers), len(self.hosts)
        if strangers:
            share = f"{known}/{total}, {len(strangers)} not in this run" if known else "not in this run"
            return f"{self.fold(hosts)} ({share})"
        if known == total > 1:
            return f"all {total} hosts"
        seen = len(looked) if looked else total
        unseen = f", {total - seen} not looked at" if seen < total else ""
        return f"{self.fold(hosts)} ({known}/{seen}{unseen})"

    def words(self, values: Mapping[str, Any], limit: int = LONGEST) -> dict[str, str]:
        """Each value of a finding in plain, safe words; a list of many hosts of this run is folded."""
        return {name: self._word(value, limit) for name, value in values.items()}

    def message(self, finding: Finding, limit: int) -> str:
        """What a finding says, in safe words."""
        return clean(fill(finding.template, self.words(finding.values)), limit)

    def _word(self, value: Any, limit: int) -> str:
        many = isinstance(value, (list, tuple)) and len(value) > 2
        if many and all(isinstance(item, str) and item in self.place for item in value):
            return self.fold(value)
        return clean(say(value), limit)

    def looked(self, hosts: Collection[str]) -> str:
        """How much was looked at: ``3 of 5 hosts``."""
        return f"{len(hosts)} of {count(len(self.hosts), 'host')}" if hosts else "no host looked at"


def _fold(hosts: tuple[str, ...]) -> str:
    if len(hosts) == 1:
        return clean(hosts[0], 100)
    safe = [host for host in hosts if _FOLDS.match(host) and len(host) <= 100]
    odd = [clean(host, 100) for host in hosts if not (_FOLDS.match(host) and len(host) <= 100)]
    if len(safe) < 2:
        return ",".join(safe + odd)
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        folded = str(NodeSet.fromlist(safe, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        folded = ",".join(safe)
    return ",".join([folded, *odd])
