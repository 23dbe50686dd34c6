"""The content of a file in blocks: decompressed in bounded memory, without the holes of sparse files."""

import codecs
import errno
import os

BLOCK = 1 << 18
COMPRESSED = (".gz", ".bz2", ".xz")
MAX_XZ_MEMORY = 128 << 20  # bytes; xz -9 needs 65 MiB to decompress


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


def utf8_blocks(blocks):
    """The blocks of a text in UTF-16, as `>` of PowerShell writes it, in UTF-8; those of any other file as they are."""
    decoder = None
    for number, block in enumerate(blocks):
        if not number and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            decoder = codecs.getincrementaldecoder("utf-16")("replace")
        yield decoder.decode(block).encode("utf-8", "replace") if decoder else block


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
