"""Hosts and other foreign words, squeezed into one word of plain letters within a given room. Pure."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from functools import lru_cache

from doctor.report.layout.host_names import Fleet

SAFE = frozenset(string.ascii_letters + string.digits + "._-+=:/@~^*(){}?!#,[]")
NAME = SAFE - frozenset(",[]:=")
SAMPLE = 64
"""Hosts that are folded to see whether they fold well."""


def few(hosts: Sequence[str], fleet: Fleet, room: int) -> str:
    """Hosts, folded: as many as there is room for, and the number of the others."""
    if not hosts:
        return ""
    names = [escaped(host, NAME, 60) for host in fleet.ordered(hosts)]
    shown = len(names)
    if shown > SAMPLE and len(fleet.fold(names[:SAMPLE])) > 2 * room + 100:
        shown = SAMPLE  # names without a pattern: all of them would take seconds, and not become fewer
    folded = ""
    while shown:
        folded = fleet.fold(names[:shown])
        if len(folded) <= max(room, 1):
            break
        shown = min(shown // 2, SAMPLE)
    left = len(names) - shown
    return ",".join([*([folded] if shown else []), *([f"+{left}"] if left else [])])


def some(words: Sequence[str], room: int) -> str:
    """Words with commas between: as many as there is room for, and the number of the others."""
    shown = [escaped(word, NAME, 60) for word in words]
    while shown and len(",".join(shown)) > max(room, 3):
        shown.pop()
    left = len(words) - len(shown)
    return ",".join([*shown, *([f"+{left}"] if left else [])])


@lru_cache(4096)
def escaped(text: str, safe: frozenset[str] = SAFE, limit: int = 60) -> str:
    """``text`` as one word of plain letters: all else as %XX of its UTF-8."""
    if re.fullmatch(r"[A-Za-z0-9._-]*", text) and len(text) <= limit:
        return text
    words = "".join(
        letter if letter in safe else "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "backslashreplace"))
        for letter in text[: limit + 1]
    )
    return words if len(words) <= limit else words[: limit - 1] + "~"
