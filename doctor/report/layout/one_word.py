"""Hosts and other foreign words, squeezed into one word of plain letters within a given room. Pure."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from functools import lru_cache

from doctor.report.layout.host_names import Fleet

SAFE_CHARS = frozenset(string.ascii_letters + string.digits + "._-+=:/@~^*(){}?!#,[]")
NAME_CHARS = SAFE_CHARS - frozenset(",[]:=")
FOLD_SAMPLE_HOSTS = 64
"""Hosts that are folded to see whether they fold well."""


def fold_within(hosts: Sequence[str], fleet: Fleet, max_chars: int) -> str:
    """Hosts, folded: as many as there is room for, and the number of the others."""
    if not hosts:
        return ""
    names = [percent_escape(host, NAME_CHARS, 60) for host in fleet.ordered(hosts)]
    shown_count = len(names)
    if shown_count > FOLD_SAMPLE_HOSTS and len(fleet.fold(names[:FOLD_SAMPLE_HOSTS])) > 2 * max_chars + 100:
        shown_count = FOLD_SAMPLE_HOSTS  # names without a pattern: all of them would take seconds, and not become fewer
    folded = ""
    while shown_count:
        folded = fleet.fold(names[:shown_count])
        if len(folded) <= max(max_chars, 1):
            break
        shown_count = min(shown_count // 2, FOLD_SAMPLE_HOSTS)
    remaining = len(names) - shown_count
    return ",".join([*([folded] if shown_count else []), *([f"+{remaining}"] if remaining else [])])


def join_within(names: Sequence[str], max_chars: int) -> str:
    """Words with commas between: as many as there is room for, and the number of the others."""
    escaped_names = [percent_escape(name, NAME_CHARS, 60) for name in names]
    while escaped_names and len(",".join(escaped_names)) > max(max_chars, 3):
        escaped_names.pop()
    remaining = len(names) - len(escaped_names)
    return ",".join([*escaped_names, *([f"+{remaining}"] if remaining else [])])


@lru_cache(4096)
def percent_escape(text: str, safe: frozenset[str] = SAFE_CHARS, limit: int = 60) -> str:
    """``text`` as one word of plain letters: all else as %XX of its UTF-8."""
    if re.fullmatch(r"[A-Za-z0-9._-]*", text) and len(text) <= limit:
        return text
    result = "".join(
        letter if letter in safe else "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "backslashreplace"))
        for letter in text[: limit + 1]
    )
    return result if len(result) <= limit else result[: limit - 1] + "~"
