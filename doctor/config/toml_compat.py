"""TOML, by the standard library or, before Python 3.11, by the package that it was made from."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def loads(text: str) -> dict[str, Any]:
    """Raises: ValueError for invalid TOML; RecursionError for too deep nesting."""
    document: dict[str, Any] = tomllib.loads(text)
    return document
