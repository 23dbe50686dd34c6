"""What `doctor bundle-logs` says of its archive, in a few lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from doctor.diagnose.bundle.contents import NO_PLACE, Contents
from doctor.engine.language import localized_filled
from doctor.engine.quantities import bytes_text
from doctor.engine.sanitize import count_noun, printable
from doctor.engine.texts import filled, joined

_HARMLESS = ("older than asked for", "a link", "no log by its name")


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
    absent: dict[str, list[str]] = {}
    for row in contents.left_out:
        for place in row.examples if row.reason == NO_PLACE else ():
            absent.setdefault(place, []).append(printable(row.host))
    return absent


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
