"""A rank that waits for a file system in `tests.smoke.outside`: a FUSE mount of its own, which nobody serves."""

from __future__ import annotations

from tests.smoke.outside_cases import Case

MOUNT = """
import ctypes, struct, tempfile
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x00020000) == 0
libc.mount(None, b"/", None, (1 << 14) | (1 << 18), None)
libc.mount(b"none", b"/dev/shm", b"tmpfs", 0, None)
folder, device = tempfile.mkdtemp(), "/dev/shm/fuse-device"
os.mknod(device, 0o020600, os.makedev(10, 229))
file = os.open(device, os.O_RDWR)
options = f"fd={file},rootmode=40000,user_id=0,group_id=0"
assert libc.mount(b"dead", folder.encode(), b"fuse.dead", 0, options.encode()) == 0, os.strerror(ctypes.get_errno())
"""
ANSWER = """
number = struct.unpack("<IIQ", os.read(file, 65536)[:16])[2]
body = struct.pack("<IIIIHHIIHHI28x", 7, 31, 65536, 0, 12, 9, 65536, 1, 32, 0, 0)
os.write(file, struct.pack("<IiQ", 16 + len(body), 0, number) + body)
"""
"""To the kernel's first request; none of the later ones is answered."""
ASK = "\nos.stat(folder + '/checkpoint')\n"

FILES = (
    Case("a FUSE mount that never starts", ("smoke-rank-blocked",), {"kind": "program", "program": MOUNT + ASK}),
    Case("a FUSE mount that hangs", ("smoke-rank-blocked",), {"kind": "program", "program": MOUNT + ANSWER + ASK}),
)
