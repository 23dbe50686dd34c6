"""Reads text files; tests and replays pass their own function."""

from __future__ import annotations

from collections.abc import Callable

from doctor.engine.bounded_read import read_bounded_text
from doctor.engine.sanitize import printable

ReadFile = Callable[[str], str]
"""A file's text by its path. Raises: OSError, UnicodeDecodeError, ValueError."""


def read_text_file(path: str) -> str:
    """The file at ``path`` as UTF-8 text, as `read_bounded` reads it. Raises: OSError, UnicodeDecodeError."""
    return read_bounded_text(path)


def unreadable_reason(error: OSError | ValueError) -> str:
    """Why a file cannot be read, as a part of a sentence; for the errors of `ReadFile`."""
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    return printable(getattr(error, "strerror", None) or str(error), 200)
