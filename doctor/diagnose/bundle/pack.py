"""Packs a bundle: what hosts sent goes through the gate for secrets, and into an archive that depends on it alone."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

import msgspec

from doctor.diagnose.bundle.contents import NAME, TABLE, BundledFile, Contents, LeftOut, contents_table
from doctor.diagnose.bundle.spool import Spooled
from doctor.diagnose.bundle.support import diagnosed_sections
from doctor.diagnose.excerpter.line_choice import MAX_LINE, ShapeIndex, split_block
from doctor.engine.secret_shapes import WORDS
from doctor.engine.secrets import hide_in, hide_in_lines, hide_layered, hide_secrets

BLOCK = 1 << 20
"""Bytes that are searched for secrets at once; more where a line or a private key goes on."""
MAX_OPEN = 8 << 20
"""Bytes after which a block ends in any case."""
MAX_PART = 100
_MAX_PATH = 400
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=@,-]")
_PACKED = re.compile(r"(?<=[^/])\.(?:gz|bz2|xz)$")
_KEY_BEGIN = re.compile(rb"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----")
_KEY_END = re.compile(rb"-----END [A-Z ]{0,30}PRIVATE KEY-----")


class Packing:
    """The files of all hosts, each with a name in the archive that leads nowhere else."""

    def __init__(self, files: Mapping[str, Sequence[Spooled]]) -> None:
        self._paths: dict[str, tuple[str, Spooled]] = {}
        self._used: dict[str, int] = {}
        self._folders = _distinct({host: safe_part(host) for host in files})
        for host, spooled in files.items():
            for item in spooled:
                self._add(host, item)

    def _add(self, host: str, item: Spooled) -> None:
        name = _PACKED.sub("", hide_secrets(item.header.name))  # it was inflated
        stem = f"{self._folders[host]}/{safe_part(item.header.section)}/{safe_path(name)}"
        self._used[stem] = number = self._used.get(stem, 0) + 1
        self._paths[stem if number == 1 else f"{stem}~{number}"] = host, item

    def entries(self) -> list[BundledFile]:
        """What the archive will hold, by name. Each file goes through the gate here, once, and is kept behind it."""
        return [self._entry(member, *self._paths[member]) for member in sorted(self._paths)]

    def _entry(self, member: str, host: str, item: Spooled) -> BundledFile:
        digest, size, hidden = hashlib.sha256(), 0, False
        with _behind_the_gate(item).open("wb") as file:
            for before, after in _gated(item):
                digest.update(after)
                size += file.write(after)
                hidden = hidden or before != after
        item.path.unlink()
        header = item.header
        return BundledFile(
            member=member,
            host=host,
            section=header.section,
            origin=hide_secrets(header.origin),
            bytes=size,
            sha256=digest.hexdigest(),
            size=header.size,
            modified=header.modified,
            inode=header.inode,
            complete=item.complete,
            note=hide_secrets(item.note),
            hidden=hidden,
            diagnosed=header.section in diagnosed_sections(),
        )

    @staticmethod
    def left_out(host: str, rows: Iterable[tuple[str, str, int, list[str]]]) -> list[LeftOut]:
        """The rows of a host, without secrets."""
        return [
            LeftOut(host, section, hide_secrets(reason), count, [hide_secrets(text) for text in examples])
            for section, reason, count, examples in rows
        ]

    def write(self, contents: Contents, file: IO[bytes]) -> None:
        """Writes the archive: the same files give the same bytes, whenever and wherever it is written."""
        table = msgspec.json.format(msgspec.json.encode(contents), indent=1) + b"\n"
        with (
            gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name, text in ((NAME, table), (TABLE, contents_table(contents).encode())):
                _add_member(archive, name, len(text), 0.0, io.BytesIO(text))
            for entry in contents.files:
                with _behind_the_gate(self._paths[entry.member][1]).open("rb") as content:
                    _add_member(archive, entry.member, entry.bytes, entry.modified, content)


def _add_member(archive: tarfile.TarFile, name: str, size: int, modified: float, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    member.mtime = int(modified) if 0 < modified < 1 << 33 else 0
    archive.addfile(member, content)


def _behind_the_gate(item: Spooled) -> Path:
    return item.path.with_suffix(".hidden")


def _gated(item: Spooled) -> Iterator[tuple[bytes, bytes]]:
    """The blocks of a file before and behind the gate; bytes that are no UTF-8 stay as they are."""
    if item.header.section == "environment":
        data = item.path.read_bytes()
        yield data, _hidden_environment(data)
        return
    with item.path.open("rb") as file:
        for block in _blocks(file):
            yield block, gated(block)


def _hidden_environment(data: bytes) -> bytes:
    """Variables as a table: where the name is that of a secret, the whole value is hidden, in any format."""
    try:
        variables = hide_in(json.loads(data))
        return "".join(f"{name}={json.dumps(value)}\n" for name, value in sorted(variables.items())).encode()
    except (ValueError, AttributeError, RecursionError):
        return b"not understood\n"


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """A file in blocks of whole lines; a private key stays in one block."""
    block = b""
    while piece := file.read(BLOCK):
        block += piece
        end = block.rfind(b"\n") + 1
        if len(block) > MAX_OPEN:
            end = end or block.rfind(b" ") + 1 or len(block)
        begins = [match.start() for match in _KEY_BEGIN.finditer(block)]
        if begins and len(block) <= MAX_OPEN and not _KEY_END.search(block, begins[-1]):
            end = min(end, begins[-1])
        if end:
            yield block[:end]
            block = block[end:]
    if block:
        yield block


def safe_part(text: str) -> str:
    """One part of a name in the archive: letters, digits and a few signs, and nothing that leads elsewhere.

    >>> [safe_part(text) for text in ("node-1", "..", "-rf", "a b", "")]
    ['node-1', '_', '_-rf', 'a_b', '_']
    """
    part = _UNSAFE.sub("_", text)[:MAX_PART].rstrip(".")
    return f"_{part}" if not part or part[0] in "-" else part


def safe_path(text: str) -> str:
    """A path below a folder of the archive.

    >>> safe_path("/root/../../etc/x y")
    'root/_/_/etc/x_y'
    """
    parts = [safe_part(part) for part in text.split("/") if part and part != "."]
    kept = "/".join(parts[-20:])
    return kept[-_MAX_PATH:].lstrip("/") or "_"


def _distinct(folders: Mapping[str, str]) -> dict[str, str]:
    """The same names, with a number behind those that two hosts share."""
    taken: dict[str, int] = {}
    named: dict[str, str] = {}
    for host, folder in folders.items():
        taken[folder] = taken.get(folder, 0) + 1
        named[host] = folder if taken[folder] == 1 else f"{folder}~{taken[folder]}"
    return named


@cache
def _index() -> ShapeIndex:
    return ShapeIndex([([word.encode()], word.encode()) for word in WORDS], encoded=True)  # type: ignore[no-untyped-call]


def gated(block: bytes) -> bytes:
    """The block, which ends with a line, without secrets: as `hide_secrets` leaves it, byte for byte."""
    text = hide_layered(block.decode("utf-8", "surrogateescape"))
    data = text.encode("utf-8", "surrogateescape")
    return hide_in_lines(text, _chosen(data)).encode("utf-8", "surrogateescape")


def _chosen(block: bytes) -> Iterator[int]:
    """The numbers of the lines that hold one of the words."""
    lower = block.lower() + b"\n"
    lines, shapes = split_block(lower)  # type: ignore[no-untyped-call]
    numbers = _index().numbered(lower)  # type: ignore[no-untyped-call]
    hot = _index().hot_shapes([shape for shape in shapes if len(shape) <= MAX_LINE])  # type: ignore[no-untyped-call]
    for number, (line, shape) in enumerate(zip(lines, shapes, strict=True)):
        triggers = (*hot.get(shape, ()), *numbers.get(number, ()))
        if len(shape) > MAX_LINE or (triggers and any(word in line for word in triggers)):
            yield number
