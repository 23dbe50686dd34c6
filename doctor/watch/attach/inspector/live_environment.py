"""The environment that a process has now: what a program has set since its start is not in /proc/PID/environ."""

import os
import re
import struct

MOST_VARIABLES = 4096
VALUE_BYTES = 512
ELF = b"\x7fELF\x02\x01"  # 64 bits, little-endian
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
DYNAMIC_SYMBOLS = 11
MOST_SYMBOLS = 1 << 19
MAX_TEXTS = 1 << 26
ENVIRON_PLACES = {}  # by device and inode of a C library: where its `environ` lies


def live_environ(pid, maps):
    """The variables by name, as the C library has them now; None where its memory may not be read."""
    match = re.search(r"^([0-9a-f]+)-\S+ \S+ 00000000 \S+ \d+ +(\S*/libc(?:-2\.\d+)?\.so(?:\.6)?)$", maps, re.M)
    if not match:
        return None
    place = environ_place("/proc/%d/root%s" % (pid, match.group(2)))
    if place is None:
        return None
    try:
        with open("/proc/%d/mem" % pid, "rb", 0) as memory:
            memory.seek(int(match.group(1), 16) + place)
            memory.seek(struct.unpack("<Q", memory.read(8))[0])
            table = memory.read(8 * MOST_VARIABLES)
            pointers = [row[0] for row in struct.iter_unpack("<Q", table[: len(table) // 8 * 8])]
            if 0 not in pointers:
                return None
            return dict(variables_at(memory, pointers[: pointers.index(0)]))
    except (OSError, ValueError, OverflowError, struct.error):
        return None


def variables_at(memory, pointers):
    """(name, value) of each variable; one whose text cannot be read is left out."""
    for pointer in pointers:
        try:
            memory.seek(pointer)
            text = memory.read(VALUE_BYTES).partition(b"\0")[0]
        except (OSError, OverflowError):
            continue
        name, equals, value = text.partition(b"=")
        if name and equals:
            yield name.decode("ascii", "replace"), value.decode("utf-8", "replace")


def environ_place(path):
    """How far behind its start a C library has the pointer `environ`; None where its symbols cannot be read."""
    try:
        status = os.stat(path)
        key = (status.st_dev, status.st_ino)
        if key not in ENVIRON_PLACES:
            with open(path, "rb") as file:
                ENVIRON_PLACES[key] = symbol_place(file, (b"environ", b"__environ"))
        return ENVIRON_PLACES[key]
    except (OSError, ValueError, OverflowError, struct.error):
        return None


class DynamicSymbols:
    """The dynamic table of an ELF file: rows of (where in the texts its name stands, value, size)."""

    def __init__(self, file):
        head = file.read(64)
        self.rows, self.texts = [], b""
        if not head.startswith(ELF):
            return
        start, size, count = struct.unpack_from("<Q", head, 40)[0], 64, struct.unpack_from("<H", head, 60)[0]
        file.seek(start)
        sections = list(SECTION.iter_unpack(file.read(size * count)))
        table = next((section for section in sections if section[1] == DYNAMIC_SYMBOLS), None)
        if table is None or table[6] >= len(sections):
            return
        strings = sections[table[6]]
        file.seek(strings[4])
        self.texts = file.read(min(strings[5], MAX_TEXTS))
        file.seek(table[4])
        data = file.read(min(table[5], SYMBOL.size * MOST_SYMBOLS))
        rows = SYMBOL.iter_unpack(data[: len(data) // SYMBOL.size * SYMBOL.size])
        self.rows = [(name, value, size) for name, _, _, _, value, size in rows if value]


def symbol_place(file, names):
    """The value of the first of these symbols in the dynamic table of an ELF file; None where it has none."""
    symbols = DynamicSymbols(file)
    for name_at, value, _ in symbols.rows:
        if any(symbols.texts.startswith(name + b"\0", name_at) for name in names):
            return value
    return None
