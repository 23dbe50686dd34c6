"""The user's known host keys: ``known_hosts`` files, read once, matched as ssh(1) matches them."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from doctor.engine.bounded_read import read_bounded_text
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled

Verdict = Literal["known", "unknown", "changed", "revoked", "authority"]
"""authority: no key of the host itself is known, only one that may sign host certificates."""


class KnownHostLine(NamedTuple):
    """One key of a known_hosts file."""

    kind: str
    """Its type: ``ssh-ed25519``."""
    key: str
    """base64."""
    marker: str = ""
    file: str = ""
    number: int = 0


class HashedLine(NamedTuple):
    """A line with a hashed host name: salt, HMAC-SHA1 digest, and the key."""

    salt: bytes
    digest: bytes
    line: KnownHostLine


class KnownHosts:
    """The keys of one known_hosts file."""

    def __init__(self, text: str, file: str = "") -> None:
        self._named: dict[str, list[KnownHostLine]] = defaultdict(list)
        self._patterned: list[tuple[tuple[str, ...], KnownHostLine]] = []
        self._hashed: list[HashedLine] = []
        self._lines_by_name: dict[str, list[KnownHostLine]] = {}
        for number, line in enumerate(text.splitlines(), 1):
            self._read_line(line.split(), file, number)

    def _read_line(self, fields: list[str], file: str, number: int) -> None:
        """Lines that make no sense are passed over, as ssh does."""
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) < 3 or fields[0].startswith("#"):
            return
        line = KnownHostLine(fields[1], fields[2], marker, file, number)
        self.add(fields[0], line)

    def add(self, names: str, line: KnownHostLine) -> None:
        """Enters a line under the names that stand at its beginning."""
        self._lines_by_name.clear()
        if names.startswith("|1|"):
            hashed = _parse_hashed(names, line)
            if hashed:
                self._hashed.append(hashed)
        elif re.search(r"[*?!]", names):
            self._patterned.append((tuple(names.lower().split(",")), line))
        else:
            for name in names.lower().split(","):
                self._named[name].append(line)

    def find(self, name: str) -> list[KnownHostLine]:
        """Every line that holds for ``name``: a host name, or ``[name]:port``."""
        name = name.lower()
        lines = self._lines_by_name.get(name)
        if lines is None:
            lines = self._lines_by_name[name] = self._search(name)
        return lines

    def _search(self, name: str) -> list[KnownHostLine]:
        lines = list(self._named.get(name, ()))
        lines += [line for patterns, line in self._patterned if matches_patterns(name, patterns)]
        encoded_name = name.encode()
        lines += [line for salt, digest, line in self._hashed if hmac.digest(salt, encoded_name, "sha1") == digest]
        return lines


def _parse_hashed(names: str, line: KnownHostLine) -> HashedLine | None:
    try:
        _, _, salt, digest = names.split("|")
        return HashedLine(base64.b64decode(salt), base64.b64decode(digest), line)
    except ValueError:
        return None


def matches_patterns(name: str, patterns: Iterable[str]) -> bool:
    """Whether ``name`` is meant by a list of patterns: one fits, and none that begins with ``!`` does."""
    meant = False
    for pattern in patterns:
        if _matches_glob(name, pattern.removeprefix("!")):
            if pattern.startswith("!"):
                return False
            meant = True
    return meant


def _matches_glob(name: str, pattern: str) -> bool:
    """``*`` and ``?`` only: in known_hosts, brackets are part of a name. Each part between two ``*`` is searched once,
    so that no pattern needs more than its length times that of the name.
    """
    if len(pattern) - pattern.count("*") > len(name):
        return False
    first, *parts = pattern.split("*")
    if not parts:
        return len(name) == len(pattern) and _find(name, first) == 0
    last = parts.pop()
    end = len(name) - len(last)
    if _find(name[: len(first)], first) != 0 or _find(name[end:], last) != 0:
        return False
    at = len(first)
    for part in filter(None, parts):
        offset = _find(name[at:end], part)
        if offset < 0:
            return False
        at += offset + len(part)
    return at <= end


def _find(name: str, part: str) -> int:
    """Where a pattern without ``*`` first fits, or -1."""
    if "?" not in part:
        return name.find(part)
    match = re.search("".join("." if letter == "?" else re.escape(letter) for letter in part), name, re.DOTALL)
    return match.start() if match else -1


def verify_key(lines: Sequence[KnownHostLine], key: str) -> Verdict:
    """What the lines found for a host say of the key (base64) that it shows."""
    if any(line.marker == "@revoked" and line.key == key for line in lines):
        return "revoked"
    host_lines = [line for line in lines if not line.marker]
    if any(line.key == key for line in host_lines):
        return "known"
    if host_lines:
        return "changed"
    return "authority" if any(line.marker == "@cert-authority" for line in lines) else "unknown"


def host_entry_name(name: str, port: int) -> str:
    """How known_hosts writes a host.

    >>> host_entry_name("Node1", 22), host_entry_name("node1", 2222)
    ('node1', '[node1]:2222')
    """
    return name.lower() if port == 22 else f"[{name.lower()}]:{port}"


def key_fingerprint(key: str) -> str:
    """The key (base64) as ssh shows it: ``SHA256:...``."""
    try:
        digest = hashlib.sha256(base64.b64decode(key)).digest()
    except ValueError:
        return "(unreadable key)"
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def hashed_name(name: str, salt: bytes | None = None) -> str:
    """A name as ``HashKnownHosts yes`` writes it."""
    salt = salt or os.urandom(20)
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


class KnownHostsFiles:
    """known_hosts files by path, each read when first asked for, and never again."""

    def __init__(self, warnings: list[str]) -> None:
        self._warnings = warnings
        self._files: dict[str, KnownHosts] = {}
        self._lock = threading.Lock()

    def find(self, files: Iterable[str], name: str) -> list[KnownHostLine]:
        """The lines of all ``files`` that hold for ``name``."""
        return [line for file in files for line in self._file(file).find(name)]

    def _file(self, path: str) -> KnownHosts:
        with self._lock:
            if path not in self._files:
                self._files[path] = KnownHosts(self._text(path), path)
            return self._files[path]

    def _text(self, path: str) -> str:
        try:
            return read_bounded_text(path, errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            self._warnings.append(filled("{0} could not be read: {1}", strip_control_chars(path), error.strerror))
            return ""

    def remember(self, path: str, name: str, line: KnownHostLine, hash_name: bool) -> None:
        """Appends a key to a file, and to what is known.

        Raises: OSError.
        """
        known_hosts = self._file(path)
        with self._lock:
            names = hashed_name(name) if hash_name else name
            _append(Path(path), f"{names} {line.kind} {line.key}\n")
            known_hosts.add(names, line._replace(file=path))


def _append(path: Path, line: str) -> None:
    """One write at the end, under a lock, on a line of its own; a new file is the user's alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        end = os.fstat(file).st_size
        torn = end > 0 and os.pread(file, 1, end - 1) != b"\n"
        os.write(file, (("\n" if torn else "") + line).encode())
    finally:
        os.close(file)
