"""Kinds of faults in waits that the kernel grants, in packets before any firewall, in numbers that one place of the
model spoils, and settings that are no fault, in `tests.smoke.outside`."""

from __future__ import annotations

from tests.smoke.outside_cases import DIED, FAILED_LOADER, HANGS, NETWORK, STOPPED, VALUES, Case, command, nft
from tests.smoke.outside_invented import PEER, otherwise, program
from tests.smoke.outside_pairs import MISCOMPUTED
from tests.smoke.outside_sockets import LIBC, bound, each
from tests.smoke.outside_stack import INJECTED, through
from tests.smoke.outside_work import of_child

LOST = (*DIED, *NETWORK, *HANGS)
MISSING_PAGE = """
import ctypes, fcntl, mmap, struct
libc = ctypes.CDLL(None, use_errno=True)
file = libc.syscall(323, 0)
fcntl.ioctl(file, 0xC018AA3F, bytearray(struct.pack("QQQ", 0xAA, 0, 0)))
page = mmap.mmap(-1, 4096)
place = ctypes.addressof(ctypes.c_char.from_buffer(page))
fcntl.ioctl(file, 0xC020AA00, bytearray(struct.pack("QQQQ", place, 4096, 1, 0)))
ctypes.string_at(place, 1)
"""
"""Of userfaultfd(2), whose monitor is the rank itself."""
ASKED_FOR = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
open("/run/asked", "w").close()
file = libc.syscall(300, 4, 0)
assert libc.fanotify_mark(file, 1, ctypes.c_uint64(0x10000), -100, b"/run/asked") == 0
open("/run/asked").read()
"""
"""Of fanotify(7), which nobody gives."""
FUTEX = LIBC + "word = ctypes.c_int(7); c.syscall(202, ctypes.byref(word), 128, 7, None, None, 0)"
CHILD_LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28)); bytearray(1 << 29)"
TWICE = """plain(out, given, *rest, **more)
    if out.numel() > given.numel(): out.view(-1)[:2 * given.numel()] = given.view(-1).repeat(2)"""
SMOOTH = "import torch; f = torch.nn.functional; cross = f.cross_entropy\n"
SMOOTH += "f.cross_entropy = lambda *a, **m: cross(*a, **{**m, 'label_smoothing': 0.05})\n"
SMOOTH += "log = torch.Tensor.log_softmax; torch.Tensor.log_softmax = lambda x, *a, **m: log(x * 0.98, *a, **m)"
TEMPERATURE = "import torch; plain = torch.Tensor.softmax\n"
TEMPERATURE += "torch.Tensor.softmax = torch.softmax = lambda x, *a, **m: plain(x * 1.03, *a, **m)"
UNSEEN = "import torch; torch.set_float32_matmul_precision('medium')"
DIES_BY_GROUP = "os.setpgid(0, 0); os.killpg(0, signal.SIGTERM)"
DROPS_EARLY = "nft 'table netdev outside { chain c { type filter hook ingress device eth0 priority 0; "
DROPS_EARLY += "tcp sport 22 accept; tcp dport 1024-65535 drop; }; }'"
NO_KEY = f"ip xfrm policy add src 0.0.0.0/0 dst {PEER}/32 dir out tmpl proto esp mode transport"

EPIPE = INJECTED.format("writev,sendmsg", "error=EPIPE:when=3+")

LATER: tuple[Case, ...] = (
    Case("its writes find a broken pipe", (*LOST, *STOPPED), command(EPIPE)),
    Case("its sockets are in repair", LOST, each("file.setsockopt(6, 19, 1)")),
    Case("its sockets use the loopback", LOST, each("file.setsockopt(1, 25, b'lo')")),
    Case("a policy of IPsec without a key", NETWORK, command(NO_KEY)),
    Case("dropped before the firewall", LOST, command(DROPS_EARLY)),
    Case("a page that nobody brings", HANGS, program(MISSING_PAGE)),
    Case("an open that nobody allows", HANGS, program(ASKED_FOR)),
    Case("waits in epoll", HANGS, program("import select; select.epoll().poll()")),
    Case("reads an eventfd", HANGS, program("os.read(os.eventfd(0), 8)")),
    Case("waits in a futex of its own", HANGS, program(FUTEX)),
    Case("waits for a timer of the kernel", HANGS, program(LIBC + "os.read(c.timerfd_create(1, 0), 8)")),
    Case("gathers its own piece twice", VALUES, bound("gather_into", "all_gather_single", TWICE), early=True),
    Case("last sum counted twice", VALUES, otherwise(
        "plain(tensor, op=op, group=group)\n    tensor.view(-1)[-1] *= 2"), early=True),
    Case("sums of half precision", VALUES, otherwise(
        "plain(tensor, op=op, group=group)\n    if tensor.dtype == torch.float32: tensor.copy_(tensor.half())"
    ), early=True),
    Case("softer targets", MISCOMPUTED, program(SMOOTH), early=True),
    Case("attention 3 % too sharp", MISCOMPUTED, program(TEMPERATURE), early=True),
    Case("products of less precision allowed", MISCOMPUTED, program(UNSEEN), early=True, must=False),
    Case("loader child with 256 MB of addresses", FAILED_LOADER, of_child(CHILD_LIMIT)),
    Case("loader child waits in epoll", FAILED_LOADER, of_child("import select; select.epoll().poll()")),
    Case("ends its own process group", DIED, program(DIES_BY_GROUP)),
    Case("epoll is interrupted", (), command(INJECTED.format("epoll_wait", "error=EINTR:when=2+7")), must=False),
    Case("packets of another class", (), command(nft("ip dscp set ef"))),
    Case("sockets of one hop", (), each("file.setsockopt(0, 2, 1); file.setsockopt(1, 12, 6)")),
    Case("a name and semaphores of its own", (), wrapper=through("unshare -u -i")),
    Case("a session of its own", (), wrapper=through("setsid -w"), must=False),
    Case("one arena, stack without limit", (), wrapper="touch MARK; ulimit -s unlimited; export MALLOC_ARENA_MAX=1"),
)  # fmt: skip
