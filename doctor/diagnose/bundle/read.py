"""A bundle as logs of hosts: `doctor diagnose BUNDLE.tar.gz` reads it as what `--logs` had fetched."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from doctor.diagnose.bundle.contents import NAME, NO_PLACE, SCHEMA, BundledFile, Contents
from doctor.diagnose.bundle.spool import STATE
from doctor.diagnose.bundle.support import diagnosed_sections
from doctor.diagnose.excerpter.excerpt import LogReader
from doctor.diagnose.excerpter.line_choice import ShapeIndex
from doctor.diagnose.fetch.ask_hosts import chosen_literals, printable_log
from doctor.diagnose.fetch.saved_logs import SCHEMA as LOG_SCHEMA
from doctor.diagnose.fetch.saved_logs import HostLogs, LogExcerpt, LogRecord, Omission
from doctor.diagnose.read.sources import BLOCK, UNREADABLE, open_tar
from doctor.diagnose.signature import Signature
from doctor.engine.errors import InputError
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled

MAX_CONTENTS = 64 << 20
MAX_STATE = 4 << 20
"""Bytes of one file of an earlier bundle that shows the devices."""
LINES_LIMIT = 64 << 20
"""Bytes of lines that are kept of one log."""
NO_LOGS = (
    NO_PLACE,
    "no log by its name",
    "an archive: secrets in it cannot be searched for",
    "a program, or the memory of one",
)
"""Reasons of the bundler that leave out no log."""


def bundle_contents(path: str) -> Contents | None:
    """The table of contents of a bundle; None for every other file."""
    if not path.endswith((".tar.gz", ".tgz", ".tar")) or not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file, open_tar(file) as archive:
            member = archive.next()
            return _contents(archive, member) if member is not None else None
    except (*UNREADABLE, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _contents(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Contents | None:
    """Raises: what a damaged archive, or another document, raises."""
    content = archive.extractfile(member) if member.isreg() and member.name == NAME else None
    if content is None or member.size > MAX_CONTENTS:
        return None
    contents = msgspec.json.decode(content.read(MAX_CONTENTS), type=Contents)
    return contents if contents.schema == SCHEMA else None


def read_bundles(paths: Sequence[str], signatures: Mapping[str, Signature]) -> LogRecord | None:
    """What the bundles hold, where all paths are bundles: of several, a host's logs are put together."""
    bundles = [(path, contents) for path in paths if (contents := bundle_contents(path))]
    if not bundles or len(bundles) < len(paths):
        return None
    useful, quiet = chosen_literals(signatures.values())
    literals = [([word.encode()], word.encode()) for word in useful]
    index = ShapeIndex(literals, [word.encode() for word in quiet])  # type: ignore[no-untyped-call]
    reader = LogReader(index, LINES_LIMIT)  # type: ignore[no-untyped-call]
    hosts: dict[str, HostLogs] = {}
    for path, contents in bundles:
        for host, logs in _host_logs(path, contents, reader):
            before = hosts.get(host, HostLogs())
            hosts[host] = HostLogs(
                [*before.files, *logs.files], [*before.omitted, *logs.omitted], [], before.error or logs.error
            )
    first = bundles[0][1]
    names = [name for _, contents in bundles for name in contents.hosts]
    places = tuple(printable(place) for _, contents in bundles for place in contents.places)
    source = filled("{0}, collected {1}", printable(first.source), printable(first.collected))
    return LogRecord(
        LOG_SCHEMA, source, first.collected, places, first.since, hosts, job_hosts=tuple(dict.fromkeys(names))
    )


def _host_logs(path: str, contents: Contents, reader: LogReader) -> Iterator[tuple[str, HostLogs]]:
    entries = {entry.member: entry for entry in contents.files if entry.diagnosed or entry.section == "kernel"}
    files: dict[str, list[LogExcerpt]] = {host: [] for host in contents.hosts}
    problem = ""
    try:
        with open(path, "rb") as file, open_tar(file) as archive:
            for member in archive:
                entry = entries.pop(member.name, None) if member.isreg() else None
                content = archive.extractfile(member) if entry else None
                if entry and content and entry.host in files:
                    files[entry.host].append(_excerpt(entry, content, reader))
    except UNREADABLE as error:
        problem = filled("the archive is damaged: {0}", printable(str(error)))
    omitted: dict[str, list[Omission]] = {host: [] for host in contents.hosts}
    for row in contents.left_out:
        if row.section in diagnosed_sections() and row.reason not in NO_LOGS and row.host in omitted:
            examples = [printable(text, 400) for text in row.examples[:3]]
            omitted[row.host].append(Omission(printable(row.reason), row.count, examples))
    incomplete_hosts = {entry.host for entry in entries.values()}
    for host in contents.hosts:
        lost = problem or "the archive lacks some of its logs"
        reason = contents.errors.get(host, "") or (lost if host in incomplete_hosts else "")
        yield printable(host), HostLogs(files[host], omitted[host], [], printable(reason))


def _excerpt(entry: BundledFile, content: IO[bytes], reader: LogReader) -> LogExcerpt:
    """The lines that a diagnosis needs, chosen as on the host itself."""
    reader.start(entry.origin, entry.size or entry.bytes, entry.modified, entry.inode)  # type: ignore[no-untyped-call]
    if entry.section == "kernel":
        reader.is_kernel, reader.edge_lines = True, 0
    try:
        reader.read_blocks(iter(lambda: content.read(BLOCK), b""))  # type: ignore[no-untyped-call]
        reader.complete = entry.complete
    except UNREADABLE as error:
        reader.notes.append(filled("could be read only in part: {0}", printable(str(error))))
    if entry.note:
        reader.notes.append(entry.note)
    report = reader.report()  # type: ignore[no-untyped-call]
    return printable_log(msgspec.convert(report, LogExcerpt))


def state_before(path: Path) -> dict[str, dict[str, bytes]]:
    """The state of the devices that a bundle made before the job holds: by host, name of the file and text.

    Raises: InputError (exit code 78) for what is none.
    """
    contents = bundle_contents(str(path))
    files = contents.files if contents else ()
    entries = {file.member: file for file in files if file.section == STATE and file.member.endswith("_before.txt")}
    if not entries:
        name = printable(str(path))
        raise InputError(filled("--before {0}: expected a file of doctor bundle-logs --devices-only", name))
    texts: dict[str, dict[str, bytes]] = {}
    try:
        with path.open("rb") as file, open_tar(file) as archive:
            for member in archive:
                entry = entries.get(member.name) if member.isreg() else None
                content = archive.extractfile(member) if entry else None
                if entry and content:
                    texts.setdefault(entry.host, {})[os.path.basename(entry.member)] = content.read(MAX_STATE)
    except UNREADABLE as error:
        raise InputError(filled("--before {0}: {1}", printable(str(path)), printable(str(error)))) from None
    return texts
