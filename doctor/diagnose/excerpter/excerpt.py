"""The excerpt of one log: the lines that a diagnosis needs, with their numbers."""

import base64
import errno
import os
import re
import stat
import zlib
from collections import deque

from doctor.diagnose.excerpter.line_choice import (
    MAX_LINE,
    is_binary,
    is_recording,
    launcher_labels,
    line_starts,
    shown_part,
    whole_lines,
)
from doctor.diagnose.excerpter.tracebacks import TRACEBACK_HEAD, OpenTracebacks

BLOCK = 1 << 20
MAX_DUMP = 1 << 25  # bytes of a dump that is sent
EDGE_LINES = 20  # first and last lines that are sent of each file
MAX_ALIKE = 2000  # lines of one shape in one file
LOOK_BACK = 200  # lines before a line without a time in which one is looked for
CLOCK = re.compile(rb"(?<![\d:])\d\d:\d\d:\d\d(?!:)")  # no address on a PCI bus: 0000:00:02.0
COLORS = re.compile(rb"\x1b\[[0-9;]{0,20}[A-Za-z]")
COMPRESSED = (".gz", ".bz2", ".xz")
MAX_XZ_MEMORY = 128 << 20  # bytes; xz -9 needs 65 MiB to decompress


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

    def __init__(self, index, quiet_texts, limit):
        self.index, self.quiet, self.limit = index, quiet_texts, limit

    def start(self, path, size, modified, inode):
        self.excerpt, self.tracebacks = Excerpt(self.limit), OpenTracebacks()
        self.shapes, self.alike = {}, 0
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
                self.notes.append("could be read only in part: {}".format(str(error) or type(error).__name__))

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
                self.notes.append("is a dump of more than {} MiB: it was not read".format(MAX_DUMP >> 20))
                return
        self.dump = base64.b64encode(b"".join(pieces)).decode("ascii")

    def read_kernel(self, data):
        """Chooses among the messages of the kernel."""
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
        """Chooses among the lines of a block, each of which ends with a newline."""
        if self.lines < self.edge_lines:
            for offset, line in enumerate(data.split(b"\n", EDGE_LINES)[: min(EDGE_LINES, data.count(b"\n"))]):
                self.excerpt.add(self.lines + offset + 1, line)
        starts = line_starts(data, self.quiet)
        if not starts:
            return
        heads = self.index.number_heads(data)
        candidates = self.index.candidates
        number, counted = self.lines, 0
        for start in starts:
            line = data[start : data.index(b"\n", start)]
            if b"\x1b" in line:
                line = COLORS.sub(b"", line)
            if b"\r" in line:
                line = shown_part(line)
            if len(line) > MAX_LINE:
                line = line[:MAX_LINE]
            literals = candidates(line)
            for head in heads:
                if head in line:
                    literals += self.index.numbered(line, heads)
                    break
            if (literals or self.tracebacks) and self.is_chosen(line, literals):
                number += data.count(b"\n", counted, start)
                counted = start
                self.keep(data, start, number + 1, line)

    def is_chosen(self, line, literals):
        """Whether the line is sent; `literals` are those of which its shape reminds."""
        chosen = any(literal in line for literal in literals)
        if chosen:
            shape = line.translate(None, b"0123456789abcdef")
            self.shapes[shape] = self.shapes.get(shape, 0) + 1
            if self.shapes[shape] > MAX_ALIKE or len(self.shapes) > 1 << 16:
                self.alike += 1
                chosen = False
        if self.tracebacks:
            chosen = self.tracebacks.read(line.decode("utf-8", "replace"))[0] or chosen
        if TRACEBACK_HEAD.encode() in line:
            self.tracebacks.open(line.decode("utf-8", "replace"))
        return chosen

    def keep(self, data, start, number, line):
        """The line, and before it the nearest line with a time where it shows none."""
        if not CLOCK.search(line[:MAX_LINE]):
            before = data[max(0, start - LOOK_BACK * 200) : start].split(b"\n")[:-1]
            for offset, other in enumerate(reversed(before[-LOOK_BACK:])):
                if CLOCK.search(other[:400]):
                    self.excerpt.add(number - offset - 1, other)
                    break
        self.excerpt.add(number, line)

    def report(self):
        """What is sent of the log."""
        if self.alike:
            text = "{} lines like those that were sent were only counted"
            text = "1 line like those that were sent was only counted" if self.alike == 1 else text
            self.notes.append(text.format(self.alike))
        if self.excerpt.dropped:
            text = "{} lines in the middle were left out: the limit of bytes"
            text = "1 line in the middle was left out: the limit of bytes" if self.excerpt.dropped == 1 else text
            self.notes.append(text.format(self.excerpt.dropped))
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
        return "grew by {} bytes while it was read: a program still writes to it".format(now - before), False
    if now < before:
        return "was cut or replaced while it was read: a part may be missing", True
    return "", False


def opened(suffix, file):
    """What decompresses a file. Raises: ImportError where this Python was built without it."""
    if suffix == ".gz":
        import gzip

        return gzip.GzipFile(fileobj=file)
    if suffix == ".bz2":
        import bz2

        return bz2.BZ2File(file)
    return XzFile(file)


class XzFile:
    """Decompresses .xz with bounded memory. Raises: OSError for damage, and for a file that wants more memory."""

    def __init__(self, file):
        import lzma

        self.file, self.lzma = file, lzma
        self.stream = self.new_stream()

    def new_stream(self):
        return self.lzma.LZMADecompressor(memlimit=MAX_XZ_MEMORY)

    def read(self, size):
        """Up to `size` bytes; none at the end."""
        data = b""
        while not data:
            block = b""
            if self.stream.eof:
                block = self.stream.unused_data.lstrip(b"\0") or self.file.read(BLOCK).lstrip(b"\0")
                if not block:
                    return b""
                self.stream = self.new_stream()
            elif self.stream.needs_input:
                block = self.file.read(BLOCK)
                if not block:
                    raise EOFError("it ends before its end mark")
            try:
                data = self.stream.decompress(block, size)
            except self.lzma.LZMAError as error:
                raise OSError(str(error)) from None
        return data


def data_blocks(file, size):
    """The first `size` bytes of a file in blocks, without its holes: a sparse log of terabytes may hold a few lines."""
    position = 0
    while position < size:
        try:
            position = os.lseek(file.fileno(), position, os.SEEK_DATA)
            end = min(size, os.lseek(file.fileno(), position, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                return
            end = size  # a file system that knows no holes
        file.seek(position)
        while position < end:
            block = file.read(min(BLOCK, end - position))
            if not block:
                return
            position += len(block)
            yield block
