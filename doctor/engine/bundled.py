"""Where the checks and playbooks of this program lie. Light: quick commands load it, so it imports no library."""

from __future__ import annotations

import os

PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def bundled_path(folder: str) -> str:
    """The folder ``checks`` or ``playbooks``: inside the package, or beside it in a clone.

    The current directory and ``sys.path`` play no part: a repository's own ``checks/`` is never taken for ours.
    """
    installed = os.path.join(PACKAGE_FOLDER, folder)
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(PACKAGE_FOLDER), folder)


def bundled_check_paths() -> list[str]:
    """The files of the bundled checks, sorted by name."""
    folder = bundled_path("checks")
    names = sorted(name for name in os.listdir(folder) if name.endswith(".py") and "a" <= name[0] <= "z")
    return [os.path.join(folder, name) for name in names]
