"""Kinds of faults in a rank's own connections, threads and waits, in what it gives to collectives, and settings that
are no fault, in `tests.smoke.outside`."""

from __future__ import annotations

from typing import Any

from tests.smoke.outside_cases import DIED, FAILED_LOADER, HANGS, JOIN, NETWORK, SILENT, STOPPED, VALUES, Case, command
from tests.smoke.outside_hosts import DENIED
from tests.smoke.outside_invented import PEER, otherwise, program
from tests.smoke.outside_pairs import MISCOMPUTED
from tests.smoke.outside_work import SLOW_NETWORK, of_child

EACH = """
import socket, struct
for name in sorted(os.listdir("/proc/self/fd"), key=int):
    try:
        file = socket.socket(fileno=os.dup(int(name)))
        if file.family == socket.AF_INET and file.getpeername():
            ACT
    except OSError:
        pass
"""
NO_BYTES = "import ctypes; p = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0)); "
NO_BYTES += "file.setsockopt(1, 26, struct.pack('HxxxxxxP', 1, ctypes.addressof(p)))"
SENDS = repr(((44, 46, 20), 0))
ENDS_THREAD, TRAPS = (
    DENIED.replace("0x00050000 | errno", action).replace("NUMBERS", SENDS) for action in ("0", "0x00030000")
)
REDIRECTED = "nft 'table ip outside { chain c { type nat hook output priority -100; tcp dport 22 accept; "
REDIRECTED += "tcp dport 1024-65535 redirect to :9; }; }' && touch MARK"
VFORK = "os.mkfifo('/tmp/vf'); opens = [(os.POSIX_SPAWN_OPEN, 0, '/tmp/vf', os.O_RDONLY, 0)]\n"
VFORK += "os.posix_spawn('/bin/true', ['true'], os.environ, file_actions=opens)"
LIBC = "import ctypes; c = ctypes.CDLL(None); "
SEMAPHORE = LIBC + "c.semop(c.semget(0, 1, 0o600), bytes([0, 0, 255, 255, 0, 0]), 1)"
INOTIFY = LIBC + "f = c.inotify_init(); c.inotify_add_watch(f, b'/tmp', 0x100000); os.read(f, 4096)"
NO_SSH_PROCESS = """(p=PID
while [ "$(cat /proc/$p/comm)" != sshd ] && [ $p -gt 1 ]; do p=$(ps -o ppid= -p $p | tr -d ' '); done
sleep 0.1; kill -9 $p) >/dev/null 2>&1 & sleep 0.3"""
NOT_AWAITED = "held = globals().setdefault('held', [])\n    "
NOT_AWAITED += "held.append((plain(tensor, op=op, group=group, async_op=True), tensor))"
BOUND = """
import gc
plain = CALL
def other(out, given, *rest, **more):
    ACT
for part in gc.get_objects():
    if type(part).__name__ == "TracedComm":
        part.NAME = other
"""
SENDS_BACKWARDS = "d = sys.modules['torch'].distributed; plain = d.send\n"
SENDS_BACKWARDS += "d.send = lambda t, *r, **m: plain(t.flip(0).contiguous() if t.dim() else t, *r, **m)"


def each(act: str) -> dict[str, Any]:
    """Done to every connection of the rank."""
    return program(EACH.replace("ACT", act))


def bound(name: str, call: str, act: str) -> dict[str, Any]:
    """A collective that the worker looks up once is something else from now on."""
    call = f"sys.modules['torch'].distributed.{call}"
    return program(BOUND.replace("NAME", name).replace("CALL", call).replace("ACT", act))


ROLLED = bound(
    "scatter_from",
    "reduce_scatter_single",
    "return plain(out, sys.modules['torch'].roll(given.clone(), out.numel()), *rest, **more)",
)
SOCKETS: tuple[Case, ...] = (
    Case("sockets that wake at 1 MB", NETWORK, each("file.setsockopt(1, 18, 1 << 20)"), must=False),
    Case("sockets of 20 kB a second", SLOW_NETWORK, each("file.setsockopt(1, 47, 20000)"), early=True, must=False),
    Case("sockets that are corked", SLOW_NETWORK, each("file.setsockopt(6, 3, 1)"), early=True, must=False),
    Case("its sockets get nothing", (*NETWORK, *HANGS, *DIED), each(NO_BYTES)),
    Case("one of its connections is closed", (*DIED, *NETWORK, *HANGS), each("os.close(int(name)); break")),
    Case("a filter ends a thread of it", (*DIED, *NETWORK, *HANGS, *STOPPED), program(ENDS_THREAD)),
    Case("a filter traps its sends", DIED, program(TRAPS)),
    Case("address of a peer on its loopback", NETWORK, command(f"ip addr add {PEER}/32 dev lo")),
    Case("redirected to a closed port", (*JOIN, *NETWORK, *DIED, "smoke-environment-fails"), before=REDIRECTED),
    Case("waits for a child in vfork", HANGS, program(VFORK)),
    Case("waits for a semaphore of System V", HANGS, program(SEMAPHORE)),
    Case("waits for a change of a folder", HANGS, program(INOTIFY)),
    Case("/dev/shm is gone in mid-run", FAILED_LOADER, command("umount -l /dev/shm"), must=False),
    Case("the SSH server's process is killed", (*SILENT, "host-unreachable"), command(NO_SSH_PROCESS)),
    Case("loader child closes its files", FAILED_LOADER, of_child("os.closerange(3, 400)")),
    Case("loader child stops its parent", STOPPED, of_child("os.kill(os.getppid(), signal.SIGSTOP)")),
    Case("loader child kills its parent", DIED, of_child("os.kill(os.getppid(), 9)")),
    Case("results are not waited for", VALUES, otherwise(NOT_AWAITED), must=False),
    Case("last bit of sums in bfloat16", VALUES, otherwise(
        "plain(tensor, op=op, group=group)\n    if tensor.dtype == torch.bfloat16: tensor.view(torch.int16).add_(1)"
    ), early=True),
    Case("gives zeros to large sums", VALUES, otherwise(
        "tensor.mul_(tensor.numel() < 1000)\n    return plain(tensor, op=op, group=group)"), early=True),
    Case("scatters its neighbour's share", VALUES, ROLLED, early=True),
    Case("sends its micro-batch backwards", MISCOMPUTED, program(SENDS_BACKWARDS), early=True, must=False),
    Case("4 kB to receive", SLOW_NETWORK, before="echo 4096 4096 4096 >/proc/sys/net/ipv4/tcp_rmem; touch MARK"),
    Case("overflow is refused", (), before="sysctl -qw net.ipv4.tcp_abort_on_overflow=1; touch MARK"),
    Case("threads switch each 100 ns", (), program("sys.setswitchinterval(1e-7)")),
    Case("first for the OOM killer", (), program("open('/proc/self/oom_score_adj', 'w').write('1000')")),
    Case("hooks of errors raise", (), program("sys.unraisablehook = sys.excepthook = lambda *_: 1 / 0")),
)  # fmt: skip
