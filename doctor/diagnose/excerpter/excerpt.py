"""The excerpt of one log: the lines that a diagnosis needs, with their numbers."""

import base64
import os
import re
import stat
import zlib
from collections import deque

from doctor.diagnose.excerpter.file_blocks import BLOCK, COMPRESSED, data_blocks, opened, utf8_blocks
from doctor.diagnose.excerpter.line_choice import (
    MAX_LINE,
    is_binary,
    is_recording,
    launcher_labels,
    lines_of,
    shapes_of,
    shown_part,
    whole_lines,
)
from doctor.diagnose.excerpter.tracebacks import BELOW, HEADLESS_LINES, HEADS, RAY_ORIGIN, OpenTracebacks, goes_on_below
from doctor.remote.runtime.host_texts import filled

MAX_DUMP = 1 << 25  # bytes of a dump that is sent
EDGE_LINES = 20  # first and last lines that are sent of each file
MAX_ALIKE = 2000  # lines of one shape in one file
LOOK_BACK = 200  # lines before a line without a time in which one is looked for
# A date and a clock, as the heads have them that doctor/diagnose/read/stamps.py reads: a clock alone dates no line.
DATED = re.compile(
    rb"\d{4}-\d\d-\d\d[T _-]\d\d:\d\d:\d\d|[IWEF]\d{3,4} \d\d:\d\d:\d\d|[A-Z] \d\d-\d\d \d\d:\d\d:\d\d [\w\[]"
    rb"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}\d{1,2} \d\d:\d\d:\d\d"
)
COLORS = re.compile(rb"\x1b\[[0-9;]{0,20}[A-Za-z]")


class Excerpt:
    """Lines of one log; of more than `limit` bytes the first three quarters and the last quarter stay."""

    def __init__(self, limit):
        self.limit = limit
        self.head, self.tail = [], deque()
        self.head_bytes = self.tail_bytes = self.dropped = 0

    def add(self, number, line):
        """Lines come in order; one that is there already is not added again."""
        kept = self.tail or self.head
        if kept and kept[-1][0] >= number:
            return
        line = line[: MAX_LINE + 1]
        if not self.tail and self.head_bytes + len(line) <= self.limit * 3 // 4:
            self.head.append((number, line))
            self.head_bytes += len(line)
            return
        self.tail.append((number, line))
        self.tail_bytes += len(line)
        while self.tail_bytes > self.limit // 4 and len(self.tail) > 1:
            self.tail_bytes -= len(self.tail.popleft()[1])
            self.dropped += 1

    def rows(self):
        """Of [number, line], the line's bytes as Latin-1."""
        return [[number, line.decode("latin-1")] for number, line in self.head + list(self.tail)]


class LogReader:
    """Reads logs by the literals of a request; `report` of one is what is sent of it."""

    def __init__(self, index, limit):
        self.index, self.limit = index, limit

    def start(self, path, size, modified, inode):
        self.excerpt, self.tracebacks = Excerpt(self.limit), OpenTracebacks()
        self.shapes, self.alike, self.places, self.below = {}, 0, 0, 0
        self.lines = self.bytes = self.crc = 0
        self.path, self.size, self.modified, self.inode = path, size, modified, inode
        self.notes, self.labels, self.complete = [], (), False
        self.dump, self.is_kernel, self.edge_lines = "", False, EDGE_LINES

    def read(self, path, name):
        """Reads it. Raises: OSError where it cannot be opened; what `SIGALRM` raises."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(0, "no regular file")
            self.start(name, status.st_size, status.st_mtime, status.st_ino)
            try:
                self.read_blocks(self.blocks(file, path, status.st_size))
                self.complete = True
                self.compare_size(path)
            except (EOFError, OSError, ImportError, MemoryError, ValueError, zlib.error) as error:
                self.notes.append(filled("could be read only in part: {0}", str(error) or type(error).__name__))

    def compare_size(self, path):
        """Notes that the log has grown, which is complete as it was, or lost bytes while it was read."""
        note, is_lost = size_change(self.size, os.stat(path).st_size)
        self.notes += [note] if note else []
        self.complete = not is_lost

    def blocks(self, file, path, size):
        """The bytes that were there when it was opened; of a compressed file those that it holds."""
        suffix = os.path.splitext(path)[1].lower()
        if suffix not in COMPRESSED:
            for block in data_blocks(file, size):
                yield block
            return
        source = opened(suffix, file)
        block = source.read(BLOCK)
        while block:
            yield block
            block = source.read(BLOCK)

    def read_blocks(self, blocks):
        blocks = utf8_blocks(blocks)
        first = next(blocks, b"")
        if is_recording(first):
            self.read_dump(first, blocks)
            return
        if is_binary(first):
            self.notes.append("is no text: it was not read")
            return
        data = b""
        for data in whole_lines(self.counted(first, blocks)):
            self.read_lines(data)
            if not self.lines:
                self.labels = launcher_labels(data)
            self.lines += data.count(b"\n")
        last = data.split(b"\n")[:-1][-self.edge_lines :] if self.edge_lines else []
        for offset, line in enumerate(last):
            self.excerpt.add(self.lines - len(last) + offset + 1, line)

    def read_dump(self, first, blocks):
        """Takes the bytes of a dump as they are: nothing here interprets a pickle."""
        pieces = []
        for block in self.counted(first, blocks):
            pieces.append(block)
            if self.bytes > MAX_DUMP:
                self.notes.append(filled("is a dump of more than {0} MiB: it was not read", MAX_DUMP >> 20))
                return
        self.dump = base64.b64encode(b"".join(pieces)).decode("ascii")

    def read_kernel(self, data):
        self.start("kernel log", len(data), 0, 0)
        self.is_kernel, self.edge_lines = True, 0
        if data:
            self.read_blocks(iter([data]))
        self.complete = True

    def counted(self, first, blocks):
        block = first
        while block:
            self.bytes += len(block)
            self.crc = zlib.crc32(block, self.crc)
            yield block
            block = next(blocks, b"")

    def read_lines(self, data):
        """Chooses among the lines of a block; each line ends with a newline."""
        if b"\x1b" in data:
            data = COLORS.sub(b"", data)
        if self.lines < self.edge_lines:
            for offset, line in enumerate(lines_of(data)[:EDGE_LINES]):
                self.excerpt.add(self.lines + offset + 1, line)
        if not self.lines and not self.is_kernel:
            for line in lines_of(data)[:HEADLESS_LINES]:
                self.tracebacks.open_headless(line[:MAX_LINE].decode("utf-8", "replace"))
        shapes = shapes_of(data)
        hot, numbered = self.index.hot_shapes(shapes), self.index.numbered(data)
        if not (hot or numbered or self.tracebacks or self.below):
            return
        lines = lines_of(data)
        for index, shape in enumerate(shapes):
            triggers = hot.get(shape, ())
            if index in numbered:
                triggers = triggers + tuple(numbered[index])
            if (triggers or self.tracebacks or self.below) and lines[index] and not self.index.is_quiet(lines[index]):
                line = shown_part(lines[index])[:MAX_LINE]
                if self.is_chosen(line, triggers):
                    self.keep(lines, index, line)

    def is_chosen(self, line, literals):
        """Whether the line is sent; `literals` are those that its shape may contain."""
        chosen = any(literal in line for literal in literals)
        if chosen:
            shape = line.translate(None, b"0123456789abcdef")
            self.shapes[shape] = self.shapes.get(shape, 0) + 1
            if self.shapes[shape] > MAX_ALIKE or len(self.shapes) > 1 << 16:
                self.alike += 1
                chosen = False
        chosen = chosen or self.below > 0
        self.below -= self.below > 0
        if self.tracebacks:
            text = line.decode("utf-8", "replace")
            chosen = chosen or self.is_place(text)
            ends, exception = self.tracebacks.read(text)
            self.below = BELOW if exception and goes_on_below(exception) else self.below
            chosen = ends or chosen or RAY_ORIGIN.search(text) is not None
        if any(head.encode() in line for head in HEADS):
            self.tracebacks.open(line.decode("utf-8", "replace"))
        return chosen

    def is_place(self, text):
        """Whether the line is one of the first that name a place of the program in a traceback, or its assertion."""
        if self.places >= MAX_ALIKE:
            return False
        asserts = "  assert " in text and self.tracebacks.is_source(text)
        is_kept = asserts or self.tracebacks.is_telling_frame(text)
        self.places += is_kept
        return is_kept

    def keep(self, lines, index, line):
        """The line, and before it the nearest line with a time where it shows none."""
        number = self.lines + index + 1
        if not DATED.search(line[:400]):
            before = lines[max(0, index - LOOK_BACK) : index]
            for offset, other in enumerate(reversed(before)):
                if DATED.search(other[:400]):
                    self.excerpt.add(number - offset - 1, other)
                    break
        self.excerpt.add(number, line)

    def report(self):
        if self.alike:
            text = "{0} lines like those that were sent were only counted"
            text = "1 line like those that were sent was only counted" if self.alike == 1 else text
            self.notes.append(filled(text, self.alike))
        if self.excerpt.dropped:
            text = "{0} lines in the middle were left out: the limit of bytes"
            text = "1 line in the middle was left out: the limit of bytes" if self.excerpt.dropped == 1 else text
            self.notes.append(filled(text, self.excerpt.dropped))
        return {
            "path": self.path,
            "size": self.size,
            "modified": self.modified,
            "inode": self.inode,
            "crc": self.crc,
            "lines": self.lines,
            "read": self.bytes,
            "complete": self.complete and not self.excerpt.dropped,
            "notes": self.notes,
            "labels": self.labels,
            "kept": self.excerpt.rows(),
            "dump": self.dump,
            "kernel": self.is_kernel,
        }


def size_change(before, now):
    """A note on a log whose size in bytes changed while it was read, and whether some of it may be lost.

    >>> size_change(100, 120)
    ('grew by 20 bytes while it was read: a program still writes to it', False)
    >>> size_change(100, 0)
    ('was cut or replaced while it was read: a part may be missing', True)
    """
    if now > before:
        return filled("grew by {0} bytes while it was read: a program still writes to it", now - before), False
    if now < before:
        return "was cut or replaced while it was read: a part may be missing", True
    return "", False
