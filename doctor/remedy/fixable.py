"""Which checks have an automatic fix, for the line with the fix command."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from doctor.engine.catalog import bundled_folder
from doctor.engine.toml_compat import loads


def fixable_checks(folder: Path | None = None) -> frozenset[str]:
    """The checks treated by a playbook that does something, and needs not be named to be applied.

    An invalid file is skipped here; `doctor fix` reports what is wrong with it.
    """
    return _checks_treated(folder) if folder else _bundled(bundled_folder("playbooks"))


def _checks_treated(folder: Path) -> frozenset[str]:
    checks: set[str] = set()
    for path in folder.glob("*.toml"):
        try:
            playbook = loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if _applies_by_default(playbook):
            checks.update(name for name in playbook.get("treats", ()) if isinstance(name, str))
    return frozenset(checks)


_bundled = cache(_checks_treated)


def _applies_by_default(playbook: dict[str, Any]) -> bool:
    steps = playbook.get("step")
    steps = steps if isinstance(steps, list) else []
    return not playbook.get("explicit") and any(
        isinstance(step, dict) and ("run" in step or "file" in step) for step in steps
    )
