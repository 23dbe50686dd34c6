"""The table of contents of a bundle: what was taken, from where, and what was left out and why."""

from __future__ import annotations

import msgspec

from doctor.engine.texts import filled

SCHEMA = "doctor.bundle/1"
NAME = "CONTENTS.json"
TABLE = "CONTENTS.txt"
NO_PLACE = "does not exist there"
"""The bundler's reason for a place of the job that a host does not have."""


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
        return not self.errors


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
