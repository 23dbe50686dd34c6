"""Errors of a rank that do not say what the operating system refused."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tempfile

import pytest

from doctor.smoke.programs.worker.main import explained


def refused() -> OSError:
    try:
        os.sched_setaffinity(10**6, [0])
    except OSError as error:
        return OSError(errno.EPERM, "Operation not permitted").with_traceback(error.__traceback__)
    raise AssertionError


def test_a_refused_call_is_named() -> None:
    assert explained(refused()) == (
        "[Errno 1] Operation not permitted (sched_setaffinity was refused: a seccomp profile or a missing capability?)"
    )


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EPERM, "Operation not permitted", "/etc/shadow"),  # the file is named
        PermissionError(errno.EPERM, "Operation not permitted"),  # it was raised nowhere
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("all_reduce failed"),
        RuntimeError(),
    ],
)
def test_errors_that_need_no_explanation(error: Exception) -> None:
    assert explained(error) == str(error)


def test_the_limit_of_open_files_is_named_where_an_error_hides_it() -> None:
    """tempfile says that no folder can be written to."""
    program = """
import os, resource, tempfile
from doctor.smoke.programs.worker.main import explained

resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
files = []
try:
    while True:
        files.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
try:
    tempfile.mkstemp()
except OSError as error:
    print(explained(error))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("[Errno 2] No usable temporary directory found in [")
    assert done.stdout.endswith("(Errno 24: Too many open files)\n"), (done.stdout, done.stderr)


def test_files_below_the_limit_explain_nothing() -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > len(os.listdir("/proc/self/fd")) + 2
    assert explained(FileNotFoundError(errno.ENOENT, "No usable temporary directory")).endswith("directory")
    assert tempfile.gettempdir()
