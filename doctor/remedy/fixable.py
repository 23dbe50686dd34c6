"""Which checks `doctor fix` can mend by itself: a glance at the playbooks, for the line that names the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from doctor.config.toml_compat import loads
from doctor.engine.catalog import home


def mendable(folder: Path | None = None) -> frozenset[str]:
    """The checks treated by a playbook that does something, and needs not be named to be applied.

    A file that breaks the rules is passed over here: `doctor fix` says what is wrong with it.
    """
    found: set[str] = set()
    for path in (folder or home("playbooks")).glob("*.toml"):
        try:
            book = loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if _acts(book):
            found.update(name for name in book.get("treats", ()) if isinstance(name, str))
    return frozenset(found)


def _acts(book: dict[str, Any]) -> bool:
    steps = book.get("step")
    steps = steps if isinstance(steps, list) else []
    return not book.get("explicit") and any(isinstance(one, dict) and ("run" in one or "file" in one) for one in steps)
