"""In which libraries threads spend their CPU time, and whether they get on: the kernel's samples of the instruction
pointer, and of registers. A loop that computes counts, or goes on in memory; one that only looks at what another
process or thread is to write finds the same again and again: none of its registers takes new values, or, in a loop of
Python, none at any one instruction.

Source: perf_event_open(2), software event `cpu-clock`, PERF_SAMPLE_REGS_USER. It needs no right beyond those over the
process where kernel.perf_event_paranoid is 2 or less, stops nothing, and answers nothing where it is not permitted.
"""

import ctypes
import fcntl
import mmap
import os
import platform
import re
import struct

NUMBERS = {"x86_64": 298, "aarch64": 241}  # of the system call
REGISTERS = {"x86_64": 0xFF00FF, "aarch64": 0xFFFFFFFF}.get(platform.machine(), 0)  # general ones, as bits
STACK_POINTER = {"x86_64": 9, "aarch64": 33}.get(platform.machine(), 0)  # its place among the words of such a sample
ATTRIBUTES = struct.Struct("<IIQQQQQ32xQ32x")
SOFTWARE, CPU_CLOCK, SAMPLE_IP, SAMPLE_REGISTERS = 1, 0, 1, 1 << 12
USER_ONLY = 1 << 10 | 1 << 6 | 1 << 5  # by frequency; not of the hypervisor, not of the kernel
CLOSE_ON_EXEC = 8
MOST_A_SECOND, BURST = 997, 9973
REFRESH = 0x2402  # PERF_EVENT_IOC_REFRESH: so many samples, then none
PAGES, PAGES_OF_BURST = 4, 64
SAMPLE, HEAD = 9, 1024
SAMPLE_BYTES = 16
MOST_SAMPLED = 128
LEAST_SAMPLES = 8
LEAST_STATES, RECURRING = 1200, 0.9  # samples with registers, and the part of the later ones that is not new


def start_samples(threads, seconds, registers=0):
    """By thread: the buffer into which the kernel writes samples of it; without those it does not show.

    One buffer holds what a thread does that runs for these seconds. ``seconds`` 0: as many samples as it holds, from
    the first ones on, of a thread that hardly gets a CPU.
    """
    buffers, number = {}, NUMBERS.get(platform.machine())
    call = ctypes.CDLL(None, use_errno=True).syscall
    pages = PAGES_OF_BURST if registers and not seconds else PAGES
    held = pages * mmap.PAGESIZE // (SAMPLE_BYTES + 8 * bin(registers).count("1"))
    rate = min(MOST_A_SECOND, int(held / seconds)) if seconds else BURST
    kind = SAMPLE_IP + bool(registers) * SAMPLE_REGISTERS
    attributes = ATTRIBUTES.pack(SOFTWARE, ATTRIBUTES.size, CPU_CLOCK, rate, kind, 0, USER_ONLY, registers)
    for thread in threads[:MOST_SAMPLED] if number else ():
        fd = call(number, ctypes.create_string_buffer(attributes), thread, -1, -1, CLOSE_ON_EXEC)
        if fd < 0:
            continue
        try:
            buffers[thread] = mmap.mmap(fd, (1 + pages) * mmap.PAGESIZE)
            if not seconds:
                fcntl.ioctl(fd, REFRESH, held - 1)
        except (OSError, ValueError):
            pass
        os.close(fd)  # the mapping keeps the event
    return buffers


def samples_of(buffer):
    """The words of each sample: the instruction pointer; then, if asked for, the kind of registers, and these."""
    size, place = struct.unpack_from("<Q", buffer, HEAD)[0], 0
    while place + 16 <= min(size, len(buffer) - mmap.PAGESIZE):
        kind, _, length = struct.unpack_from("<IHH", buffer, mmap.PAGESIZE + place)
        if length < 8:
            break
        if kind == SAMPLE:
            yield struct.unpack_from("<%dQ" % (length // 8 - 1), buffer, mmap.PAGESIZE + place + 8)
        place += length


def last_place(buffers):
    """The instruction and the stack pointer of the last sample with registers; zeros: there is none."""
    rows = [row for row in sum(map(list, map(samples_of, buffers)), []) if len(row) > STACK_POINTER]
    return (rows[-1][0], rows[-1][STACK_POINTER]) if rows else (0, 0)


def most_values(threads):
    """The most values that one register had among the samples of a thread, given by its buffers; at one instruction, if
    what the thread does recurs; 0: too few of the first thread's.
    """
    most = 0
    for buffers in threads:
        rows = sum(map(list, map(samples_of, buffers)), [])
        if not most and len(rows) < LEAST_SAMPLES:
            break
        earlier, later, places = set(rows[: len(rows) // 2]), rows[len(rows) // 2 :], {}
        recurs = len(rows) >= LEAST_STATES and sum(row in earlier for row in later) > RECURRING * len(later)
        for row in rows:
            places.setdefault(row[0] if recurs else 0, []).append(row)
        numbers = range(2, min(map(len, rows), default=0))
        most = max([most] + [len({row[n] for row in each}) for each in places.values() for n in numbers])
    return most


def sampled_files(buffers, maps):
    """[file's name, samples] of a thread, the most frequent first, by the first of its buffers that holds enough."""
    samples = next((rows for rows in map(list, map(samples_of, buffers)) if len(rows) >= LEAST_SAMPLES), [])
    ranges = [
        (int(start, 16), int(end, 16), os.path.basename(path))
        for start, end, path in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) ..x. \S+ \S+ \S+ *(.*)$", maps, re.M)
    ]
    counts = {}
    for (at,) in samples:
        name = next((name for start, end, name in ranges if start <= at < end), "")
        counts[name] = counts.get(name, 0) + 1
    return sorted(([name[:100], count] for name, count in counts.items()), key=lambda row: -row[1])[:16]
