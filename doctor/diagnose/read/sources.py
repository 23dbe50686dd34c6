"""Files, folders, globs and archives, as named streams of bytes. Archives are read in place, nothing is unpacked."""

from __future__ import annotations

import glob
import os
import stat
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

import msgspec

from doctor.diagnose.events import TIME_ENDED
from doctor.diagnose.excerpter.file_blocks import COMPRESSED, data_blocks, has_zstd, opened
from doctor.engine.errors import InputError
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled

BLOCK = 1 << 20
"""Bytes read at once."""
MAX_FILES = 200_000
MAX_MEMBER_BYTES = 64 << 30
"""Bytes of one compressed file or member after decompression; what is beyond is not read, and noted."""
MAX_GROWTH = 64 << 20
"""Bytes read of what is written to a file after it was found: a program that writes fast keeps no reader for ever."""
MAX_MEMBERS = 50_000
SKIPPED_SUFFIXES = frozenset(
    f".{suffix}"
    for suffix in (
        *("py", "pyc", "so", "a", "o", "whl", "pt", "pth", "ckpt", "safetensors", "bin", "npy", "npz", "h5"),
        *("onnx", "om", "png", "jpg", "pdf"),
    )
)
"""Names in a folder that hold no log."""
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz")
_ZSTD_TARS = (".tar.zst", ".tzst")
_PACKED_TAR = (
    *((b"\x1f\x8b", ".gz"), (b"BZh", ".bz2"), (b"\xfd7zXZ", ".xz"), (b"\x5d\0\0", ".xz")),
    (b"\x28\xb5\x2f\xfd", ".zst"),
)
"""The first bytes of compressed archives, which decide; the suffixes of their names do not."""
UNREADABLE = (
    *(OSError, EOFError, MemoryError, RuntimeError, NotImplementedError),
    *(zlib.error, tarfile.TarError, zipfile.BadZipFile),
)
"""What opening or reading a damaged, encrypted or hostile archive raises."""


class Source(msgspec.Struct, frozen=True):
    """A file or archive to read; an archive holds several logs."""

    path: str
    """``-`` for standard input."""
    size: int = 0
    modified: float = 0.0


def find_sources(arguments: Iterable[str], until: float = float("inf")) -> list[Source]:
    """The files that the arguments name, each once, by name. Folders are searched; a pattern may match several.
    ``until``: when the search ends, by the monotonic clock; the folder is then a source that could not be read.

    Raises: InputError (exit code 78) for what does not exist, cannot be opened, or is no file or folder.
    """
    sources: dict[tuple[int, int], Source] = {}
    for argument in arguments:
        if argument == "-":
            sources[(-1, -1)] = Source("-")
            continue
        for path in _expand(argument):
            for file in _files_of(path):
                if time.monotonic() > until:
                    sources[(-3, len(sources))] = Source(path)
                    break
                try:
                    status = os.stat(file)
                except OSError:  # it went away, and is noted when it is opened
                    sources[(-2, len(sources))] = Source(file)
                    continue
                sources.setdefault((status.st_dev, status.st_ino), Source(file, status.st_size, status.st_mtime))
                if len(sources) > MAX_FILES:
                    raise InputError(
                        filled("{0}: more than {1} files; expected the logs of one job", printable(argument), MAX_FILES)
                    )
    return sorted(sources.values(), key=lambda source: source.path)


def _expand(argument: str) -> list[str]:
    if os.path.exists(argument):
        return [argument]
    matches = sorted(glob.glob(os.path.expanduser(argument), recursive=True))
    if not matches:
        name = printable(argument)
        raise InputError(
            filled("{0}: does not exist; expected log files, folders or patterns, or --logs for those of hosts", name)
        )
    return matches


def _files_of(path: str) -> Iterator[str]:
    """The file itself, or the regular files below a folder, and the folders in it that cannot be opened.

    Raises: InputError.
    """
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            os.listdir(path)
    except OSError as error:
        raise InputError(filled("{0}: {1}; expected readable logs", printable(path), error.strerror)) from None
    if stat.S_ISREG(mode):
        yield path
    elif stat.S_ISDIR(mode):
        closed: list[str] = []
        for folder, folders, names in os.walk(path, onerror=lambda error: closed.append(str(error.filename))):
            folders[:] = sorted(name for name in folders if name not in (".git", "__pycache__"))
            for name in sorted(names):
                file = os.path.join(folder, name)
                if os.path.splitext(name)[1] not in SKIPPED_SUFFIXES and _is_regular(file):
                    yield file
        yield from closed
    else:
        raise InputError(filled("{0}: is not a regular file; expected log files or folders", printable(path)))


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


Stream = tuple[str, Iterator[bytes], list[str]]
"""Shown name, blocks of bytes, and notes that are filled while the blocks are read."""


def streams(source: Source, until: float = float("inf")) -> Iterator[Stream]:
    """The logs of one source. Damage ends a stream early and is noted, it raises nothing.

    ``until``: when reading ends, by the monotonic clock; what is left then is noted.
    """
    if source.path == "-":
        yield "-", *_noted(_blocks_of(sys.stdin.buffer), until)
        return
    name = source.path
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        yield name, iter(()), [filled("cannot be opened: {0}", error.strerror)]
        return
    if stat.S_ISDIR(os.fstat(handle).st_mode):  # its search was not ended
        os.close(handle)
        yield name, iter(()), [TIME_ENDED]
        return
    with os.fdopen(handle, "rb") as file:
        lower = name.lower()
        if lower.endswith(_ARCHIVES) or (lower.endswith(_ZSTD_TARS) and has_zstd()):  # type: ignore[no-untyped-call]
            yield from _tar_members(name, file, until)
        elif lower.endswith(".zip"):
            yield from _zip_members(name, file, until)
        else:
            content = _opened(lower, file)
            if content is file:
                limit = min(source.size + MAX_GROWTH, os.fstat(handle).st_size)
                yield name, *_noted(data_blocks(file, limit), until)  # type: ignore[no-untyped-call]
            else:
                yield name, *_noted(_blocks_of(content), until)


def open_tar(file: IO[bytes]) -> tarfile.TarFile:
    """An archive for reading from start to end, with any known compression. Raises: those of `UNREADABLE`."""
    head = file.read(6)
    file.seek(0)
    suffix = next((suffix for magic, suffix in _PACKED_TAR if head.startswith(magic)), "")
    if not suffix:
        return tarfile.open(fileobj=file, mode="r:")
    content = opened(suffix, file)  # type: ignore[no-untyped-call]
    return tarfile.open(fileobj=content, mode="r|")


def _tar_members(name: str, file: IO[bytes], until: float) -> Iterator[Stream]:
    try:
        with open_tar(file) as archive:
            for number, member in enumerate(archive):
                if number >= MAX_MEMBERS:
                    yield name, iter(()), [filled("more than {0} members: the rest was not read", MAX_MEMBERS)]
                    return
                content = archive.extractfile(member) if member.isreg() else None
                if content and os.path.splitext(member.name)[1] not in SKIPPED_SUFFIXES:
                    yield f"{name}!{member.name}", *_noted(_blocks_of(_opened(member.name, content)), until)
                if time.monotonic() > until:
                    yield name, iter(()), [TIME_ENDED]
                    return
    except UNREADABLE as error:
        yield name, iter(()), [filled("the archive is damaged: {0}", printable(str(error)))]


def _zip_members(name: str, file: IO[bytes], until: float) -> Iterator[Stream]:
    try:
        with zipfile.ZipFile(file) as archive:
            for number, member in enumerate(archive.infolist()):
                if number >= MAX_MEMBERS:
                    yield name, iter(()), [filled("more than {0} members: the rest was not read", MAX_MEMBERS)]
                    return
                if member.is_dir() or os.path.splitext(member.filename)[1] in SKIPPED_SUFFIXES:
                    continue
                if member.compress_type == zipfile.ZIP_LZMA:  # zipfile bounds no memory of it
                    why = "is compressed by LZMA in a zip file: it was not read"
                    yield f"{name}!{member.filename}", iter(()), [why]
                    continue
                with archive.open(member) as content:
                    yield f"{name}!{member.filename}", *_noted(_blocks_of(_opened(member.filename, content)), until)
                if time.monotonic() > until:
                    yield name, iter(()), [TIME_ENDED]
                    return
    except UNREADABLE as error:
        yield name, iter(()), [filled("the archive is damaged: {0}", printable(str(error)))]


def _opened(name: str, content: IO[bytes]) -> IO[bytes]:
    """What decompresses the content, where its name shows that it is compressed."""
    suffix = os.path.splitext(name.lower())[1]
    return opened(suffix, content) if suffix in COMPRESSED else content  # type: ignore[no-untyped-call]


def _blocks_of(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(BLOCK), b"")


def _noted(blocks: Iterator[bytes], until: float) -> tuple[Iterator[bytes], list[str]]:
    notes: list[str] = []
    return _bounded(blocks, until, notes), notes


def _bounded(blocks: Iterator[bytes], until: float, notes: list[str]) -> Iterator[bytes]:
    """At most `MAX_MEMBER_BYTES`, and none that are read after ``until``."""
    total = 0
    try:
        for block in blocks:
            total += len(block)
            if total > MAX_MEMBER_BYTES:
                notes.append(filled("is larger than {0} GiB: the rest was not read", MAX_MEMBER_BYTES >> 30))
                return
            yield block
            if time.monotonic() > until:
                notes.append(TIME_ENDED)
                return
    except UNREADABLE as error:
        notes.append(filled("could be read only in part: {0}", printable(str(error) or type(error).__name__)))
