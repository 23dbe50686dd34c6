"""The kernel's messages of a host, each as a line with the host's local time."""

import errno
import os
import re
import subprocess
import time

from doctor.remote.runtime.streams import kernel_records

MAX_KERNEL = 1 << 25  # bytes that are read
READING_SECONDS, JOURNAL_SECONDS = 5, 10
RECORD = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")  # of /dev/kmsg: priority, number, microseconds since the start, flags
NO_KMSG = (errno.ENOENT, errno.ENXIO, errno.ENODEV)


def kernel_messages(oldest):
    """(the messages since that time as bytes, or None; why they cannot be read, or an empty text)."""
    try:
        data, problem = read_kmsg(oldest), ""
    except OSError as error:
        data = None
        problem = "it is not visible here, as in a container" if error.errno in NO_KMSG else error.strerror
    started = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    if data is None or oldest < started:
        # The host was started since: only the journal may hold what the kernel said before.
        data = read_journal(oldest) or data
    return data, "" if data is not None else problem


def read_kmsg(oldest):
    """Raises: OSError where only root may read them, or a container has none."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    start = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    lines = []
    try:
        for record in kernel_records(log, MAX_KERNEL, READING_SECONDS):
            match = RECORD.match(record.decode("utf-8", "replace").partition("\n")[0])
            if match and start + int(match.group(1)) / 1e6 >= oldest:
                lines.append(stamped(start + int(match.group(1)) / 1e6, match.group(2)))
    finally:
        os.close(log)
    return "".join(lines).encode("utf-8")


def stamped(moment, text):
    """The line of a message, with its time as the host's clock showed it."""
    return "%s kernel: %s\n" % (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment)), text)


def read_journal(oldest):
    """What the journal holds of the kernel; nothing where there is none, or the login user may not read it."""
    command = ["journalctl", "--quiet", "--no-pager", "--output=short-iso", "_TRANSPORT=kernel"]
    command.append("--since=@%d" % oldest if oldest else "--lines=100000")
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return b""
    try:
        data, _ = child.communicate(timeout=JOURNAL_SECONDS)
        return data[-MAX_KERNEL:]
    except subprocess.TimeoutExpired:
        return b""
    finally:
        child.kill()
        child.wait()
