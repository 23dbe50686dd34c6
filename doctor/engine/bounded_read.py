"""Reads a file that a user named: a regular file only, up to a limit of bytes, and without waiting."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from doctor.engine.errors import InputError
from doctor.engine.quantities import bytes_text
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled

MAX_BYTES = 64 << 20
"""Bytes of a file where its kind has no limit of its own."""


def read_bounded(
    path: str | os.PathLike[str], limit: int = MAX_BYTES, check: Callable[[os.stat_result], None] | None = None
) -> bytes:
    """The bytes of a regular file; of ``/dev/null`` none. ``check`` may refuse the file that was opened.

    Raises: OSError, with what is wrong as its ``strerror``, for what cannot be opened, is no
    regular file (a pipe may never end), or holds more than ``limit`` bytes; and the exceptions of ``check``.
    """
    with open_bounded(path, limit, check) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise _too_large(path, limit)
    return data


@contextmanager
def open_bounded(
    path: str | os.PathLike[str], limit: int = MAX_BYTES, check: Callable[[os.stat_result], None] | None = None
) -> Iterator[BinaryIO]:
    """The file, opened as `read_bounded` does; who reads it keeps to ``limit``, for it may grow. Raises: OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) and os.fspath(path) != os.devnull:
            raise OSError(errno.EINVAL, "is not a regular file", os.fspath(path))
        if check:
            check(status)
        if status.st_size > limit:
            raise _too_large(path, limit)
        yield file


def _too_large(path: str | os.PathLike[str], limit: int) -> OSError:
    return OSError(errno.EFBIG, filled("is larger than {0}", bytes_text(limit)), os.fspath(path))


def read_bounded_text(path: str | os.PathLike[str], limit: int = MAX_BYTES, errors: str = "strict") -> str:
    """The file as UTF-8 text, with `plain_lines`. Raises: OSError (`read_bounded`), UnicodeDecodeError."""
    return plain_lines(read_bounded(path, limit).decode("utf-8", errors))


def plain_lines(text: str) -> str:
    """Each end of a line one newline. Not of a shell script: to a shell a carriage return is a character of a word."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


ReadFile = Callable[[str], str]
"""A file's text by its path. Raises: OSError, UnicodeDecodeError, ValueError."""


def read_text_file(path: str) -> str:
    """The file at ``path`` as UTF-8 text, as `read_bounded` reads it. Raises: OSError, UnicodeDecodeError."""
    return read_bounded_text(path)


@contextmanager
def refusing_unreadable(name: str, expected: str, refusal: type[Exception] = InputError) -> Iterator[None]:
    """Around reading a file that a user named. ``name``: as the user gave it; ``expected``: its kind, with an article.

    Raises: ``refusal`` for what cannot be read.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        values = (printable(name, 240), unreadable_reason(error), expected)
        raise refusal(filled("{0}: {1}; expected {2} that can be read", *values)) from None


def unreadable_reason(error: OSError | ValueError) -> str:
    """Why a file cannot be read, as a part of a sentence; for the errors of `ReadFile`."""
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    return printable(getattr(error, "strerror", None) or str(error), 200)
