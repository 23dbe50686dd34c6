"""Collects, inside the user's program, the digests that ``doctor watch --data`` compares. Python 3.8, torch 2.1.

The hook loads this file alone, by its path; the modules beside it are loaded as a package with a name of its own, so
that nothing of the user's is shadowed.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any

SCHEDULE = "DOCTOR_WATCH_DATA"
"""The environment variable with the steps that are digested: ``10,100`` is the first 10 and every 100th; without an
interval, the first 10 and then 16, 64, 256, ..."""
_PACKAGE = "_doctor_watch_hook"


def install(torch: Any) -> bool:
    """Puts the hooks into this process; False where `SCHEDULE` does not ask for them, or they cannot be put there.

    Each record is written to the folder of ``DOCTOR_WATCH_PROBES``. Raises nothing.
    """
    try:
        schedule = parse_schedule(os.environ.get(SCHEDULE, ""))
        if schedule is None:
            return False
        if _PACKAGE not in sys.modules:
            package = types.ModuleType(_PACKAGE)
            package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
            sys.modules[_PACKAGE] = package
        collection = importlib.import_module(_PACKAGE + ".data_collection")
        return bool(collection.install(torch, *schedule))
    except Exception as error:
        _report(f"{type(error).__name__}: {error}"[:200])
        return False


def _report(text: str) -> None:
    try:
        if out := importlib.import_module(_PACKAGE + ".channel").channel():
            out.write("failed", n="data_hooks", text=text)
    except Exception:  # the error cannot be reported any more
        return


def parse_schedule(text: str) -> tuple[int, int] | None:
    """First steps and interval, from ``10,100`` or ``10``; None for anything else. Interval 0: none; -1: it grows."""
    numbers = text.split(",")
    if not 1 <= len(numbers) <= 2 or not all(number.strip().isdigit() and len(number) < 10 for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else -1
