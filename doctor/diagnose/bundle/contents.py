"""The table of contents of a bundle: what was taken, from where, and what was left out and why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from doctor.engine.grouping import lists_by_key
from doctor.engine.language import localized_filled
from doctor.engine.quantities import bytes_text
from doctor.engine.sanitize import count_noun, printable
from doctor.engine.texts import filled, joined

SCHEMA = "doctor.bundle/1"
NAME = "CONTENTS.json"
TABLE = "CONTENTS.txt"
NO_PLACE = "does not exist there"
"""The bundler's reason for a place of the job that a host does not have."""
_HARMLESS = ("older than asked for", "a link", "no log by its name")
_LIMITS = ("more than ", "the limit of bytes", "the time limit")
"""Beginnings of the bundler's reasons for what a limit left out."""


class BundledFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the archive."""

    member: str
    """Its name in the archive."""
    host: str
    section: str
    origin: str
    """Its path on the host, or the command that printed it."""
    bytes: int
    """In the archive, behind the gate for secrets."""
    sha256: str
    """Of these bytes."""
    size: int = 0
    """Bytes of the file on its host, when it was opened; 0 of a command's output."""
    modified: float = 0.0
    """Seconds since 1970 by the clock of its host; 0 of a command's output."""
    inode: int = 0
    complete: bool = True
    note: str = ""
    """Why it is not complete."""
    hidden: bool = False
    """Something that looks like a secret was replaced in it."""
    diagnosed: bool = False
    """`doctor diagnose` reads it as a log."""


class LeftOut(msgspec.Struct, frozen=True):
    """Files or commands that were left out for one reason."""

    host: str
    section: str
    reason: str
    count: int
    examples: list[str]


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    schema: str
    doctor: str
    """The version that made it."""
    collected: str
    """When, in UTC; of a bundle that was packed again the time of its first packing."""
    source: str
    """In remarks: where the hosts come from."""
    since: float
    """Seconds; logs that were last written before that were left out. 0: none."""
    places: list[str]
    """Where logs were looked for besides the vendors' places."""
    hosts: list[str]
    files: list[BundledFile]
    left_out: list[LeftOut]
    errors: dict[str, str]
    """By host: why it gave no answer, or not all of it."""

    @property
    def is_whole(self) -> bool:
        return not self.errors and not any(row.reason.startswith(_LIMITS) for row in self.left_out)


def contents_table(contents: Contents) -> str:
    """The same as text for who opens the archive; English, as support reads it."""
    lines = [
        filled("Collected {0} by cluster-doctor {1} ({2})", contents.collected, contents.doctor, contents.source),
        "",
    ]
    lines += [f"{entry.bytes:>12}  {entry.sha256}  {entry.member}{_remarks(entry)}" for entry in contents.files]
    for host, error in sorted(contents.errors.items()):
        lines += ["", filled("{0}: not all of it: {1}", host, error)]
    if contents.left_out:
        lines += ["", "Left out:"]
        lines += [
            f"  {row.host} {row.section}: {row.count} x {row.reason}: {', '.join(row.examples)}"
            for row in contents.left_out
        ]
    return "\n".join(lines) + "\n"


def _remarks(entry: BundledFile) -> str:
    remarks = [filled("from {0}", entry.origin)]
    remarks += [filled("of {0} bytes: {1}", entry.size, entry.note)] if not entry.complete and entry.size else []
    remarks += [entry.note] if not entry.complete and not entry.size and entry.note else []
    remarks += ["secrets hidden"] if entry.hidden else []
    return f"  ({'; '.join(remarks)})"


def bundle_summary(contents: Contents, path: Path) -> str:
    """Per host how much was taken and what was not; the archive, and what to do with it."""
    name = printable(str(path), 400)
    files, size = count_noun(len(contents.files), "file"), bytes_text(os.stat(path).st_size)
    lines = [line for host in contents.hosts for line in _of_host(contents, host)]
    for place, hosts in _absent_places(contents).items():
        where = filled("on {0}", joined(", ", hosts[:4])) if len(hosts) < len(contents.hosts) else "on any host"
        lines.append(filled("--logs {0}: nothing is there {1}", printable(place, 400), where))
    lines.append(filled("{0}: {1} of {2}, {3}", name, files, count_noun(len(contents.hosts), "host"), size))
    if hidden := sum(entry.hidden for entry in contents.files):
        lines.append(
            filled("secrets were hidden in {0}; read CONTENTS.txt before you give it away", count_noun(hidden, "file"))
        )
    lines.append(filled("doctor diagnose {0}", name))
    return "\n".join(map(localized_filled, lines))


def _absent_places(contents: Contents) -> dict[str, list[str]]:
    """The hosts on which each of the job's own places does not exist."""
    rows = (row for row in contents.left_out if row.reason == NO_PLACE)
    return lists_by_key((place, printable(row.host)) for row in rows for place in row.examples)


def _of_host(contents: Contents, host: str) -> Iterator[str]:
    entries = [entry for entry in contents.files if entry.host == host]
    total = bytes_text(sum(entry.bytes for entry in entries))
    name = printable(host)
    yield filled("{0}: {1}, {2}", name, count_noun(len(entries), "file"), total)
    if error := contents.errors.get(host):
        yield filled("  not all of it: {0}", error)
    for row in contents.left_out:
        if row.host == host and row.reason not in (*_HARMLESS, NO_PLACE):
            examples = ", ".join(row.examples[:2]) + (", ..." if row.count > 2 else "")
            yield filled("  {0}: {1}: {2}", printable(row.section), examples, row.reason)
