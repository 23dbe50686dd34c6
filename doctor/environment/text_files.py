"""Reads text files; tests and replays pass their own function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

ReadFile = Callable[[str], str]
"""A file's text by its path. Raises: OSError, UnicodeDecodeError, ValueError."""


def read_text_file(path: str) -> str:
    """The file at ``path`` as UTF-8 text. Raises: OSError, UnicodeDecodeError."""
    return Path(path).read_text("utf-8")
