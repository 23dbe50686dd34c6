"""Ranks in `tests.smoke.outside` that wait for a file system, a FUSE mount of their own which nobody serves; or that
compute for ever where they should meet the others."""

from __future__ import annotations

from tests.smoke.outside_cases import FAILED_LOADER, HANGS, JOIN, Case
from tests.smoke.outside_invented import program

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

IN_A_THREAD = """
import threading
thread = threading.Thread(target=os.stat, args=(folder + '/shard',))
thread.start()
thread.join()
"""
AT_STORE = """
import builtins, os, sys, time
plain = builtins.__import__
def importing(name, *rest, **more):
    module = plain(name, *rest, **more)
    dist = sys.modules.get("torch.distributed")
    if hasattr(dist, "TCPStore") and hasattr(dist, "all_reduce") and builtins.__import__ is importing:
        builtins.__import__ = plain
        store = dist.TCPStore
        def first(*values, **options):
            try:
                os.close(os.open("MARK", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except OSError:
                return store(*values, **options)
            ACT
        dist.TCPStore = first
    return module
builtins.__import__ = importing
"""
"""The first of the host's ranks to meet the store does something else."""
BLOCKED, LATE = ("smoke-rank-blocked",), (*JOIN, "smoke-rank-blocked")
HANGING = MOUNT + ANSWER

FILES = (
    Case("a FUSE mount that never starts", BLOCKED, program(MOUNT + ASK)),
    Case("a FUSE mount that hangs", BLOCKED, program(HANGING + ASK)),
    Case("a FUSE mount that hangs for a thread", HANGS, program(HANGING + IN_A_THREAD)),
    Case("a FUSE mount that hangs for a loader child", FAILED_LOADER, {**program(HANGING + ASK), "child": True}),
    Case(
        "a FUSE mount that hangs at join", LATE, {**program(HANGING + ASK), "function": "init_process_group", "call": 1}
    ),
    Case("spins at the store", LATE, imports=AT_STORE.replace("ACT", "while True: pass")),
    Case("spins in C at the store", LATE, imports=AT_STORE.replace("ACT", "sum(range(10 ** 14))")),
    Case("spins as it connects", LATE, environ={"OUTSIDE_SPIN": "1"}),
    Case("spins as it connects to the store", LATE, environ={"OUTSIDE_SPIN": "2"}),
    Case("spins as it connects to another rank", LATE, environ={"OUTSIDE_SPIN": "3"}),
)
