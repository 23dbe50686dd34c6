"""stdout and the report of our own bugs: the two places where a command writes text by itself."""

from __future__ import annotations

import os
import sys

BUG_EXIT_CODE = 70


def write(text: str) -> None:
    """stdout, in whatever encoding it has. A reader that has gone changes no exit code."""
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
        print(f"doctor: stdout: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except (AttributeError, ValueError):  # a stdout without bytes (tests), or none at all
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.write(data)


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
