"""The system call that a thread is in, and the memory that its arguments point to."""

import platform
import re

from doctor.remote.runtime.reading import read_text

X86 = {
    0: "read", 17: "read", 19: "read", 1: "write", 20: "write", 2: "open", 257: "open", 45: "recv", 47: "recv",
    44: "send", 46: "send",
    7: "poll", 271: "poll", 23: "poll", 270: "poll", 232: "poll", 281: "poll", 202: "futex", 35: "sleep",
    230: "sleep", 61: "wait", 247: "wait", 42: "connect", 43: "accept", 288: "accept", 73: "lock", 74: "sync",
    75: "sync", 72: "lock", 34: "pause", 128: "pause", 4: "stat", 5: "stat", 6: "stat", 262: "stat", 332: "stat",
}  # fmt: skip
ARM = {
    63: "read", 67: "read", 65: "read", 64: "write", 66: "write", 56: "open", 207: "recv", 212: "recv", 206: "send",
    211: "send", 73: "poll",
    72: "poll", 22: "poll", 98: "futex", 101: "sleep", 115: "sleep", 260: "wait", 95: "wait", 203: "connect",
    202: "accept", 242: "accept", 32: "lock", 82: "sync", 83: "sync", 25: "lock", 137: "pause", 79: "stat",
    80: "stat", 291: "stat",
}  # fmt: skip
PAGE = "page fault"
MAX_MAPS = 8 << 20


def thread_call(pid, thread):
    """(kind, number, arguments) of the call that a thread is in; the kind is empty where it may not be read."""
    fields = read_text("/proc/%d/task/%d/syscall" % (pid, thread), 256).split()
    if not fields or not re.match("[0-9]{1,4}$", fields[0]):
        outside = {"running": "running", "-1": PAGE}  # held up in the kernel, and in no call
        return "" if not fields else outside.get(fields[0], "?"), -1, ()
    table = ARM if platform.machine() == "aarch64" else X86 if platform.machine() == "x86_64" else {}
    arguments = tuple(int(word, 16) for word in fields[1:7])
    return table.get(int(fields[0]), "call " + fields[0]), int(fields[0]), arguments


def memory_maps(pid):
    """/proc/PID/maps as text, cut; empty where it may not be read."""
    return read_text("/proc/%d/maps" % pid, MAX_MAPS)


def memory_at(pid, address, size):
    """Bytes of a process's memory, fewer at the end of a mapping; empty where it may not be read."""
    try:
        with open("/proc/%d/mem" % pid, "rb", 0) as memory:
            memory.seek(address)
            return memory.read(size)
    except (OSError, ValueError, OverflowError):
        return b""
