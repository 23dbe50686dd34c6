"""Reads the output of `doctor node`: a folder of files, or files with one record per line. The content is untrusted."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from doctor.collect.merge.node_records import NodeFileRecord, NodeFiles, UnusableFile, parse_node_record
from doctor.collect.node_lines import Assembly, TornRecord, parse_part
from doctor.engine.record import BadRun, load_run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.hosts.nodeset import MAX_HOSTS, canonical_host

MAX_RECORD_BYTES = 32 << 20
"""Bytes of one host's record. They are some tens of thousands; a host's whole answer is cut at 8 MiB."""
MAX_FILES = 2 * MAX_HOSTS
MAX_UNUSABLE_BYTES = 1 << 30
"""Bytes of lines that are no records, after which nothing more is read: what comes may have no end."""
STDIN = Path("-")
_LABEL = re.compile(rb"\A\s*\d+: ?(?=\{)")  # of `srun --label`


def read_node_files(paths: Sequence[Path]) -> NodeFiles:
    """Every record under ``paths``. Raises: OSError for a path that is not there, or a folder that cannot be listed."""
    records: list[NodeFileRecord] = []
    unusable: list[UnusableFile] = []
    for path, listed in _list_files(paths):
        for entry in _read_file(path, listed):
            if isinstance(entry, NodeFileRecord):
                records.append(entry)
            else:
                unusable.append(entry)
    return NodeFiles(tuple(records), tuple(unusable))


def _list_files(paths: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """The files, and whether they were found in a folder, where anybody may have put them."""
    for path in paths:
        if not path.is_dir():
            if path != STDIN:
                path.stat()
            yield path, False
            continue
        names = sorted(name for name in os.listdir(path) if name.endswith((".json", ".jsonl")) and name[0] != ".")
        if len(names) > MAX_FILES:
            raise OSError(errno.E2BIG, filled("{0} files; expected at most {1}", len(names), MAX_FILES), str(path))
        yield from ((path / name, True) for name in names)


def _read_file(path: Path, listed: bool) -> Iterator[NodeFileRecord | UnusableFile]:
    """The records of one file: one, or one a line."""
    location, host = strip_control_chars(str(path)), path.stem if path.suffix == ".json" else ""
    if path == STDIN:
        yield from _read_lines(sys.stdin.buffer, "stdin")
        return
    try:
        # In a folder a link could lead anywhere, and a pipe never end; one without a writer is empty.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if listed else 0))
        with open(handle, "rb") as file:
            os.set_blocking(handle, True)
            status = os.fstat(handle)
            if stat.S_ISREG(status.st_mode):
                _check_owner(status.st_uid, path.parent)
                yield from _own_file(_regular_file(file, host, location), host if listed else "")
            elif listed or not stat.S_ISFIFO(status.st_mode):
                yield UnusableFile(host, location, "not a regular file")
            else:
                yield from _read_lines(file, location)
    except OSError as error:
        yield UnusableFile(host, location, _open_error(error, listed))


def _check_owner(owner: int, folder: Path) -> None:
    """Raises: OSError for the file of a user whose word says nothing of the hosts: neither the user, nor root, nor the
    owner of the folder.
    """
    others = folder.stat().st_uid
    if owner not in (0, os.geteuid(), others):
        text = filled("owned by user {0}; expected you, root, or the folder's owner, user {1}", owner, others)
        raise OSError(errno.EPERM, text)


def _own_file(entries: Iterator[NodeFileRecord | UnusableFile], host: str) -> Iterator[NodeFileRecord | UnusableFile]:
    """The entries of a file; the record in a file that is named after a host must be that host's."""
    for entry in entries:
        if host and isinstance(entry, NodeFileRecord) and _canonical(entry.name) != _canonical(host):
            text = filled("holds the record of {0}; expected it in {1}.json", entry.name, entry.name)
            yield UnusableFile(host, entry.location, text)
        else:
            yield entry


def _canonical(name: str) -> str:
    try:
        return canonical_host(name)
    except ValueError:
        return name


def _open_error(error: OSError, listed: bool) -> str:
    if listed and error.errno == errno.ELOOP:
        return "a symbolic link; expected a file"
    if error.errno == errno.EACCES:
        return filled(
            "{0}: owned by another user; doctor node --mode 0640 makes it readable for its group", error.strerror
        )
    return error.strerror or str(error)


def _regular_file(file: BinaryIO, host: str, location: str) -> Iterator[NodeFileRecord | UnusableFile]:
    content = file.read(MAX_RECORD_BYTES + 1)
    parsed = _parse_record(content, host, location)
    head, _, rest = content.partition(b"\n")
    # Of a file that is one host's and cannot be read, one word is enough.
    if (
        isinstance(parsed, NodeFileRecord)
        or not rest.strip()
        or (host and isinstance(_parse_record(head), UnusableFile))
    ):
        yield parsed
        return
    file.seek(0)
    yield from _read_lines(file, location)


def _read_lines(file: BinaryIO, location: str) -> Iterator[NodeFileRecord | UnusableFile]:
    """The records among the lines: each in one, or in parts."""
    assembly, unusable_count, unusable_bytes = Assembly(), 0, 0
    for number, line in enumerate(iter(lambda: file.readline(MAX_RECORD_BYTES + 1), b""), 1):
        entry = _parse_line(assembly, line, f"{location}:{number}")
        if isinstance(entry, UnusableFile):
            unusable_count += 1
            unusable_bytes += len(line)
        if unusable_count > MAX_FILES or unusable_bytes > MAX_UNUSABLE_BYTES:
            yield UnusableFile("", location, "too many lines that are not records")
            return
        if entry:
            yield entry
    yield from (UnusableFile(host, location, why) for host, why in assembly.incomplete())


def _parse_line(assembly: Assembly, line: bytes, location: str) -> NodeFileRecord | UnusableFile | None:
    """The record that ends with this line, or why there is none; None where there is nothing to say yet."""
    line_part = parse_part(line)
    if line_part is None:
        return _parse_record(line, "", location) if line.strip() else None
    try:
        content = assembly.add(line_part, MAX_RECORD_BYTES)
    except TornRecord as torn:
        return UnusableFile(line_part.name, location, str(torn))
    return None if content is None else _parse_record(content, line_part.name, location)


def _parse_record(data: bytes, host: str = "", location: str = "") -> NodeFileRecord | UnusableFile:
    try:
        if len(data) > MAX_RECORD_BYTES:
            raise BadRun(filled("larger than {0} MiB", MAX_RECORD_BYTES >> 20))
        return parse_node_record(load_run(_LABEL.sub(b"", data), location), location)
    except BadRun as error:
        return UnusableFile(host, location, strip_control_chars(str(error).removeprefix(f"{location}: ")))
