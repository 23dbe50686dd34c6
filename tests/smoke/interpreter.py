"""The interpreter that runs the tests, as the job's interpreter on test hosts."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OF_THE_HOST = ("/root", "/tmp", "/run")
"""Where a test host has files of its own; the rest of the machine it sees."""


def visible_folders() -> list[str]:
    """The override "shows" that makes it visible there, and this project with it."""
    places = {str(Path(path).resolve()) for path in (sys.prefix, sys.base_prefix, ROOT)}
    return sorted(path for path in places if path.startswith(OF_THE_HOST))
