"""The job's interpreter: how it is found, what it inherits, how it is started with the worker's text, and what it does
until it has imported what its ranks need.
"""

import fcntl
import json
import os

from doctor.remote.runtime.job_variables import job_variables
from doctor.remote.runtime.processes import die_with_parent, fork_child
from doctor.remote.runtime.reading import read_text
from doctor.smoke.programs.agent.kernel import is_frozen
from doctor.smoke.programs.agent.network import interface_to, interface_with
from doctor.smoke.programs.agent.procfs import child_pids

# What interpreters are started with is one line: conda run refuses an argument of several.
BOOT = (
    "import gc,sys;gc.disable();%sf=sys.stdin.buffer;exec(compile(f.read(int(f.readline())),'worker.py','exec'));main()"
)
EARLY_IMPORT = "exec(%r);" % (
    "import time,warnings\nbegan,failure=time.monotonic(),None\nwarnings.filterwarnings('ignore')\n"
    "try:\n import torch.distributed\nexcept BaseException as error:\n failure=error\n"
    "early_import=time.monotonic()-began,failure"
)
"""Leaves `early_import`, which the worker takes for its own import: the seconds, and the error or None."""


def start_interpreter(argv, environ, inherited, early=False):
    """Starts one interpreter, which inherits these files: (pid, the end of its stdin, the end of its output).

    It waits for what `worker_input` makes on its stdin, which stays open as long as we live; with `early` it imports
    torch before.
    """
    stdin, output = os.pipe(), os.pipe()
    argv = argv + ["-c", BOOT % (EARLY_IMPORT if early else "")]
    parent = os.getpid()
    pid = fork_child(lambda: run_interpreter(parent, argv, environ, inherited), stdin[0], output[1], output[1])
    os.close(stdin[0])
    os.close(output[1])
    os.set_blocking(stdin[1], False)
    return pid, stdin[1], output[0]


def worker_input(worker, orders):
    """What an interpreter reads: the worker's text, and its orders."""
    return b"%d\n" % len(worker) + worker + json.dumps(orders).encode("ascii") + b"\n"


def run_interpreter(parent, argv, environ, inherited):
    """In the child: killed with us, and nothing inherited but what it was meant to have."""
    die_with_parent(parent)
    last = 2
    for fd in sorted(inherited):
        os.set_inheritable(fd, True)
        os.closerange(last + 1, fd)
        last = fd
    os.closerange(last + 1, 65536)
    os.chdir("/")
    try:
        os.execvpe(argv[0], argv, environ)
    except OSError as error:
        os.write(2, ("%s: %s\n" % (argv[0], error.strerror)).encode("ascii", "replace"))
        os._exit(127)


SMALL_BUFFER = "16"  # MB; each process group takes twice as much of an NPU's memory, and 200 is the default


def default_interface(plan, master, peer):
    """The interface towards the master, or another host; loopback for a run on one host; empty: the library chooses."""
    if len(set(place["host"] for place in plan["places"])) == 1:
        return "" if plan["backend"] == "hccl" else "lo"
    interface = interface_to(master[0], master[1])
    if interface == "lo":
        # The master's own name for itself is often a loopback address: other hosts would not reach us there.
        interface = interface_with(os.environ.get("SSH_CONNECTION", "").split()[2:3])
        interface = interface or (interface_to(peer, 0) if peer else "")
    return "" if interface == "lo" else interface


def rank_environment(plan, master, mark, peer=""):
    """Ours, and what this run alone is to have: short timeouts, one thread a rank.

    With `environment` "job" the variables are those of the job, on the host and from the controller, and the library
    chooses its interface as it does in the job; with "clean" there are none, and the interface is the one to the
    master. `keep` names the only ones that are in force, "NAME=value" where it has this value; "interface" stands for
    the library's own choice. `peer`: the address of another host, where it is known.
    """
    environ = dict(os.environ, DOCTOR_SMOKE=mark, PYTHONDONTWRITEBYTECODE="1")
    clean, keep = plan.get("environment", "clean") == "clean", plan.get("keep")
    if not clean:
        environ.update(plan.get("variables") or {})
    for name in job_variables(environ):
        kept = keep is None or name in keep or "%s=%s" % (name, environ[name][:256]) in keep
        if clean or not kept:
            del environ[name]
    backend = plan["backend"]
    if backend == "gloo":
        environ["OMP_NUM_THREADS"] = "1"
        if os.sysconf("SC_PAGE_SIZE") == 4096:
            # Fork copies an entry for every page: the loader's workers begin and end in half the time.
            environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    name = {"gloo": "GLOO_SOCKET_IFNAME", "nccl": "NCCL_SOCKET_IFNAME", "hccl": "HCCL_SOCKET_IFNAME"}[backend]
    interface = plan.get("interface", "")
    chosen_here = clean or (keep is not None and "interface" not in keep)
    if not interface and not environ.get(name) and chosen_here:
        interface = default_interface(plan, master, peer)
    if interface:
        # To NCCL and HCCL a plain name is a prefix: `eth1` takes eth10 too (NCCL documentation, NCCL_SOCKET_IFNAME).
        environ[name] = interface if backend == "gloo" or interface[:1] in "=^" else "=" + interface
    if backend == "hccl":
        # Of a job they are in force as they are, or they could never be what makes it fail.
        environ.setdefault("HCCL_CONNECT_TIMEOUT", str(max(120, int(plan.get("timeout", 60)))))
        environ.setdefault("HCCL_EXEC_TIMEOUT", str(max(68, int(plan.get("timeout", 60)))))
        if clean:
            environ.setdefault("HCCL_BUFFSIZE", SMALL_BUFFER)
    return environ


def unnamed_file(name, size):
    """A file without a name, inherited by what we start. Not in /dev/shm, which may be as small as 1 MB."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("doctor-" + name)
    else:
        import tempfile  # it takes as long to load as all else together

        fd, path = tempfile.mkstemp(prefix="doctor-")
        os.unlink(path)
    if size:
        os.ftruncate(fd, size)
    else:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    return fd


def widen_pipe(pipe):
    """Room for a burst of events while this program waits for a CPU."""
    try:
        fcntl.fcntl(pipe, 1031, 1 << 20)  # F_SETPIPE_SZ
    except OSError:
        pass


IDLE = 0.5  # seconds without any work after which an interpreter is reported
BUSY = 10.0  # seconds of CPU from which on it is reported, too
TICKS = os.sysconf("SC_CLK_TCK")
UNOBSERVED = 1.0  # seconds between two observations from which on the agent was held back
MOST_PROCESSES = 64


class InterpreterMonitor:
    """One interpreter, with the processes that a wrapper of it starts.

    `rank` is -1 for the process that all ranks come from. `state` is "R" where it works, "T" stopped, "t" traced,
    "F" frozen, else the letter of /proc. `idle` are the seconds in which none of its processes ran, could run, or read
    anything. `cpu` are the seconds that they, and their children that have ended, ran.
    """

    def __init__(self, pid, rank):
        self.pid, self.rank = pid, rank
        self.state, self.waits_for = "R", ""
        self.work, self.worked_at, self.idle = None, 0.0, 0.0
        self.observed_at = self.cpu = 0.0

    def observe(self, clock):
        if self.work:  # of a time in which the agent itself did not run nothing is known
            self.worked_at += max(0.0, clock - self.observed_at - UNOBSERVED)
        self.observed_at = clock
        pids = self.processes()
        stats = [read_text("/proc/%d/stat" % pid) for pid in pids]
        fields = [stat[stat.rfind(")") + 2 :].split() or ["X"] for stat in stats]
        states = [row[0] for row in fields]
        work = [row[11:13] for row in fields], [read_text("/proc/%d/io" % pid) for pid in pids]
        if work != self.work or "R" in states:
            self.work, self.worked_at = work, clock
        self.idle = clock - self.worked_at
        self.cpu = sum(int(ticks) for row in fields for ticks in row[11:15]) / TICKS
        self.state, self.waits_for = "R", ""
        if self.idle > IDLE:
            stopped = [state for state in states if state in "Tt"]
            frozen = ["F" for number, pid in enumerate(pids) if is_frozen(pid, states[number])]
            self.state = (frozen + stopped + states[-1:])[0]
            self.waits_for = read_text("/proc/%d/wchan" % pids[-1], 64).strip("0")

    def processes(self):
        """Its own number and those of all that come from it, the last started last."""
        pids = [self.pid]
        for pid in pids:
            if len(pids) < MOST_PROCESSES:
                pids += child_pids(pid)
        return pids

    def report(self):
        return [self.rank, self.state, round(self.idle, 2), self.waits_for, round(self.cpu, 1)]


class StartingInterpreters:
    """Interpreters that have not imported everything yet, by their process number."""

    def __init__(self):
        self.by_pid = {}

    def add(self, pid, rank):
        self.by_pid[pid] = InterpreterMonitor(pid, rank)

    def remove(self, pid):
        return self.by_pid.pop(pid, None) is not None

    def has_imported(self, rank):
        self.by_pid = dict((pid, monitor) for pid, monitor in self.by_pid.items() if monitor.rank != rank)

    def report(self, clock):
        """The report to the controller on those that do nothing, or much; empty where there is none."""
        for monitor in self.by_pid.values():
            monitor.observe(clock)
        reports = [each.report() for each in self.by_pid.values() if each.idle > IDLE or each.cpu > BUSY]
        return {"starting": reports} if reports else {}
