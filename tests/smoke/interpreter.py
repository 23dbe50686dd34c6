"""The interpreter that runs the tests, as the job's interpreter on test hosts."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OF_THE_HOST = ("/root", "/tmp", "/run")
"""Where a test host has files of its own; the rest of the machine it sees."""


def visible_folders() -> list[str]:
    """The override "shows" that makes it visible there, and this project with it."""
    packages = [path for path in sys.path if path.endswith("site-packages")]  # a .pth file may name some of elsewhere
    places = {Path(path).resolve() for path in (sys.prefix, sys.base_prefix, str(ROOT), *packages)}
    outer = [place for place in places if not any(parent in places for parent in place.parents)]
    return sorted(str(place) for place in outer if str(place).startswith(OF_THE_HOST))
