# mypy: ignore-errors
"""A file system in user space with one file, which answers all but one kind of request: `silent_files.py FOLDER KIND`.

The requests are those of <linux/fuse.h>, version 7.31.
"""

import ctypes
import os
import stat
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, READ, INIT, OPENDIR, INTERRUPT = 1, 2, 3, 14, 15, 26, 27, 36
KINDS = {"lookup": LOOKUP, "read": READ}
SIZE = 1 << 20


def attributes(node):
    mode = stat.S_IFDIR | 0o755 if node == 1 else stat.S_IFREG | 0o644
    return struct.pack("<6Q10I", node, SIZE, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


ANSWERS = {
    INIT: lambda node: struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 16, 0, 12, 10, 1 << 16, 1, 32, 0, 0),
    LOOKUP: lambda node: struct.pack("<QQQQII", 2, 0, 1 << 30, 1 << 30, 0, 0) + attributes(2),
    GETATTR: lambda node: struct.pack("<QII", 1 << 30, 0, 0) + attributes(node),
    OPEN: lambda node: struct.pack("<QII", 1, 0, 0),
    OPENDIR: lambda node: struct.pack("<QII", 1, 0, 0),
}

folder, silent = sys.argv[1], KINDS[sys.argv[2]]
device = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % device
if ctypes.CDLL(None).mount(b"nas1:/export", folder.encode(), b"fuse", 0, options):
    sys.exit("it cannot be mounted")
os.write(1, b".")
while True:
    request = os.read(device, 1 << 17)
    _, kind, unique, node = struct.unpack_from("<IIQQ", request)
    if kind not in (FORGET, INTERRUPT, silent):
        answer = ANSWERS[kind](node) if kind in ANSWERS else b""
        problem = 0 if kind in ANSWERS else -38
        os.write(device, struct.pack("<IiQ", 16 + len(answer), problem, unique) + answer)
