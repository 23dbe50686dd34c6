"""What a process looks for again and again: the loop that it sleeps in, and the values that its condition names.

In which libraries threads spend their CPU time, and whether they get on: the kernel's samples of the instruction
pointer, and of registers. A loop that computes counts, or goes on in memory; one that only looks at what another
process or thread is to write finds the same again and again: none of its registers takes new values, or, in a loop of
Python, none at any one instruction.
"""

import ctypes
import fcntl
import mmap
import os
import platform
import re
import stat
import struct

from doctor.remote.runtime.reading import link_at, open_at_once
from doctor.smoke.programs.agent.file_wait import is_elsewhere, mount_of
from doctor.watch.attach.inspector.connected import user_of

MAX_SOURCE = 1 << 20
MOST_LINES = 60  # of a loop, before the line that sleeps
MOST_VALUES = 4
MAX_CONDITION = 160
SLEEPS = re.compile(r"\b(?:sleep|wait|select|poll|join)\w*\(")
WAITS = re.compile(r"/(?:threading|selectors|subprocess)\.py$")
LOOP = re.compile(r"(while|for)\b(.*)")
CHOICE = re.compile(r"(?:if|elif) ")
DEFINES = re.compile(r"(?:async )?def |class ")
ENDS = re.compile(r"\b(?:break|return)\b")
ENDLESS = re.compile(r"(?:\(?(?:True|1)\)? *:)")
NAMES_FILE = re.compile(r"\b(?:l?exists|isfile|isdir|is_file|is_dir|listdir|scandir|i?glob|l?stat|getsize|open)\(")
NAMES_STORE = re.compile(r"\bstore\b|\.check\(")
SHOWABLE = re.compile(r"""['"](?!.*(?:\\|@|\?))([\w./:\[\]=, *+-]{1,200})['"]$|\d{1,7}$""")
SECRET = re.compile(r"(?i)pass|secret|token|cred|auth|api_?key|private")
OWN_HOST = re.compile(r"(?:[a-z]+://)?(?:localhost|127(?:\.\d+){3}|\[?::1\]?)(?::|/|$)")


def indent_of(line):
    """The column at which a line begins."""
    line = line.expandtabs()
    return len(line) - len(line.lstrip())


def condition_of(lines, number):
    """The condition of the loop that line ``number``, from 1, sleeps in; empty where it sleeps in none.

    That of ``while``, or, where that is always true, of the ``if`` around the line, of one that ends the loop, or what
    is tried.

    >>> condition_of(["while True:", "    if done(path): break", "    time.sleep(1)"], 3)
    'if done(path)'
    """
    depth, condition = indent_of(lines[number - 1]), ""
    for place in range(number - 1, max(-1, number - 1 - MOST_LINES), -1):
        text, column = lines[place].strip(), indent_of(lines[place])
        if not text or text.startswith("#") or column > depth:
            continue
        loop, is_around = LOOP.match(text), column < depth
        depth = column
        if loop and (column < indent_of(lines[number - 1]) or place == number - 1):
            is_condition = loop.group(1) == "while" and not ENDLESS.match(loop.group(2).strip())
            return (text.partition(":")[0] if is_condition else condition)[:MAX_CONDITION]
        if DEFINES.match(text):
            return ""
        if condition or place == number - 1:
            continue
        if CHOICE.match(text) and (is_around or ENDS.search("".join(lines[place : place + 2]))):
            condition = text.partition(":")[0]
        elif text == "try:":
            condition = lines[place + 1].strip()
    return ""


def source_lines(pid, path):
    """The lines of a program's file; none where its user may not read it, or another host serves it."""
    mount = mount_of(pid, path) if path.startswith("/") else None
    if mount is None or is_elsewhere(*mount):
        return []  # who touches a mount that hangs hangs with it
    try:
        with open("/proc/%d/root%s" % (pid, path), "rb", 0, opener=open_at_once) as file:
            status = os.fstat(file.fileno())
            may_read = status.st_uid == user_of(pid) or status.st_mode & stat.S_IROTH
            data = file.read(MAX_SOURCE) if may_read and stat.S_ISREG(status.st_mode) else b""
    except OSError:
        return []
    return data.decode("utf-8", "replace").split("\n")


def polled(pid, frames, is_local):
    """[condition, values, whether only this host brings what is looked for] of a process that sleeps in a loop; None.

    ``frames``: of py-spy, with local variables, the innermost first. ``is_local``: all ranks run on this host.
    """
    frames = [frame for frame in frames if not WAITS.search(str(frame["filename"]))]
    lines, number = (source_lines(pid, str(frames[0]["filename"])), frames[0]["line"]) if frames else ([], 0)
    sleeps = 0 < number <= len(lines) and SLEEPS.search(lines[number - 1])
    condition = condition_of(lines, number) if sleeps else ""
    return [condition, *values_of(pid, condition, frames[0]["locals"], is_local)] if condition else None


def values_of(pid, condition, variables, is_local):
    """The values of the variables that a condition names, as ``path = '/x'``, and whether only this host changes them.

    Plain words and numbers alone, and none whose name sounds like that of a secret.
    """
    names = set(re.findall(r"\w+", condition))
    values = [(str(entry["name"]), str(entry["repr"])) for entry in variables if entry["name"] in names]
    values = [(name, text) for name, text in values if SHOWABLE.match(text) and not SECRET.search(name)][:MOST_VALUES]
    texts = [text.strip("'\"") for _, text in values] + re.findall(r"""["']([\w./:-]{1,200})["']""", condition)
    is_here = bool(texts) and is_local and bool(NAMES_STORE.search(condition))
    if NAMES_FILE.search(condition):
        folder = link_at("/proc/%d/cwd" % pid)
        mounts = [mount_of(pid, os.path.join(folder, text)) for text in texts if not text.isdigit()]
        is_here = bool(mounts) and not any(mount is None or is_elsewhere(*mount) for mount in mounts)
    is_here = is_here or any(OWN_HOST.match(text) for text in texts)
    return [["%s = %s" % row for row in values], is_here]


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
LEAST_STATES, RECURRING = 1200, 0.55  # samples with registers, and the part of the later ones that is not new
# (measured: 0.67 to 0.92 of a loop of Python that looks at a dictionary, at most 0.37 of loops that compute)


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
