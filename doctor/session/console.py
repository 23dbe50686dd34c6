"""stdout and the report of our own bugs: the two places where a command writes text by itself."""

from __future__ import annotations

import errno
import os
import sys

BUG_EXIT_CODE = 70
NOT_WRITTEN_EXIT_CODE = 78

_unwritten: list[str] = []
"""Why text for stdout was lost, if any was."""


def write(text: str) -> None:
    """stdout, in whatever encoding it has.

    A reader that has gone changes no exit code. Text that could not be written makes `exit_code_of_output` no success.
    """
    from doctor.engine.output_encoding import encoded

    data = text if text.endswith("\n") else text + "\n"
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(encoded(data, encoding))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as error:
        _note_unwritten(error)
    except (AttributeError, ValueError):  # a stdout without bytes (tests), or none at all
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.write(data)


def _note_unwritten(error: OSError) -> None:
    """Tells on stderr, in one line, that stdout cannot be written; what follows is dropped."""
    print(f"doctor: stdout: {error.strerror}", file=sys.stderr)
    _unwritten.append(str(error.strerror))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def note_full_output(error: Exception) -> bool:
    """Whether the error is that of a full stdout, on which the parser of the command line prints help by itself."""
    full = isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full:
        _note_unwritten(error)  # type: ignore[arg-type]
    return full


def exit_code_of_output(code: int) -> int:
    """The exit code of a command that would end with ``code``: none whose output was lost ends with 0."""
    return NOT_WRITTEN_EXIT_CODE if _unwritten and not code else code


def forgive_unwritten() -> None:
    """The exit code is the whole output: what stdout lost changes none from now on."""
    _unwritten.clear()


def report_own_bug(error: Exception) -> int:
    """Reports it in one line, saves the traceback in a file, and returns the exit code."""
    import tempfile
    import traceback

    from doctor.engine.record import redact

    text = redact("".join(traceback.format_exception(error)))
    if "--debug" in sys.argv:
        print(text, file=sys.stderr)
    where = "and no file could be written"
    try:
        handle, where = tempfile.mkstemp(prefix="doctor-bug-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        pass
    name = type(error).__name__
    print(f"doctor: a bug of doctor itself, not of your cluster ({name}): please report {where}", file=sys.stderr)
    return BUG_EXIT_CODE
