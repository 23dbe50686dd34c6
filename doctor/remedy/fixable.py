"""Which checks have an automatic fix, for the line with the fix command."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

from doctor.engine.catalog import bundled_folder
from doctor.engine.toml_compat import loads


def fixable_checks(checks: Collection[str] | None = None, folder: Path | None = None) -> frozenset[str]:
    """Those of these checks (None: of all) treated by a playbook that does something, and applies without its name.

    An invalid file is skipped here; `doctor fix` reports what is wrong with it.
    """
    failed = None if checks is None else frozenset(checks)
    return _checks_treated(folder, failed) if folder else _bundled(bundled_folder("playbooks"), failed)


def _checks_treated(folder: Path, failed: frozenset[str] | None) -> frozenset[str]:
    checks: set[str] = set()
    for path in folder.glob("*.toml"):
        try:
            text = path.read_text("utf-8")
            if failed is not None and not any(name in text for name in failed):
                continue  # to parse them all takes a tenth of the time of a check of one host
            playbook = loads(text)
        except (OSError, ValueError):
            continue
        if _applies_by_default(playbook):
            checks.update(name for name in playbook.get("treats", ()) if isinstance(name, str))
    return frozenset(checks if failed is None else checks & failed)


_bundled = cache(_checks_treated)


def _applies_by_default(playbook: dict[str, Any]) -> bool:
    steps = playbook.get("step")
    steps = steps if isinstance(steps, list) else []
    return not playbook.get("explicit") and any(
        isinstance(step, dict) and ("run" in step or "file" in step) for step in steps
    )
