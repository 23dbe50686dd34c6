"""Kinds of faults of programs, folders and settings, written down before the judge was read."""

from __future__ import annotations

from tests.smoke.outside_cases import (
    DIED,
    FAILED_LOADER,
    HANGS,
    HOOK,
    JOIN,
    NETWORK,
    SILENT,
    START,
    VALUES,
    Case,
    command,
)
from tests.smoke.outside_invented import PEER, otherwise, program
from tests.smoke.outside_pairs import MISCOMPUTED
from tests.smoke.outside_unforeseen import SET
from tests.smoke.outside_work import SLOW_NETWORK, of_child

MISMATCHED = (*HANGS, *DIED, *VALUES)
PAIR = "import torch.distributed as dist\n"
HALF_TENSOR = "flat = tensor.view(-1); return plain(flat[:max(1, len(flat) // 2)], op=op, group=group)"
DOUBLE = "copy = tensor.double(); plain(copy, op=op, group=group); tensor.copy_(copy)"
TWO_MESSAGES = "text = 'x' * 2_000_000\nraise ValueError(text)"
MUTE_ERROR = "class Odd(Exception):\n    def __str__(self): raise KeyError('of the text')\nraise Odd"
GROUPED = (
    "raise ExceptionGroup('several', [ValueError(1), TypeError(2)]) if sys.version_info > (3, 11) else ValueError(1)"
)
SMOOTHER = "import torch; p = torch.layer_norm\ntorch.layer_norm = lambda x, *a, **k: p(x, *a, **{**k, 'eps': 1e-2})"
CLIPPED = "import torch; p = torch.Tensor.div_\ntorch.Tensor.div_ = lambda x, n: p(x, n).clamp_(-2e-3, 2e-3)"
KEEPS_LESS = "import torch; p = torch.rand\ntorch.rand = lambda *a, **k: p(*a, **k) * 0.97"
FIXED_SEED = "import random; p = random.Random.seed\nrandom.Random.seed = lambda self, *a: p(self, 7)"
TRANSPOSED = "import torch; p = torch.Tensor.permute\ntorch.Tensor.permute = lambda x, *d: p(x, *d).flip(0)"
FEW_INODES = "mount -t tmpfs -o nr_inodes={1} none {0} && touch MARK"
OWN_NAME = """echo "$(ip -4 -o addr show eth0 | awk '{split($4, a, "/"); split(a[1], b, ".")
print b[1] "." b[2] "." b[3] "." (b[4] % 3) + 1}') $(hostname)" >>/etc/hosts; touch MARK"""
CONTROLS = r"raise RuntimeError('\x1b[2J\x00{\"ev\": \"exit\"}\n\r\u202e')"
CHINESE = "touch MARK; mkdir -p '/tmp/目录 a'; export TMPDIR='/tmp/目录 a' LC_ALL=C"
TORCHRUN = "TORCHELASTIC_ERROR_FILE=/nowhere/error.json TORCHELASTIC_RUN_ID=7"
OTHER_DRAWS = (*MISCOMPUTED, "smoke-mask-differs", "smoke-loader-seed-differs")
OTHER_DATA = (*MISCOMPUTED, "smoke-mask-differs", "smoke-mask-repeated", "smoke-shards-wrong")
ADDRESSED = (*JOIN, *DIED, *START, *NETWORK, "smoke-environment-fails")
CLOSES = """for n in sorted(map(int, os.listdir('/proc/self/fd')), reverse=True):
    if n > 2:
        try: os.close(n)
        except OSError: pass"""
BY_GATEWAY = f"peer={PEER}; ip route add $peer/32 via $(ip route | awk '/default/ {{print $3; exit}}') dev eth0 || true"
TRACED = "true; (timeout 5 strace -f -q -o /dev/null -p PID) >/dev/null 2>&1 & sleep 0.01"
FORKS_ON = """
for _ in range(0 if "FORKED" in os.environ else 3):
    os.environ["FORKED"] = "1"  # the hook is run in these children too
    if not os.fork():
        time.sleep(8)
        os._exit(0)
"""
ENDS_LATE = """
from multiprocessing import util
util.register_after_fork(sys, lambda _: util.Finalize(None, time.sleep, (6,), exitpriority=1))
"""
PRINTS = "for _ in range(50): sys.stdout.write('x' * (1 << 20) + '\\n')"
HALF_OPEN = HOOK.format("input", "tcp dport 22 accept; tcp sport 22 accept; tcp flags & (fin | rst) != 0 drop")
OFFSET = 'touch MARK\n[ "$AGAIN" ] || { export AGAIN=1; exec unshare -T --boottime 90000 --monotonic 90000 "$0" "$@"; }'

ERRANDS: tuple[Case, ...] = (
    Case("selects nothing", HANGS, program("import select\nselect.select([], [], [])")),
    Case("waits for a condition", HANGS, program("import threading\nc = threading.Condition()\nwith c: c.wait()")),
    Case("a barrier more", (*HANGS, *DIED), program(PAIR + "dist.barrier()")),
    Case("makes a group of its own", (*HANGS, *DIED), program(PAIR + "dist.new_group([0, 1])")),
    Case("leaves the group of processes", DIED, program(PAIR + "dist.destroy_process_group()")),
    Case("half of the tensor", MISMATCHED, otherwise(HALF_TENSOR), early=True),
    Case("sums in double", MISMATCHED, otherwise(DOUBLE), early=True),
    Case("an error of 2 MB", DIED, program(TWO_MESSAGES)),
    Case("an error of control characters", DIED, program(CONTROLS)),
    Case("an error without a text", DIED, program(MUTE_ERROR)),
    Case("a group of errors", DIED, program(GROUPED)),
    Case("StopIteration", DIED, program("raise StopIteration")),
    Case("ends with 255", DIED, program("os._exit(255)")),
    Case("ends with 12", DIED, program("os._exit(12)")),
    Case("becomes a program that fails", DIED, program("os.execv('/bin/sh', ['sh', '-c', 'exit 9'])")),
    Case("layer_norm with another epsilon", MISCOMPUTED, program(SMOOTHER), early=True),
    Case("clipped gradients", MISCOMPUTED, program(CLIPPED), early=True),
    Case("dropout of more", OTHER_DRAWS, program(KEEPS_LESS), early=True),
    Case("one seed for all masks", OTHER_DATA, program(FIXED_SEED), early=True),
    Case("heads in another order", MISCOMPUTED, program(TRANSPOSED), early=True, must=False),
    Case("six files in /tmp", (*FAILED_LOADER, *START), before=FEW_INODES.format("/tmp", 6), must=False),
    Case("one file in /dev/shm", FAILED_LOADER, before=FEW_INODES.format("/dev/shm", 2)),
    Case("its name has a peer's address", ADDRESSED, before=OWN_NAME, must=False),
    Case("frames of 9000", (*NETWORK, *JOIN), before="ip link set eth0 mtu 9000 && touch MARK", must=False),
    Case("ends of connections are lost on the way in", (), before=HALF_OPEN + " && touch MARK", must=False),
    Case("its clocks are a day ahead", (), wrapper=OFFSET, must=False),
    Case("TMPDIR of Chinese letters", (), wrapper=CHINESE),
    Case("TMPDIR of a newline", (), wrapper="touch MARK; mkdir -p '/tmp/a\nb'; export TMPDIR='/tmp/a\nb'", must=False),
    Case("TMPDIR is a file", FAILED_LOADER, wrapper="touch MARK; echo >/tmp/file; export TMPDIR=/tmp/file", must=False),
    Case("its allocator counts", (), wrapper=SET + "PYTHONMALLOCSTATS=1"),
    Case("checked memory of glibc", (), wrapper=SET + "GLIBC_TUNABLES=glibc.malloc.check=3:glibc.malloc.perturb=85"),
    Case("OMP of minus three threads", (), wrapper=SET + "OMP_NUM_THREADS=-3 MKL_NUM_THREADS=x"),
    Case("bound OMP threads", (), wrapper=SET + "OMP_PROC_BIND=close OMP_PLACES='{0}' GOMP_CPU_AFFINITY=0", must=False),
    Case("an unknown layer of threads", (*START, *DIED), wrapper=SET + "MKL_THREADING_LAYER=BOGUS", must=False),
    Case("files of errors of torchrun", (), wrapper=SET + TORCHRUN),
    Case("loader child prints 50 MB", FAILED_LOADER, of_child(PRINTS), must=False),
    Case("loader child forks", FAILED_LOADER, of_child(FORKS_ON), must=False),
    Case("loader children take 6 s to end", (), of_child(ENDS_LATE)),
    Case("loader child goes elsewhere", (), of_child("os.chdir('/'); os.umask(0o777)")),
    Case("loader child leaves its group", (), of_child("os.setsid()"), must=False),
    Case("all its files are closed one by one", (*DIED, *HANGS, *NETWORK, *SILENT), program(CLOSES)),
    Case("its address gets a second label", (), command("ip addr add 10.255.255.7/32 dev eth0 label eth0:7")),
    Case("a route to one by a gateway that forwards", SLOW_NETWORK, command(BY_GATEWAY), must=False),
    Case("a program that eats 95 % of the memory for files", (), command(
        "(dd if=/dev/zero of=/var/tmp/eaten bs=1M count=300; rm -f /var/tmp/eaten) >/dev/null 2>&1 & sleep 0.01")),
    Case("its interpreter is traced by strace in mid-run", (), command(TRACED), must=False),
)  # fmt: skip
"""Written down before the judge was read. A loader child that forks may deadlock: the real job hangs then, too."""
