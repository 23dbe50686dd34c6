"""The text of ssh configuration files: not what it means, which ssh knows best, but for which hosts it can differ.

And whether ssh accepts a file, found before any host is visited.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from doctor.engine.bounded_read import read_bounded_text
from doctor.engine.errors import InputError
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.transport import TransportError
from doctor.transport.local import Children, run_command


def patterns(texts: Iterable[str]) -> frozenset[str] | None:
    """The patterns of all ``Host`` lines in configuration files, or None when other lines decide, too.

    Two hosts that fit the same patterns get the same answer from ssh, unless a ``Match``, a canonical name or a
    token makes a difference.
    """
    host_patterns: set[str] = set()
    for text in texts:
        for line in text.splitlines():
            keyword, value = _split_keyword(line)
            if keyword == "host":
                host_patterns.update(word.lstrip("!") for word in value.replace('"', " ").split())
            elif (keyword == "match" and value.lower() != "all") or keyword.startswith("canonical"):
                return None
    return frozenset(host_patterns)


def _split_keyword(line: str) -> tuple[str, str]:
    match = re.match(r"\s*([A-Za-z0-9]+)(?:\s*=\s*|\s+)(.*)", line)
    return (match[1].lower(), match[2].strip()) if match else ("", "")


def config_texts(paths: Iterable[Path], home: Path, base: Path, depth: int = 0) -> list[str] | None:
    """The text of configuration files and of all that they include, or None when one cannot be followed."""
    texts: list[str] = []
    for path in paths:
        try:
            text = read_bounded_text(path, errors="replace")
        except FileNotFoundError:
            continue
        except OSError:
            return None
        included = _included_files(text, home, base)
        inner = None if included is None or depth > 16 else config_texts(included, home, base, depth + 1)
        if inner is None:
            return None
        texts += [text, *inner]
    return texts


def _included_files(text: str, home: Path, base: Path) -> list[Path] | None:
    """The files that ``Include`` lines name; None when that depends on the host or the environment."""
    included_paths: list[Path] = []
    included = [value for keyword, value in map(_split_keyword, text.splitlines()) if keyword == "include"]
    for value in included:
        for word in value.replace('"', " ").split():
            if "%" in word or "$" in word or (word.startswith("~") and not word.startswith("~/")):
                return None
            path = home / word[2:] if word.startswith("~/") else base / word
            included_paths += sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    return included_paths


QUERY_TIMEOUT = 30.0
"""Seconds for ``ssh -G``."""
ANY_NAME = "localhost"
"""ssh reads every line of the file for any host, also below a ``Host`` line that does not match."""
MAX_OUTPUT = 1 << 20
"""Bytes of ``ssh -G``."""


def syntax_error(path: str) -> str:
    """What ssh rejects in the file, in its words; empty where it rejects nothing, or only a visit can show it.

    A file with ``Match`` lines is not tested: they may run commands, which only the visit of a host may do.
    """
    try:
        ssh, home = shutil.which("ssh"), Path(own_account().pw_dir)
    except InputError:
        return ""  # which the visit shows
    texts = config_texts([Path(path)], home, home / ".ssh") if ssh else None
    if not ssh or texts is None or patterns(texts) is None:
        return ""
    argv = [ssh, "-G", "-T", "-F", path, "--", ANY_NAME]
    try:
        result = run_command(Children(), argv, b"", QUERY_TIMEOUT, MAX_OUTPUT)
    except TransportError:
        return ""
    if not result.code:
        return ""
    first_line = result.err.decode("utf-8", "replace").replace("\r", "").partition("\n")[0]
    reason = strip_control_chars(first_line.removeprefix(path).lstrip(": "), 300)
    return reason or filled("ssh -G ends with exit status {0}", result.code)


def own_account() -> pwd.struct_passwd:
    """Raises: InputError, where no user has this number, as in many containers: ssh itself refuses to start there."""
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        text = filled("the user {0} has no entry in /etc/passwd, and SSH needs one", os.getuid())
        raise InputError(text) from None
