"""The report of our own bugs."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback

from doctor.engine.language import before_launch_line
from doctor.engine.secrets import hide_secrets
from doctor.engine.streams import print_stderr
from doctor.engine.texts import filled

BUG_EXIT_CODE = 70


def report_own_bug(error: Exception) -> int:
    """Reports it in one line, saves the traceback in a file, and returns the exit code."""
    text = hide_secrets("".join(traceback.format_exception(error)))
    if "--debug" in before_launch_line(sys.argv)[0]:
        print_stderr(text)
    where = "and no file could be written"
    try:
        handle, where = tempfile.mkstemp(prefix="doctor-bug-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        pass
    name = type(error).__name__
    print_stderr(filled("doctor: a bug of doctor itself, not of your cluster ({0}): please report {1}", name, where))
    return BUG_EXIT_CODE
