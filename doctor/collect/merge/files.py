"""Reads what `doctor node` left: a folder of files, or files with one record a line. What is in them is foreign."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from doctor.collect.merge.records import Look, Pile, Unusable, looked
from doctor.collect.node_lines import Assembly, Torn, part
from doctor.engine.record import BadRun, load
from doctor.engine.sanitize import plain
from doctor.hosts.nodeset import MOST

LARGEST = 32 << 20
"""Bytes of one host's record. They are some tens of thousands; a host's whole answer is cut at 8 MiB."""
MOST_FILES = 2 * MOST
STDIN = Path("-")
_LABEL = re.compile(rb"\A\s*\d+: ?(?=\{)")  # of `srun --label`


def read(paths: Sequence[Path]) -> Pile:
    """Every record under ``paths``. Raises: OSError for a path that is not there, or a folder that cannot be listed."""
    looks: list[Look] = []
    unusable: list[Unusable] = []
    for path, listed in _files(paths):
        for found in _records(path, listed):
            if isinstance(found, Look):
                looks.append(found)
            else:
                unusable.append(found)
    return Pile(tuple(looks), tuple(unusable))


def _files(paths: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """The files, and whether they were found in a folder, where anybody may have put them."""
    for path in paths:
        if not path.is_dir():
            if path != STDIN:
                path.stat()
            yield path, False
            continue
        names = sorted(name for name in os.listdir(path) if name.endswith((".json", ".jsonl")) and name[0] != ".")
        if len(names) > MOST_FILES:
            raise OSError(errno.E2BIG, f"{len(names)} files; expected at most {MOST_FILES}", str(path))
        yield from ((path / name, True) for name in names)


def _records(path: Path, listed: bool) -> Iterator[Look | Unusable]:
    """The records of one file: one, or one a line."""
    place, host = plain(str(path)), path.stem if path.suffix == ".json" else ""
    if path == STDIN:
        yield from _lines(sys.stdin.buffer, "stdin")
        return
    try:
        # In a folder a link could lead anywhere, and a pipe never end.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (os.O_NOFOLLOW | os.O_NONBLOCK if listed else 0))
        with open(handle, "rb") as file:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                yield from _plain_file(file, host, place)
            elif listed:
                yield Unusable(host, place, "not a plain file")
            else:
                yield from _lines(file, place)
    except OSError as error:
        yield Unusable(host, place, _unread(error, listed))


def _unread(error: OSError, listed: bool) -> str:
    if listed and error.errno == errno.ELOOP:
        return "a symbolic link; expected a file"
    if error.errno == errno.EACCES:
        return f"{error.strerror}: it is another user's; doctor node --mode 0640 lets its group read it"
    return error.strerror or str(error)


def _plain_file(file: BinaryIO, host: str, place: str) -> Iterator[Look | Unusable]:
    whole = file.read(LARGEST + 1)
    one = _record(whole, host, place)
    head, _, rest = whole.partition(b"\n")
    # Of a file that is one host's and cannot be read, one word is enough.
    if isinstance(one, Look) or not rest.strip() or (host and isinstance(_record(head), Unusable)):
        yield one
        return
    file.seek(0)
    yield from _lines(file, place)


def _lines(file: BinaryIO, place: str) -> Iterator[Look | Unusable]:
    """The records among the lines: each in one, or in parts."""
    assembly, bad = Assembly(), 0
    for number, line in enumerate(iter(lambda: file.readline(LARGEST + 1), b""), 1):
        found = _line(assembly, line, f"{place}:{number}")
        bad += isinstance(found, Unusable)
        if bad > MOST_FILES:
            yield Unusable("", place, "more lines than can be gone through are no records")
            return
        if found:
            yield found
    yield from (Unusable(host, place, why) for host, why in assembly.torn())


def _line(assembly: Assembly, line: bytes, place: str) -> Look | Unusable | None:
    """The record that ends with this line, or why there is none; None where there is nothing to say yet."""
    one = part(line)
    if one is None:
        return _record(line, "", place) if line.strip() else None
    try:
        whole = assembly.add(one, LARGEST)
    except Torn as torn:
        return Unusable(one.name, place, str(torn))
    return None if whole is None else _record(whole, one.name, place)


def _record(data: bytes, host: str = "", place: str = "") -> Look | Unusable:
    try:
        if len(data) > LARGEST:
            raise BadRun(f"larger than {LARGEST >> 20} MiB")
        return looked(load(_LABEL.sub(b"", data), place), place)
    except BadRun as error:
        return Unusable(host, place, plain(str(error).removeprefix(f"{place}: ")))
