"""A plugin of pytest: writes what each test has made checks find, for `tests.test_claims`."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor.engine.check import Check
from doctor.engine.fact import Unreadable
from doctor.engine.result import Finding

FINDINGS: dict[str, list[tuple[str, str]]] = {}
"""By test, without its parameters: check and sentence of each finding, and of what makes the check unknown."""
OUTPUT = "CLAUSE_FINDINGS"
"""The variable that names the file to write."""
_test = [""]
_init = Check.__init__


def _observed(self: Check, function: Callable[..., Any], path: str = "") -> None:
    @functools.wraps(function)
    def findings(*facts: Any, **named: Any) -> Iterator[Finding]:
        try:
            for finding in function(*facts, **named) or ():
                FINDINGS.setdefault(_test[0], []).append((self.name, str(finding)))
                yield finding
        except Unreadable as why:
            FINDINGS.setdefault(_test[0], []).append((self.name, str(why)))
            raise

    _init(self, findings, path)


Check.__init__ = _observed  # type: ignore[method-assign]


def pytest_runtest_setup(item: pytest.Item) -> None:
    file = item.path.relative_to(Path(__file__).parent).as_posix()
    _test[0] = f"{file}::{getattr(item, 'originalname', item.name)}"


def pytest_unconfigure() -> None:
    Path(os.environ[OUTPUT]).write_text(json.dumps(FINDINGS), "utf-8")
