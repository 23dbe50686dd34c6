"""What a check declares in its file's first lines, read without running the file."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

DECLARATION = re.compile(
    r'^@check\(severity=(?P<severity>ERROR|WARNING), area="(?P<area>[a-z]+)"'
    r"(?:, (?:single_host|follows_from|explained_by|advisory)=[A-Z_]+)*\)\n"
    r"def (?P<name>[a-z_0-9]+)\((?:[^()]|\([^()]*\))*\) -> Iterator\[Finding\]:\n"
    r'    r?"""(?P<claim>[^\n"]+?)\.?(?:"""|\n)',
    re.M,
)


def read_declaration(path: str | os.PathLike[str], stem: str) -> re.Match[str] | None:
    """``severity``, ``area``, ``name`` and ``claim`` of the check ``stem``; None for a file that looks unusual.

    >>> from doctor.engine.catalog import bundled_folder
    >>> read_declaration(bundled_folder("checks") / "disk_full.py", "disk_full")["area"]
    'memory'
    """
    with open(path, encoding="utf-8") as file:
        match = DECLARATION.search(file.read())
    return match if match and match["name"] == stem else None
