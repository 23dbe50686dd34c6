"""Which code a launch line starts: the revision of its folder, and digests of the files that it names. Runs nothing.

git is not called: its configuration may run programs. ``HEAD`` and the branch that it names are read as files.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from doctor.engine.bounded_read import open_bounded, read_bounded, read_bounded_text
from doctor.engine.sanitize import count_noun, printable
from doctor.engine.texts import filled
from doctor.facts.settings import UNREAD
from doctor.job.launch_line import LaunchLine
from doctor.job.launch_line.read import SHELL_SCRIPTS

MAX_FILES = 32
"""Files of one launch line."""
MAX_FILE_BYTES = 16 << 20
MAX_SOURCES, MAX_READ, MAX_DEPTH = 1000, 10_000, 3
"""Limits below the program's folder: files that are named one by one, files that are read, levels of folders."""
MAX_SOURCE_BYTES, SOURCE_SECONDS = 256 << 20, 5.0
"""For all of these files together, with the search for them; beyond it none of them is compared."""
SOURCES = (
    *(".py", ".sh", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".env", ".jinja", "hostfile"),
    *(".so", ".pyx", ".c", ".cc", ".cpp", ".h", ".hpp", ".cu", ".cuh", "requirements.txt"),
)
"""How the names of sources and configurations end; of JSON, which jobs write as results too, `_CONFIGURATION`."""
_CONFIGURATION = re.compile(r"(?i)(?=.*config|ds_|deepspeed|zero).*\.json\Z")
PIECE = 1 << 16
"""Bytes at the beginning, the middle and the end of a file that is too large to be read."""
MAX_GIT_BYTES = 4 << 20
MAX_PARENTS = 12
"""Folders above the program in which ``.git`` is looked for."""
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_REFERENCE = re.compile(r"refs/[\w./+-]{1,200}\Z", re.ASCII)


def code_of_line(line: LaunchLine | None) -> dict[str, str] | None:
    """By file, the digest of its content, and by folder the revision that is checked out; None without a launch line.

    The files: the program, and arguments that are files on this host, such as configurations.
    """
    if line is None:
        return None
    code: dict[str, str] = {}
    for path in dict.fromkeys(_named_files(line)):
        if len(code) >= MAX_FILES:
            break
        if digest := _digest(_content(path)) or _digest_of_pieces(path):
            code[filled("file {0}", printable(path, 300))] = digest
        elif os.path.islink(path) and os.path.isdir(path):
            code[filled("link {0}", printable(path, 300))] = printable(os.path.realpath(path), 300)
    if line.program.endswith((".py", *SHELL_SCRIPTS)) and os.path.isfile(line.program):
        try:
            code |= _sources(line.program)
        except TimeoutError:
            code[UNREAD] = "sources"
    top = _repository(Path(os.path.abspath(line.program or ".")).parent)
    if top:
        revision = _revision(top)
        if revision:
            code[filled("revision of {0}", printable(str(top), 300))] = revision
    return code


def _named_files(line: LaunchLine) -> Iterator[str]:
    for word in (line.program, *line.arguments):
        yield word
        if word.startswith("-") and "=" in word:
            yield word.partition("=")[2]


def _sources(program: str) -> dict[str, str]:
    """Digests of sources and configurations in the program's folder and below; of each folder's together where many.

    Raises: TimeoutError, beyond `SOURCE_SECONDS` or `MAX_SOURCE_BYTES`.
    """
    folder, digests = os.path.dirname(program), dict[str, str]()
    until, left = time.monotonic() + SOURCE_SECONDS, MAX_SOURCE_BYTES
    places = list(_source_files(folder or ".", until))
    is_each = sum(len(names) for _, names in places) <= MAX_SOURCES
    for place, names in places:
        read = dict[str, str]()
        for name in names:
            content = _content(os.path.join(place, name))
            left -= len(content or b"")
            if left < 0 or time.monotonic() > until:
                raise TimeoutError
            read[name] = _digest(content) or _digest_of_pieces(os.path.join(place, name))
        below = os.path.normpath(os.path.join(folder, os.path.relpath(place, folder or ".")))
        if is_each:
            digests |= {
                filled("file {0}", printable(os.path.normpath(os.path.join(below, name)), 300)): digest
                for name, digest in read.items()
                if digest
            }
        else:
            total = hashlib.sha256(repr(sorted(read.items())).encode("utf-8", "surrogatepass")).hexdigest()[:12]
            digests[filled("sources in {0}", printable(below, 300))] = filled(
                "{0} {1}", count_noun(len(names), "file"), total
            )
    return digests


def _source_files(folder: str, until: float) -> Iterator[tuple[str, list[str]]]:
    """By folder, three deep, the names of its files of `SOURCES`; `MAX_READ` at most. Raises: TimeoutError."""
    count = 0
    for place, folders, names in os.walk(folder):
        if time.monotonic() > until:
            raise TimeoutError
        depth = place.count("/") - folder.count("/")
        folders[:] = sorted(name for name in folders if name[:1] not in "._" and depth < MAX_DEPTH)
        sources = sorted(name for name in names if name.endswith(SOURCES) or _CONFIGURATION.match(name))[
            : MAX_READ - count
        ]
        count += len(sources)
        if sources:
            yield place, sources
        if count >= MAX_READ:
            return


def _content(path: str) -> bytes | None:
    """Of a regular file of at most 16 MiB; None for anything else."""
    try:
        return read_bounded(path, MAX_FILE_BYTES)
    except (OSError, ValueError):  # ValueError: a path with a zero byte
        return None


def _digest(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()[:12]


def _digest_of_pieces(path: str) -> str:
    """Of a regular file that is too large to be read; empty for anything else."""
    try:
        with open_bounded(path, sys.maxsize) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= MAX_FILE_BYTES:
                return ""
            pieces = [os.pread(file.fileno(), PIECE, place) for place in (0, size // 2, size - PIECE)]
    except (OSError, ValueError):
        return ""
    return _digest(b"".join((str(size).encode(), *pieces)))


def _repository(folder: Path) -> Path | None:
    for parent in (folder, *folder.parents)[:MAX_PARENTS]:
        if os.path.lexists(parent / ".git"):
            return parent
    return None


def _revision(top: Path) -> str:
    """The commit of ``HEAD``; empty where the files do not say it."""
    git = top / ".git"
    try:
        if git.is_file():  # a worktree or a submodule: "gitdir: PATH"
            git = top / read_bounded_text(git, 4096).partition(":")[2].strip()
        head = read_bounded_text(git / "HEAD", 4096).strip()
        if _HASH.match(head):
            return head[:12]
        name = head.partition("ref:")[2].strip()
        if not _REFERENCE.match(name) or ".." in name:
            return ""
        common = git
        if (git / "commondir").is_file():
            common = git / read_bounded_text(git / "commondir", 4096).strip()
        return filled("{0} ({1})", _branch(common, name), printable(name.removeprefix("refs/heads/"), 100))
    except (OSError, ValueError):
        return ""


def _branch(git: Path, name: str) -> str:
    try:
        commit = read_bounded_text(git / name, 4096).strip()
    except FileNotFoundError:
        packed = read_bounded_text(git / "packed-refs", MAX_GIT_BYTES).splitlines()
        commit = next((line.split(" ")[0] for line in packed if line.endswith(f" {name}")), "")
    return commit[:12] if _HASH.match(commit) else "unknown"
