"""The content of a file in blocks: decompressed in bounded memory, without the holes of sparse files."""

import codecs
import errno
import io
import os

BLOCK = 1 << 16
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
MAX_XZ_MEMORY = 128 << 20  # bytes; xz -9 needs 65 MiB to decompress; zstd's program gets as many


def opened(suffix, file):
    """What decompresses a file. Raises: ImportError where this Python was built without it.

    Of .zst the file itself, unless it is one of this host and the program `zstd` is there.
    """
    if suffix == ".gz":
        import gzip

        return gzip.GzipFile(fileobj=file)
    if suffix == ".bz2":
        import bz2

        return bz2.BZ2File(file)
    if suffix == ".zst":
        return ZstdFile(file) if type(file) is io.BufferedReader and has_zstd() else file
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


def has_zstd():
    """The program that unpacks .zst is there: Python has had no module for it before 3.14."""
    import shutil

    return shutil.which("zstd") is not None


class ZstdFile:
    """What the program `zstd` unpacks, in bounded memory. Raises: OSError for damage, and for more memory."""

    def __init__(self, file):
        import subprocess

        os.lseek(file.fileno(), file.tell(), os.SEEK_SET)  # what stands in a buffer was not read
        command, pipe = ["zstd", "-dcq", "--memory=%d" % MAX_XZ_MEMORY], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=file, stdout=pipe, stderr=subprocess.DEVNULL)

    def read(self, size):
        data = self.process.stdout.read(size)
        if not data and self.process.wait():
            raise OSError("zstd could not unpack it (exit code %d)" % self.process.returncode)
        return data

    def __del__(self):
        if self.process.poll() is None:  # reading ended before the file did
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


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
