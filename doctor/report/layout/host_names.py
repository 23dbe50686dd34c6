"""Host lists in few words: ``node[007,023] (2/64)``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from doctor.engine.language import is_english, localized, localized_filled, localized_template, phrase
from doctor.engine.result import Finding, Report, fill_texts, format_value, has_ranges, value_in_sentence
from doctor.engine.sanitize import with_visible_ends
from doctor.report.layout.formatting import MAX_VALUE_CHARS, bracketed, clean, clean_value, count_noun

# What ClusterShell reads as one name and writes back as it was: no group, operator, bracket, wildcard, no IPv6.
_FOLDABLE = re.compile(r"(?:[A-Za-z0-9_.-]+@)?[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


_SSH_OPTIONS = ("-F", "-l", "-p", "-i")


class Fleet:
    """The hosts of a run, in inventory order. ``max_chars`` limits a folded list, in characters; 0 does not.

    ``connection``: the options by which another command reaches them, as a shell reads them.
    ``smoke``: those by which another smoke run is the same.
    """

    def __init__(
        self, hosts: Iterable[str], max_chars: int = 0, connection: Sequence[str] = (), smoke: Sequence[str] = ()
    ) -> None:
        self.max_chars, self.connection, self.smoke = max_chars, connection, smoke
        self.hosts = tuple(dict.fromkeys(hosts))
        self.positions = {host: number for number, host in enumerate(self.hosts)}
        self._folded: dict[tuple[str, ...], str] = {}
        self._ordered: dict[tuple[str, ...], tuple[str, ...]] = {}

    @classmethod
    def of_report(cls, report: Report, max_chars: int = 0) -> Fleet:
        """With the options by which another command reaches these hosts, and makes the same smoke run."""
        words = [
            [shlex.quote(clean(word, 500)) for word in options]
            for options in (report.connection_words, report.smoke_words)
        ]
        return cls(report.hosts, max_chars, *words)

    @property
    def login(self) -> str:
        """The options of ``ssh`` among those of this connection, each with a blank before it, for a shell.

        >>> Fleet(["n1"], connection=["--sudo", "-F", "cluster.conf", "-l", "ann"]).login
        ' -F cluster.conf -l ann'
        """
        pairs = zip(self.connection, self.connection[1:], strict=False)
        return "".join(f" {option} {value}" for option, value in pairs if option in _SSH_OPTIONS)

    def ordered(self, hosts: Iterable[str]) -> tuple[str, ...]:
        """Each host once: those of the inventory in its order, then the others by name. The empty name is dropped."""
        key = tuple(hosts)
        if key not in self._ordered:
            unique = {host for host in key if host}
            self._ordered[key] = tuple(
                sorted(unique, key=lambda host: (self.positions.get(host, len(self.positions)), host))
            )
        return self._ordered[key]

    def fold(self, hosts: Collection[str]) -> str:
        """The names of ``hosts``, as a nodeset where that is safe, else with commas between."""
        text = self.nodeset(hosts)
        if self.max_chars and len(text) > self.max_chars and "," in text[: self.max_chars]:
            text = text[: text.rindex(",", 0, self.max_chars)] + ",..."
        return text

    def nodeset(self, hosts: Collection[str]) -> str:
        """The same without a limit, for a command."""
        key = tuple(hosts)
        if key not in self._folded:
            self._folded[key] = _fold(key)
        return self._folded[key]

    def where(
        self,
        hosts: Collection[str],
        evaluated_hosts: Collection[str] | None = None,
        skipped_hosts: Collection[str] = (),
    ) -> str:
        """``node[007,023] (2/64)``; where the check could not look at every host: ``node7 (1/64, 4 not checked)``.

        ``skipped_hosts``: those that the check does not apply to.
        """
        if not hosts:
            return ""
        unlisted = [host for host in hosts if host not in self.positions]
        listed_count, total = len(hosts) - len(unlisted), len(self.hosts)
        if unlisted:
            share = localized("not in this run")
            if listed_count:
                share = phrase("{share}, {count} not in this run", share=f"{listed_count}/{total}", count=len(unlisted))
            return self.fold(hosts) + bracketed(share)
        if listed_count == total > 1:
            return phrase("all {count} hosts", count=total)
        evaluated_count = len(evaluated_hosts) if evaluated_hosts else total
        skipped_count = sum(host in self.positions for host in skipped_hosts)
        left = total - evaluated_count - skipped_count
        unevaluated = phrase(", nothing to check on {count}", count=skipped_count) if skipped_count else ""
        unevaluated += phrase(", {count} not checked", count=left) if left > 0 else ""
        return self.fold(hosts) + bracketed(f"{listed_count}/{total}{unevaluated}")

    def format_values(self, values: Mapping[str, Any], limit: int = MAX_VALUE_CHARS) -> dict[str, str]:
        """Each value of a finding in plain, safe words; a list of many hosts of this run is folded."""
        return {name: self._format_value(value, limit, value_in_sentence) for name, value in values.items()}

    def command_values(self, values: Mapping[str, Any], limit: int) -> dict[str, str]:
        """The same for commands, which quote them."""
        return {name: self._format_value(value, limit, format_value) for name, value in values.items()}

    def localized_values(self, values: Mapping[str, Any], limit: int = MAX_VALUE_CHARS) -> dict[str, str]:
        """The same for sentences, and never for commands: texts of ours are in the language of this process."""
        return {name: self._format_value(value, limit, localized_value) for name, value in values.items()}

    def message(self, finding: Finding, limit: int) -> str:
        """The text of a finding, safe to show."""
        return clean(fill_texts(localized_template(finding.template), self.localized_values(finding.values)), limit)

    def _format_value(self, value: Any, limit: int, as_text: Callable[[Any], str]) -> str:
        many = isinstance(value, (list, tuple)) and len(value) > 2
        if many and all(isinstance(item, str) and item in self.positions for item in value):
            return self.fold(value)
        return clean_value(as_text(value), limit)

    def coverage(self, hosts: Collection[str]) -> str:
        """The coverage: ``3 of 5 hosts``."""
        if not hosts:
            return localized("the job itself")
        return phrase("{count} of {hosts}", count=len(hosts), hosts=count_noun(len(self.hosts), "host"))


def localized_value(value: Any) -> str:
    """A value of a finding as text; where it is a text of ours, in the language of this process."""
    if is_english() or has_ranges(value) or not isinstance(value, (str, list, tuple, set, frozenset, Mapping)):
        return value_in_sentence(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{localized_value(key)}: {localized_value(item)}" for key, item in value.items())
    if isinstance(value, str):
        return localized_filled(with_visible_ends(value))
    items = [
        localized_value(item) for item in (sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)
    ]
    if len(items) > 1:
        return localized(" and ").join([", ".join(items[:-1]), items[-1]])
    return items[0] if items else localized("none")


def _fold(hosts: tuple[str, ...]) -> str:
    if len(hosts) == 1:
        return clean(hosts[0], 100)
    safe = [host for host in hosts if _FOLDABLE.match(host) and len(host) <= 100]
    unfoldable = [clean(host, 100) for host in hosts if not (_FOLDABLE.match(host) and len(host) <= 100)]
    if len(safe) < 2:
        return ",".join(safe + unfoldable)
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        folded = str(NodeSet.fromlist(safe, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        folded = ",".join(safe)
    return ",".join([folded, *unfoldable])
