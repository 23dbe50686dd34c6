"""What the carrier prints: frames that survive all that a launcher does to lines."""

import base64
import binascii
import os
import struct

try:
    import zlib
except ImportError:  # a Python that was built without it
    zlib = None

LINE = 900  # srun cuts lines at 1024 bytes
HEAD = struct.Struct(">IcBI")  # count, kind, flags, number of the command


class FrameWriter:
    """Our stdout: frames wait in `queue` until they can be written."""

    def __init__(self):
        self.count, self.queue = 0, bytearray()

    def send(self, kind, number=0, data=b""):
        packed = zlib.compress(data, 1) if zlib and len(data) > 200 else data
        flags = int(len(packed) < len(data))
        body = HEAD.pack(self.count, kind, flags, number) + (packed if flags else data)
        self.count += 1
        text = b"(" + base64.b64encode(body) + b".%08x)" % (binascii.crc32(body) & 0xFFFFFFFF)
        for start in range(0, len(text), LINE):
            self.queue += text[start : start + LINE] + b"\n"

    def push(self):
        try:
            while self.queue:
                del self.queue[: os.write(1, self.queue[:65536])]
        except BlockingIOError:
            pass


def unpack(text):
    """Bytes that were sent as they are, or as ``z`` and their compressed form."""
    data = base64.b64decode(text[1:])
    return zlib.decompress(data) if text[0] == "z" else data
