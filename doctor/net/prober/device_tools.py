"""Runs the programs that try the accelerators' own network: those of `PROGRAMS` alone."""

import os
import shutil
import signal
import subprocess
import time

from doctor.remote.runtime.command_environment import tool_environment

PROGRAMS = ("hccn_tool", "ib_write_bw", "ibv_rc_pingpong", "rping")
MAX_PROGRAM_CALLS = 64  # of one order
MAX_OUTPUT = 6000  # bytes of what one program printed
RETRY_PAUSE = 0.2


def installed_programs():
    """Those of `PROGRAMS` that this host has."""
    path = tool_environment()["PATH"]
    return [name for name in PROGRAMS if shutil.which(name, path=path)]


def start_program(argv, seconds):
    """A program that ends itself, and all that it started, after so many seconds, whoever is left. Raises: OSError."""
    if not argv or argv[0] not in PROGRAMS:
        raise OSError("not a program of this test")
    return subprocess.Popen(
        ["timeout", "-s", "KILL", "%d" % (seconds + 1)] + argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=tool_environment(),
        start_new_session=True,
    )


def end_program(process, seconds=0.0):
    """What it printed, after so many seconds at most; then its whole process group is killed."""
    try:
        printed = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass
        try:
            printed = process.communicate(timeout=2)[0]
        except subprocess.TimeoutExpired:
            return ""
    return printed[-MAX_OUTPUT:].decode("ascii", "replace")


def run_programs(calls, seconds, again):
    """[label, text, seconds it took] of each [label, argv], one after another, for so many seconds in all.

    What prints one of the texts `again` is run again: a lock is held, or the other end does not listen yet. What there
    was no time for is left out.
    """
    end, results = time.monotonic() + seconds, []
    for label, argv in calls[:MAX_PROGRAM_CALLS]:
        began, text = time.monotonic(), None
        while time.monotonic() < end:
            try:
                text = end_program(start_program(argv, seconds), max(0.1, end - time.monotonic()))
            except OSError as error:
                text = error.strerror or str(error)
                break
            if not any(part in text for part in again):
                break
            time.sleep(RETRY_PAUSE)
        if text is not None:
            results.append([label, text, round(time.monotonic() - began, 3)])
    return results
