"""In which libraries threads spend their CPU time: the kernel's samples of the instruction pointer.

Source: perf_event_open(2), software event `cpu-clock`. It needs no right beyond those over the process where
kernel.perf_event_paranoid is 2 or less, stops nothing, and answers nothing where it is not permitted.
"""

import ctypes
import mmap
import os
import platform
import re
import struct

NUMBERS = {"x86_64": 298, "aarch64": 241}  # of the system call
ATTRIBUTES = struct.Struct("<IIQQQQQ72x")
SOFTWARE, CPU_CLOCK, SAMPLE_IP = 1, 0, 1
USER_ONLY = 1 << 10 | 1 << 6 | 1 << 5  # by frequency; not of the hypervisor, not of the kernel
CLOSE_ON_EXEC = 8
MOST_A_SECOND = 997
PAGES = 4
SAMPLE, HEAD = 9, 1024
SAMPLE_BYTES = 16
MOST_SAMPLED = 128


def start_samples(threads, seconds):
    """By thread: the buffer into which the kernel writes samples of it; without those it does not show.

    One buffer holds what a thread does that runs for these seconds.
    """
    buffers, number = {}, NUMBERS.get(platform.machine())
    call = ctypes.CDLL(None, use_errno=True).syscall
    rate = min(MOST_A_SECOND, int(PAGES * mmap.PAGESIZE / (SAMPLE_BYTES * seconds)))
    attributes = ATTRIBUTES.pack(SOFTWARE, ATTRIBUTES.size, CPU_CLOCK, rate, SAMPLE_IP, 0, USER_ONLY)
    for thread in threads[:MOST_SAMPLED] if number else ():
        fd = call(number, ctypes.create_string_buffer(attributes), thread, -1, -1, CLOSE_ON_EXEC)
        if fd < 0:
            continue
        try:
            buffers[thread] = mmap.mmap(fd, (1 + PAGES) * mmap.PAGESIZE)
        except (OSError, ValueError):
            pass
        os.close(fd)  # the mapping keeps the event
    return buffers


def sampled_files(buffer, maps):
    """[file's name, samples] of a process, the most frequent first."""
    ranges = [
        (int(start, 16), int(end, 16), os.path.basename(path))
        for start, end, path in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) ..x. \S+ \S+ \S+ *(.*)$", maps, re.M)
    ]
    size, room, place, counts = struct.unpack_from("<Q", buffer, HEAD)[0], PAGES * mmap.PAGESIZE, 0, {}
    while place + 16 <= min(size, room):
        kind, _, length = struct.unpack_from("<IHH", buffer, mmap.PAGESIZE + place)
        if length < 8:
            break
        if kind == SAMPLE and length == SAMPLE_BYTES:
            at = struct.unpack_from("<Q", buffer, mmap.PAGESIZE + place + 8)[0]
            name = next((name for start, end, name in ranges if start <= at < end), "")
            counts[name] = counts.get(name, 0) + 1
        place += length
    return sorted(([name[:100], count] for name, count in counts.items()), key=lambda row: -row[1])[:16]
