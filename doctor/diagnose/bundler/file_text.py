"""The content of a file as text, in pieces, cut in the middle where it is too long."""

import os
import stat
import zlib
from collections import deque

from doctor.diagnose.excerpter.file_blocks import BLOCK, data_blocks, opened, utf8_blocks
from doctor.diagnose.excerpter.line_choice import is_binary, is_recording
from doctor.remote.runtime.host_texts import filled

ARCHIVE_MARKS = (b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf", b"!<arch>\n")  # zip, zstd, 7z, ar
PACKED_MARKS = ((b"\x1f\x8b", ".gz"), (b"BZh", ".bz2"), (b"\xfd7zXZ", ".xz"))
LEFT_OUT = b"[%d bytes in the middle are left out: the limit of bytes]\n"


class NotText(Exception):
    """The file is left out; the text says why."""

    pass


class FileText:
    """One regular file. Raises: OSError, also where it is not the file that the search has found.

    `pieces` are at most `limit` bytes and a line that says how many are left out: of a longer file the first quarter
    and the last three. Only a file that is sent whole is `complete`.
    """

    def __init__(self, path, entry, limit):
        self.path, self.limit = path, limit
        self.complete, self.note = False, ""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        self.file = os.fdopen(os.open(path, flags), "rb")
        self.status = os.fstat(self.file.fileno())
        same = (self.status.st_dev, self.status.st_ino) == (entry.st_dev, entry.st_ino)
        if not same or not stat.S_ISREG(self.status.st_mode):
            self.file.close()
            raise OSError(0, "was replaced while it was read")
        self.head = self.file.read(512)
        self.file.seek(0)

    def pieces(self):
        """Raises: NotText before the first piece. An end that damage forces is a `note`."""
        packed = next((suffix for mark, suffix in PACKED_MARKS if self.head.startswith(mark)), "")
        wide = self.head[:2] in (b"\xff\xfe", b"\xfe\xff")
        try:
            if packed:
                yield from self.cut_stream(self.checked(self.unpacked(opened(packed, self.file))))
            elif wide or self.status.st_size <= self.limit:
                yield from self.cut_stream(self.checked(data_blocks(self.file, self.status.st_size)))
            else:
                yield from self.cut_file()
        except (EOFError, OSError, ImportError, MemoryError, ValueError, zlib.error) as error:
            self.complete, self.note = (
                False,
                filled("could be read only in part: {0}", str(error) or type(error).__name__),
            )
        finally:
            self.file.close()

    def unpacked(self, source):
        block = source.read(BLOCK)
        while block:
            yield block
            block = source.read(BLOCK)

    def checked(self, blocks):
        """The blocks as UTF-8. Raises: NotText by the first one."""
        for number, block in enumerate(utf8_blocks(blocks)):
            if not number:
                refuse_binary(block)
            yield block

    def cut_stream(self, blocks):
        """Cuts a stream of unknown length: keeps the first quarter of the limit, and the last three quarters."""
        sent, tail, kept, dropped = 0, deque(), 0, 0
        for block in blocks:
            room = max(0, self.limit // 4 - sent)
            first, rest = (block, b"") if sent + len(block) <= self.limit // 4 else (block[:room], block[room:])
            if first and not tail:
                sent += len(first)
                yield first
            else:
                rest = block
            if rest:
                tail.append(rest)
                kept += len(rest)
            while kept > self.limit * 3 // 4 and len(tail) > 1:
                dropped += len(tail[0])
                kept -= len(tail.popleft())
        if dropped:
            tail[0], skipped = from_next_line(tail[0])
            yield b"\n" + LEFT_OUT % (dropped + skipped)
        yield from tail
        self.complete = not dropped

    def cut_file(self):
        """Of a long file: its two ends, without reading what is between."""
        head = self.file.read(self.limit // 4)
        refuse_binary(head)
        yield head
        start = self.status.st_size - self.limit * 3 // 4
        self.file.seek(start)
        first, skipped = from_next_line(self.file.read(BLOCK))
        yield b"\n" + LEFT_OUT % (start - len(head) + skipped) + first
        rest = self.status.st_size - start - BLOCK
        while rest > 0:
            block = self.file.read(min(BLOCK, rest))
            if not block:
                break
            rest -= len(block)
            yield block


def from_next_line(block):
    """A block without the end of the line that it begins in, and how many bytes that is."""
    place = block.find(b"\n") + 1
    return block[place:], place


def refuse_binary(block):
    """Raises: NotText for what no search for secrets can look into."""
    if block.startswith(ARCHIVE_MARKS) or block[257:262] == b"ustar":
        raise NotText("an archive: secrets in it cannot be searched for")
    if block.startswith(b"\x7fELF"):
        raise NotText("a program, or the memory of one")
    if is_binary(block) and not is_recording(block):
        raise NotText("no text: secrets in it cannot be searched for")
