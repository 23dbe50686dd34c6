"""What a process does, where the kernel shows its functions and not its system calls (Yama, another user's limits)."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from doctor.remote.runtime.kernel_waits import kernel_call
from doctor.remote.runtime.reading import read_text
from doctor.smoke.programs.agent import system_calls
from doctor.smoke.programs.agent.network import socket_bytes
from doctor.smoke.programs.agent.system_calls import memory_maps
from doctor.watch.attach.inspector import rank_state
from doctor.watch.attach.inspector.connected import file_sum, shared_sum
from doctor.watch.attach.inspector.polled import (
    LEAST_SAMPLES,
    LEAST_STATES,
    REGISTERS,
    most_values,
    sampled_files,
    samples_of,
    start_samples,
)
from doctor.watch.attach.inspector.rank_finder import is_launcher, same_rank, starts_ranks
from doctor.watch.attach.inspector.rank_state import running_threads
from doctor.watch.attach.odd_ranks import find_odd
from doctor.watch.attach.rank_activity import activity
from doctor.watch.attach.rank_report import _FEW_VALUES, Look, unseen_notes
from doctor.watch.attach.seen_rank import SeenRank
from tests.watch.test_file_wait import wait_until
from tests.watch.test_odd_ranks import host, rank

WAITS = {
    "futex": "import threading; threading.Event().wait()",
    "sleep": "import time; time.sleep(100)",
    "poll": "import select; select.select([], [], [])",
    "wait": "import subprocess; subprocess.run(['sleep', '100'])",
    "read": "import os; os.read(os.pipe()[0], 1)",
    "recv": "import socket; near, far = socket.socketpair(); near.recv(1)",
    "accept": "import socket; socket.create_server(('127.0.0.1', 0)).accept()",
    "open": "import os, sys; os.open(sys.argv[1], os.O_RDONLY)",
}


def without_system_calls(path: str, most: int = 4096) -> str:
    return "" if path.endswith("/syscall") else str(read_text(path, most))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kind", WAITS)
def test_the_kernel_s_function_tells_what_a_process_waits_in(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    process = subprocess.Popen([sys.executable, "-c", WAITS[kind], str(tmp_path / "fifo")], start_new_session=True)
    try:
        limit = time.monotonic() + 20
        while rank_state.system_call(process.pid)[0] != kind and time.monotonic() < limit:
            time.sleep(0.02)
        assert rank_state.system_call(process.pid)[0] == kind
        if read_text(f"/proc/{process.pid}/wchan") in ("", "0"):  # type: ignore[no-untyped-call]
            pytest.skip("this kernel does not show functions")
        monkeypatch.setattr(system_calls, "read_text", without_system_calls)
        assert rank_state.system_call(process.pid) == (kind, "")
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_a_process_that_computes_is_in_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_calls, "read_text", without_system_calls)
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        limit = time.monotonic() + 20
        while rank_state.system_call(process.pid)[0] != "running" and time.monotonic() < limit:
            time.sleep(0.02)  # while its program is read from a disk, it waits in a function that is none of the table
        assert rank_state.system_call(process.pid)[0] == "running"
    finally:
        process.kill()
        process.wait()


MUTEXES = """
import ctypes, sys, threading, time
lib, order = ctypes.CDLL(None), threading.Barrier(int(sys.argv[1]))
mutexes = [ctypes.create_string_buffer(64) for _ in range(3)]
def lock(*numbers):
    for number in numbers:
        lib.pthread_mutex_lock(mutexes[number]); number == numbers[0] and order.wait()
    time.sleep(100)
"""
OTHER_THREADS = "[threading.Thread(target=lock, args=each, daemon=True).start() for each in {}]; lock({})"
HOLDERS = {  # what the other threads lock, and the main one; whether its thread of this number holds up the main one so
    "its own": ("[]", "0, 0", 0, True),
    "each the other's": ("[(1, 0)]", "0, 1", 1, True),
    "of a cycle of others": ("[(1, 2), (2, 1)]", "0, 1", 1, True),
    "of one that sleeps": ("[(1,)]", "0, 1", 1, False),
    "of one that waits for one that sleeps": ("[(1, 2), (2,)]", "0, 1", 1, False),
}


@pytest.mark.parametrize("case", HOLDERS)
def test_who_holds_a_mutex_and_whether_that_ever_ends(case: str) -> None:
    others, main, holder, is_deadlock = HOLDERS[case]
    program = MUTEXES + OTHER_THREADS.format(others, main)
    process = subprocess.Popen([sys.executable, "-c", program, str(others.count("(") + 1)])
    try:
        wait_until(lambda: rank_state.mutex_holder(process.pid, process.pid))  # type: ignore[no-untyped-call]
        wait_until(lambda: rank_state.look(process.pid)["deadlocked"] == is_deadlock)  # type: ignore[no-untyped-call]
        seen: dict[str, Any] = rank_state.look(process.pid)  # type: ignore[no-untyped-call]
        threads = sorted(int(name) for name in os.listdir(f"/proc/{process.pid}/task"))
        assert seen["holder"] == threads[holder]
        report = rank(1, [Look(**seen)] * 3)
        said = activity(report, 4.0)
        assert ("is deadlocked" in said.text, SeenRank("node1", report, said).waits) == (is_deadlock, not is_deadlock)
        assert str(threads[holder]) in said.text
    finally:
        process.kill()
        process.wait()


WAITING = {
    "recv": "near.settimeout(None)\nwhile near.recv(1): pass",
    "poll": "near.settimeout(100)\nwhile near.recv(1): pass",
    "sleep": "import time; time.sleep(100)",
}
CONNECTED = "import socket; near = socket.create_connection(('127.0.0.1', {}), 100); near.sendall(b'?')\n"


@pytest.mark.parametrize("call", WAITING)
def test_what_the_awaited_connection_carries_is_counted(call: str) -> None:
    """A slow download brings something; of a process that sleeps, its connections tell nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = CONNECTED.format(server.getsockname()[1]) + WAITING[call]
        with subprocess.Popen([sys.executable, "-c", program]) as process, server.accept()[0] as link:

            def awaited() -> tuple[str, int]:
                seen: dict[str, Any] = rank_state.look(process.pid, socket_bytes())  # type: ignore[no-untyped-call]
                return seen["call"], seen["awaited"]

            try:
                wait_until(lambda: awaited()[0] == call)
                before = awaited()[1]
                assert before == -1 if call == "sleep" else before > 0
                link.sendall(b"x")
                wait_until(lambda: awaited() == (call, before if call == "sleep" else before + 1))
            finally:
                process.kill()


SHARES = """
import mmap, os, socket, sys
kind, file = sys.argv[1], os.open(sys.argv[2], os.O_RDWR)
size = os.fstat(file).st_size
memory = mmap.mmap(-1, 4096) if kind == "anonymous" else mmap.mmap(file, size)
kept = socket.socket(socket.AF_INET, socket.SOCK_DGRAM) if kind == "datagrams" else None
if kept:
    kept.bind(("127.0.0.1", 0))
for word in sys.stdin:
    memory[5] = int(word)
    print(flush=True)
"""


@pytest.mark.parametrize("kind", ["named", "removed", "anonymous", "another user's", "large", "replaced", "datagrams"])
def test_a_message_in_shared_memory_is_seen_and_what_cannot_be_seen_is_unknown(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid():
        pytest.skip("another user's memory: needs root")
    path = Path("/dev/shm", f"doctor-test-{os.getpid()}")
    path.write_bytes(b"")
    os.truncate(path, (1 << 27) if kind == "large" else 1 << 16)
    if kind in ("another user's", "replaced"):
        monkeypatch.setattr(os, "geteuid", lambda: 1789)
    try:
        argv = [sys.executable, "-c", SHARES, kind, str(path)]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin and process.stdout
            sums = []
            for number in (1, 1, 2):
                process.stdin.write(b"%d\n" % number)
                process.stdin.flush()
                process.stdout.readline()
                if kind in ("removed", "replaced"):
                    path.unlink(missing_ok=True)
                if kind == "replaced":
                    path.symlink_to("/dev/zero")
                maps = memory_maps(process.pid)
                sums.append(shared_sum(process.pid, maps, {}, {}, math.inf))  # type: ignore[no-untyped-call]
            process.kill()
    finally:
        path.unlink(missing_ok=True)
    if kind in ("large", "replaced", "datagrams"):
        assert sums == [-1, -1, -1]
    else:
        assert sums[0] == sums[1] != sums[2] and min(sums) >= 0


def test_shared_memory_is_read_no_longer_than_permitted(tmp_path: Path) -> None:
    """What is on a disk is read as far as it is in memory."""
    path = tmp_path / "shared"
    path.write_bytes(bytes(3 << 20))
    inode = path.stat().st_ino
    number, size = file_sum(str(path), inode, 1 << 26, math.inf)  # type: ignore[no-untyped-call]
    assert size == 3 << 20 or number == -1  # its file system may not tell what is in memory
    assert file_sum(str(path), inode, 1 << 26, 0.0)[0] == -1  # type: ignore[no-untyped-call]


FIRST = """
import os, subprocess, sys, time
if not os.fork():
    time.sleep(100)
finder = "from doctor.watch.attach.inspector.rank_finder import find_ranks; print([r['pid'] for r in find_ranks([])])"
subprocess.run([sys.executable, "-c", finder], env={"PYTHONPATH": sys.argv[1]}, check=True)
"""


def test_a_rank_that_is_the_first_process_of_its_container_and_its_loader_s_worker_are_no_two_ranks() -> None:
    """As in a pod, where the program is process 1: its worker has its rank in the environment, too."""
    if os.geteuid():
        pytest.skip("namespaces need root")
    argv = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", FIRST, os.getcwd()]
    environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    assert subprocess.run(argv, env=environ, capture_output=True, check=True).stdout == b"[1]\n"


def test_what_a_rank_has_left_running_is_no_second_rank() -> None:
    """A command behind ``&`` in a shell that has ended: its parent is the first process of the container."""
    if os.geteuid():
        pytest.skip("namespaces need root")
    program = FIRST.replace("if not os.fork():\n    time.sleep(100)", "subprocess.run(['sh', '-c', 'sleep 100 &'])")
    start = f"RANK=0 WORLD_SIZE=1 {shlex.join([sys.executable, '-c', program, os.getcwd()])}; true"
    argv = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", start]
    assert subprocess.run(argv, capture_output=True, check=True).stdout == b"[2]\n"


SPAWNED = ["python", "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork"]


@pytest.mark.parametrize(
    ("words", "rank", "port", "same"),
    [
        (["python", "train.py"], 1, "29777", True),
        (SPAWNED, 1, "29777", True),
        (SPAWNED, 2, "29777", False),
        (["python", "other.py"], 1, "29777", False),
        (["python", "other.py"], 1, "29500", True),
    ],
)
def test_a_process_for_checkpoints_with_a_group_of_its_own_is_no_second_rank(
    words: list[str], rank: int, port: str, same: bool
) -> None:
    """A program that a launcher starts with a port of its own is the rank, and not what is around it."""
    trainer = {"rank": (1, 3, 0), "group": 5, "words": ["python", "train.py"], "environ": {"MASTER_PORT": "29500"}}
    below = {"rank": (rank, 3, 0), "group": 6, "words": words, "environ": {"MASTER_PORT": port}}
    assert same_rank(trainer, below) is same  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("counted", [True, False])
def test_a_connection_whose_bytes_are_not_known_may_bring_a_message(counted: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        known = socket_bytes() if counted else {}  # type: ignore[no-untyped-call]
        assert shared_sum(os.getpid(), "", known, {}, math.inf) == (0 if counted else -1)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("function", "kind"), [("futex_do_wait", "futex"), ("__x64_sys_pause", ""), ("folio_wait_bit_common", ""),
                           ("do_wait", "wait"), ("do_wait_for_common", ""), ("kernel_clone", ""),
                           ("unix_stream_read_generic.isra.0", "recv"), ("__futex_wait", "futex")],
)  # fmt: skip
def test_in_which_functions_nothing_waits_uninterruptibly(function: str, kind: str) -> None:
    assert kernel_call(function) == kind


@pytest.mark.parametrize(
    ("scope", "root", "limited"),
    [(-1, False, False), (0, False, False), (1, False, True), (1, True, False), (2, True, False), (3, True, True)],
)
def test_yama_s_limit_is_said_where_it_binds_this_user(scope: int, root: bool, limited: bool) -> None:
    report = type(host())("node1", 4.0, False, True, [rank(0)], root, [], ptrace_scope=scope)
    assert bool(unseen_notes({"node1": report})) is limited


def test_where_a_process_spends_its_time_is_sampled() -> None:
    loop = "print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", loop], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()  # its start is spent in other libraries
        samples = start_samples([process.pid, 1 << 30], 2.0)
        if not samples:
            pytest.skip("the kernel permits no samples")
        rows: list[list[Any]] = []
        while not rows:
            rows = sampled_files([samples[process.pid]], memory_maps(process.pid))
        process.kill()
    assert list(samples) == [process.pid] and "python" in rows[0][0] and rows[0][1] > 0


def test_of_a_thread_that_hardly_gets_a_cpu_each_moment_is_sampled_and_no_more_than_fit() -> None:
    """As of ranks of MPI that yield on a busy host: at the usual rate a few samples of it show nothing."""
    loop = "import sys, time\nprint(flush=True)\nwhile True:\n    sum(range(30000))\n    time.sleep(float(sys.argv[1]))"
    for pause, least, most in (("0.2", LEAST_SAMPLES, 1024), ("0", 1000, 1024)):
        with subprocess.Popen([sys.executable, "-c", loop, pause], stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            usual, burst = start_samples([process.pid], 60.0), start_samples([process.pid], 0)
            if not burst:
                process.kill()
                pytest.skip("the kernel permits no samples")
            limit = time.monotonic() + 60
            while len(list(samples_of(burst[process.pid]))) < least and time.monotonic() < limit:
                time.sleep(0.2)
            buffers = [usual[process.pid], burst[process.pid]]
            rows = sampled_files(buffers if pause != "0" else buffers[1:], memory_maps(process.pid))
            time.sleep(0.5)
            assert len(list(samples_of(burst[process.pid]))) <= most
            process.kill()
        assert sum(count for _, count in rows) >= least and "python" in rows[0][0]


LOOPS = """
#include <pthread.h>
#include <time.h>
volatile int flag;
double values[1 << 16];
static void *counts(void *none) {
    volatile double sum = 0;
    for (long n = 0;; n++) sum += values[n & 65535];
    return none;
}
void looks(void) { while (!flag); }
void adds(void) { counts(0); }
long limited(void) {
    long tries = 0;
    while (!flag && tries < 1L << 60) tries++;
    return tries;
}
void beside(void) { pthread_t thread; pthread_create(&thread, 0, counts, 0); looks(); }
"""


@pytest.mark.parametrize(
    ("loop", "waits"),
    [
        ("loops.looks()", True),
        ("loops.adds()", False),
        ("loops.limited()", False),
        ("loops.beside()", False),
        ("while not is_done(values): pass", True),
        ("while True: sum(number * number for number in range(5000))", False),
        ("while True: values = json.loads(json.dumps({'first': values['first'] + 1}))", False),
    ],
)
def test_the_registers_of_a_loop_that_only_looks_at_memory_take_no_new_values(
    loop: str, waits: bool, tmp_path: Path
) -> None:
    """One that computes has others each time, and so has a thread for which the main one may wait on its CPU. One of
    Python has the same at the same instruction.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc")
    (tmp_path / "loops.c").write_text(LOOPS)
    library = str(tmp_path / "loops.so")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, f"{tmp_path}/loops.c", "-lpthread"], check=True)
    start = "import ctypes, json, sys; loops = ctypes.CDLL(sys.argv[1]); print(flush=True); values = {'first': 1}"
    call = f"{start}; is_done = lambda of: of.get('done')\n{loop}"
    with subprocess.Popen([sys.executable, "-c", call, library], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        time.sleep(0.5)
        looks = (values_of(process) for _ in range(3 if waits else 1))  # what else it does in between has other values
        few = any(values <= _FEW_VALUES for values in looks)
        process.kill()
    assert few is waits


def values_of(process: subprocess.Popen[bytes]) -> int:
    """The most values that a register of it has at one instruction."""
    threads = [process.pid, *running_threads(process.pid)]
    samples, burst = start_samples(threads, 4.0, REGISTERS), start_samples(threads, 0, REGISTERS)
    assert process.poll() is None
    if not samples:
        process.kill()
        pytest.skip("the kernel permits no samples")
    values, limit = 0, time.monotonic() + 60
    while time.monotonic() < limit and not (values and len(list(samples_of(burst[process.pid]))) >= LEAST_STATES):
        time.sleep(0.5)
        values = most_values([[burst[thread], samples[thread]] for thread in samples])
    assert values
    return values


def test_processes_that_may_not_be_read_are_said_to_be_there() -> None:
    report = type(host())("node1", 4.0, False, True, [], False, [], hidden={"ann": 8})
    assert find_odd({"node1": report}) == []
    [note] = unseen_notes({"node1": report})
    assert "8 Python processes of ann may not be read, and may be ranks" in note


@pytest.mark.parametrize(
    ("arguments", "starts", "is_none"),
    [
        (["/usr/bin/srun", "python3", "t.py"], True, True),
        (["python3", "-m", "torch.distributed.run", "t.py"], True, True),
        (["slurmstepd: [7.0]"], False, False),
        (["/usr/sbin/slurmstepd"], False, True),
        (["python3", "-c", "from multiprocessing.resource_tracker import main"], False, True),
        (["python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()"], False, False),
        (["sh", "/var/spool/slurmd/job00007/slurm_script"], False, False),
        (["python3", "train.py"], False, False),
        (["/venv/bin/python", "-u", "/job/train.py", "--launcher", "torchrun"], False, False),
        (["/usr/bin/python3", "/opt/torchrun", "train.py"], True, True),
        (["/usr/bin/python3", "/data/torchrun/train.py"], False, False),
        (["ray::Trainer.fit"], False, False),
    ],
)
def test_what_only_starts_ranks(arguments: list[str], starts: bool, is_none: bool) -> None:
    assert (starts_ranks(arguments), is_launcher(arguments)) == (starts, is_none)
