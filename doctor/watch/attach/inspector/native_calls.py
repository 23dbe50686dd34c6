"""The call into a library of communication that a waiting thread is in: by the return addresses on its stack.

Neither frame pointers nor debugging data are read: a word of the stack that points behind a call instruction is a
return address, or one that an earlier call has left there. The innermost calls are found rightly so; what stands beyond
the interpreter, which has called them, is not read.
"""

import json
import os
import platform
import re
import select
import signal
import struct
import time
from bisect import bisect_right

from doctor.remote.runtime.reading import link_at, read_text
from doctor.smoke.programs.agent.system_calls import memory_maps
from doctor.watch.attach.inspector.connected import LIBRARY
from doctor.watch.attach.inspector.live_environment import DynamicSymbols

STACK_BYTES = 1 << 14
ADDRESS = (1 << 48) - 1  # without the signature that arm64 adds to return addresses
INTERPRETER = re.compile(r"/(?:libpython[\d.]+\.so|python[\d.]*$|pypy)")
BELOW_INTERPRETER = re.compile(r"/(?:lib(?:c|pthread|ffi)[.-][^/]*|lib-dynload/[^/]*\.so)$")  # of its own waits
SYMBOLS = {}  # by device and inode of a library
MAX_ANSWERED = 1 << 20
TRIES_TO_READ = 4


def follows_call(code):
    """Whether these 8 bytes end with a call: on x86-64 a near one, on arm64 BL or BLR."""
    if platform.machine() == "aarch64":
        word = struct.unpack("<4xI", code)[0]
        return word >> 26 == 0x25 or word & 0xFFFFFC1F == 0xD63F0000
    return code[3] == 0xE8 or any(code[-size] == 0xFF and code[1 - size] >> 3 & 7 == 2 for size in (2, 3, 4, 6, 7))


def code_ranges(maps):
    """(starts, [(end, path, where its file begins)]) of the code that a process has mapped."""
    begins, ranges = {}, []
    for start, end, rights, offset, path in re.findall(
        r"^([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ \S+ *(/[^\n]*)$", maps, re.M
    ):
        begins.setdefault(path, int(start, 16) - int(offset, 16))
        if "x" in rights:
            ranges.append((int(start, 16), int(end, 16), path))
    ranges.sort()
    return [row[0] for row in ranges], [(end, path, begins[path]) for _, end, path in ranges]


def return_addresses(memory, stack, starts, ranges):
    """(path, address in its file) of what looks like a return address, the innermost first."""
    memory.seek(stack)
    data = memory.read(STACK_BYTES)
    for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
        address = word & ADDRESS
        place = bisect_right(starts, address) - 1
        if place < 0 or address >= ranges[place][0] or address - 8 < starts[place]:
            continue
        memory.seek(address - 8)
        if follows_call(memory.read(8)):
            yield ranges[place][1], address - ranges[place][2]


def native_call(pid, maps, sampled):
    """[library, function] of the outermost call into a library of communication; empty where none is found. Two empty
    texts: the interpreter itself waits.

    ``pid``: of a process, or of one of its threads. The function is empty where the library does not name it.
    ``sampled``: where the thread was found last on its CPU, as in `last_place`: of one that never leaves it.
    """
    fields, tries = [], 0
    while len(fields) < 3 and tries < TRIES_TO_READ:  # a wait with a time limit wakes up now and then
        time.sleep(0.01 * tries)
        fields, tries = read_text("/proc/%d/syscall" % pid, 256).split(), tries + 1
    starts, ranges = code_ranges(maps)
    program, calls = link_at("/proc/%d/exe" % pid), []
    code, stack = (int(fields[-1], 16), int(fields[-2], 16)) if len(fields) > 2 else sampled
    place = bisect_right(starts, code) - 1
    if not stack or platform.machine() not in ("x86_64", "aarch64") or place < 0 or ranges[place][1] == program:
        return []
    with open("/proc/%d/mem" % pid, "rb", 0) as memory:
        is_own = len(fields) > 2 and bool(BELOW_INTERPRETER.search(ranges[place][1]))
        for path, place in return_addresses(memory, stack, starts, ranges):
            if path == program or INTERPRETER.search(path):
                if is_own and INTERPRETER.search(path):
                    return ["", ""]
                break
            is_own = is_own and bool(BELOW_INTERPRETER.search(path))
            if LIBRARY.search(path):
                calls.append((path, place))
    library = calls[-1][0] if calls else ""
    names = [function_at("/proc/%d/root%s" % (pid, path), place) for path, place in calls if path == library]
    return [os.path.basename(library)[:100], next(filter(None, reversed(names)), "")[:100]] if calls else []


def function_at(path, place):
    """The exported function of a library that an address of its file lies in; empty where it is in none."""
    status = os.stat(path)
    key = (status.st_dev, status.st_ino)
    if key not in SYMBOLS:
        with open(path, "rb") as file:
            symbols = DynamicSymbols(file)
            SYMBOLS[key] = (sorted((value, size, name) for name, value, size in symbols.rows if size), symbols.texts)
    rows, texts = SYMBOLS[key]
    at = bisect_right(rows, (place, ADDRESS, 0)) - 1
    if at < 0 or place > rows[at][0] + rows[at][1]:
        return ""
    return readable_name(texts[rows[at][2] :][:400].partition(b"\0")[0].decode("ascii", "replace"))


def readable_name(symbol):
    """Of a C++ function its name alone: ``_ZN4c10d4Work4waitENSt...`` is ``c10d::Work::wait``."""
    start = re.match(r"_ZN?K?(?=\d)", symbol)
    if not start:
        return symbol
    parts, place = [], start.end()
    length = re.match(r"\d{1,3}", symbol[place:])
    while length:
        place += length.end()
        parts.append(symbol[place : place + int(length.group())])
        place += int(length.group())
        length = re.match(r"\d{1,3}", symbol[place:])
    return "::".join(parts)


def answer_calls(places, to):
    """In a process of its own, which holds none of the standard streams open."""
    null, calls = os.open(os.devnull, os.O_RDWR), {}
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for pid, sampled in places.items():
        try:
            calls[pid] = native_call(pid, memory_maps(pid), sampled)
        except (OSError, ValueError, OverflowError, IndexError, struct.error):
            continue
    with os.fdopen(to, "wb") as file:
        file.write(json.dumps(calls).encode("ascii"))


def native_calls(places, seconds):
    """By pid: `native_call`. ``places``: by pid where it was sampled.

    A process of its own reads the libraries: their file system may not answer.
    """
    near, far = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer_calls(places, far)
        finally:
            os._exit(0)
    os.close(far)
    data, limit = b"", time.monotonic() + seconds
    while len(data) < MAX_ANSWERED and select.select([near], [], [], max(0.0, limit - time.monotonic()))[0]:
        part = os.read(near, 1 << 16)
        if not part:
            break
        data += part
    os.close(near)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, os.WNOHANG)
    try:
        return dict((int(pid), call) for pid, call in json.loads(data.decode("ascii")).items())
    except ValueError:
        return {}
