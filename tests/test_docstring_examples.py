"""The examples in docstrings hold."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import doctor

pytestmark = pytest.mark.every

PACKAGE = Path(doctor.__file__).parent


def modules() -> list[str]:
    """Those with an example."""
    paths = (path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text("utf-8"))
    return [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in paths]


def failures() -> dict[str, int]:
    """The modules with an example that does not hold, and how many."""
    results = {name: doctest.testmod(importlib.import_module(name.removesuffix(".__init__"))) for name in modules()}
    assert sum(result.attempted for result in results.values()) > 300
    return {name: result.failed for name, result in results.items() if result.failed}


def test_all_examples_hold() -> None:
    """In an interpreter of its own: some of them change what a process keeps."""
    code = "from tests.test_docstring_examples import failures; print(failures())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout == "{}\n", ended.stdout + ended.stderr
