"""Runs a command that prints hosts, such as a scheduler's; tests and replays pass their own function."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence

from doctor.engine.bounded_run import TooMuchOutput, run_bounded
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled

RunCommand = Callable[[Sequence[str]], str]
"""A command's output. Raises: OSError, where it is not installed, fails, or does not end."""

TIME_LIMIT = 30.0
"""Seconds."""
MAX_OUTPUT = 4 << 20
"""Bytes."""
_ENVIRON = {"ANSIBLE_INVENTORY_ENABLED": "ini,yaml", "LC_ALL": "C.UTF-8"}
"""Ansible reads an inventory, and does not run it, even if it is a program."""


def run_command(argv: Sequence[str], time_limit: float = TIME_LIMIT) -> str:
    """What the command prints, within ``time_limit`` in seconds and `MAX_OUTPUT`. Raises: OSError."""
    program = shutil.which(argv[0])
    if program is None:
        raise OSError(filled("{0} is not installed", argv[0]))
    command = " ".join(argv)
    try:
        done = run_bounded([program, *argv[1:]], time_limit, MAX_OUTPUT, {**os.environ, **_ENVIRON})
    except subprocess.TimeoutExpired:
        raise OSError(filled("{0} does not end", command)) from None
    except TooMuchOutput:
        raise OSError(filled("{0} prints more than {1} MiB", command, MAX_OUTPUT >> 20)) from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else filled("exit code {0}", done.returncode)
        raise OSError(filled("{0} fails: {1}", command, printable(why, 120)))
    return done.stdout.decode("utf-8", "replace")
