"""What a process does, as /proc shows it: its state, where it waits, and what it has done since the last look."""

import os
import re
import struct
import time

from doctor.remote.runtime.kernel_waits import kernel_call
from doctor.remote.runtime.reading import link_at, names_in, read_text
from doctor.smoke.programs.agent.procfs import child_pids, cpu_times, process_status, stat_fields, thread_times
from doctor.smoke.programs.agent.system_calls import memory_at, thread_call
from doctor.watch.attach.inspector.python_stacks import thread_here

HAS_FD = ("read", "write", "recv", "send", "connect", "accept", "lock", "sync")
MOST_PROCESSES = 64
MOST_TASKS = 512
MOST_LISTED = 1024
MOST_RUNNING = 3
MOST_POLLED = 8
MOST_AWAITED = 64
EVERYTHING = 1 << 20
# Numbers of system calls, x86_64 and aarch64, whose arguments differ: no number is in two of the systems' sets.
POLL, SELECT, EPOLL = (7, 271, 73), (23, 270, 72), (232, 281, 22)
FUTEX_REALTIME, FUTEX_OPERATION, FUTEX_WAIT, ABSOLUTE = 256, 127, 0, 1
# Number of a system call -> the argument that has its limit, and how it is stated. x86_64, aarch64: none is in both.
OF_INTERPRETER = 0.01
LIMITS = {
    35: (0, "timespec"), 101: (0, "timespec"), 230: (2, "clock"), 115: (2, "clock"), 202: (3, "futex"),
    98: (3, "futex"), 7: (2, "milliseconds"), 232: (3, "milliseconds"), 281: (3, "milliseconds"),
    22: (3, "milliseconds"), 271: (2, "timespec"), 73: (2, "timespec"), 270: (4, "timespec"), 72: (4, "timespec"),
    23: (4, "timeval"), 128: (2, "timespec"), 137: (2, "timespec"),
}  # fmt: skip
HAVE_LIMITS = ("sleep", "poll", "futex", "pause")
SINGLE = ("read", "write", "recv", "send", "connect", "accept")  # calls whose first argument is a file


def system_call(pid):
    """(kind, what its file is) of the call that the main thread is in: ``running`` where it is in none, else ``?``."""
    kind, _, arguments = thread_call(pid, pid)
    if not kind:
        return call_by_function(pid), ""
    return kind, file_kind(pid, arguments[0] & 0xFFFFFFFF) if kind in HAS_FD and arguments else ""


def mutex_holder(pid, thread):
    """Which thread of a process holds the mutex that another waits for; 0: it waits for none, or that is not known.

    Words of a mutex of glibc: state, depth, owner (struct __pthread_mutex_s); 2: awaited (nptl/lowlevellock.h).
    """
    kind, _, arguments = thread_call(pid, thread)
    if kind != "futex" or arguments[1] & FUTEX_OPERATION != FUTEX_WAIT or arguments[2] != 2:
        return 0
    data = memory_at(pid, arguments[0], 12)
    state, _, owner = struct.unpack("=iii", data) if len(data) == 12 else (0, 0, 0)
    return thread_here(pid, owner) if state == 2 else 0


def seconds_left(pid, number, arguments):
    """Seconds until a call ends by its own limit, at most; infinite where it has none that can be read."""
    place, form = LIMITS.get(number, (-1, ""))
    if place < 0:
        return float("inf")
    value = arguments[place]
    if form == "milliseconds":
        milliseconds = value & 0xFFFFFFFF
        return float("inf") if milliseconds & 0x80000000 else milliseconds / 1000.0
    data = memory_at(pid, value, 16) if value else b""
    if len(data) < 16:
        return float("inf")
    whole, fraction = struct.unpack("=qq", data)
    seconds = whole + fraction / (1e6 if form == "timeval" else 1e9)
    if form == "clock" and arguments[1] & ABSOLUTE:
        return seconds - (time.monotonic() if arguments[0] else time.time())
    if form == "futex" and arguments[1] & FUTEX_OPERATION != FUTEX_WAIT:
        return seconds - (time.time() if arguments[1] & FUTEX_REALTIME else time.monotonic())
    return seconds


def ends_in(pid, thread):
    """Seconds until the call of a thread ends by its own limit; -1: it has none. One that waits for the interpreter
    looks again each 5 ms, and says so nothing.
    """
    kind, number, arguments = thread_call(pid, thread)
    seconds = seconds_left(pid, number, arguments) if kind in HAVE_LIMITS else float("inf")
    return -1.0 if seconds == float("inf") or (kind == "futex" and seconds < OF_INTERPRETER) else max(seconds, 0.0)


def sleeps_for(pid, thread, awaited):
    """Seconds until the first sleep ends of what a thread may wait for: of ``awaited`` processes, or of threads of its
    own; -1: nothing sleeps so. A program whose end it waits for may also wait with a limit, as for a network.
    """
    kind = thread_call(pid, thread)[0]
    counted = ("sleep", "poll") if kind == "wait" else ("sleep",)
    seconds = []
    is_for_others = kind in ("read", "recv", "poll", "futex", "wait", "lock")
    for process in (awaited if is_for_others else []) + [pid] * (kind == "futex"):
        threads = map(int, names_in("/proc/%d/task" % process, MOST_TASKS))
        seconds += [ends_in(process, each) for each in threads if thread_call(process, each)[0] in counted]
    return min([each for each in seconds if each >= 0] or [-1.0])


def awaited_files(pid, thread):
    """Numbers of the files that a thread waits for; -1 among them where it waits for some that cannot be read."""
    kind, number, arguments = thread_call(pid, thread)
    if not kind and thread == pid and call_by_function(pid) in ("recv", "poll", "connect"):
        return [-1]
    if len(arguments) < 2:
        return []
    if kind in SINGLE:
        return [arguments[0] & 0xFFFFFFFF]
    return polled_files(pid, number, arguments[0], arguments[1]) if kind == "poll" else []


def polled_files(pid, number, first, second, most=MOST_AWAITED):
    """Those of a call of poll, select or epoll_wait, by its first two arguments."""
    if number in EPOLL:
        text = read_text("/proc/%d/fdinfo/%d" % (pid, first & 0xFFFFFFFF), EVERYTHING)
        return [int(word) for word in re.findall(r"^tfd:\s*(\d{1,9})", text, re.M)[:most]]
    place, size = (second, min((first + 7) // 8, most)) if number in SELECT else (0, 0)
    if number in POLL:
        place, size = first, 8 * min(second, most)
    if not place or not size:
        return []
    data = memory_at(pid, place, size)
    if number in SELECT:
        numbers = [8 * index + bit for index, byte in enumerate(bytearray(data)) for bit in range(8) if byte >> bit & 1]
    else:
        numbers = [entry[0] for entry in struct.iter_unpack("=iHH", data[: len(data) // 8 * 8])]
    return numbers if data else [-1]


def awaited_links(pid, thread=0):
    """What the call of a thread is about, as ``socket:[7]``, ``pipe:[8]`` or a path; nothing of many at once."""
    numbers = awaited_files(pid, thread or pid)
    links = [link_at("/proc/%d/fd/%d" % (pid, number)) for number in numbers if len(numbers) <= MOST_POLLED]
    return [link for link in links if link]


def call_by_function(pid):
    """The kind of the call by the kernel's function that the main thread waits in; ``?`` where that is not known."""
    if (process_status(pid) or ())[:1] == ("R",):
        return "running"
    function = read_text("/proc/%d/task/%d/wchan" % (pid, pid), 64)
    return kernel_call(function) or "?"


def file_kind(pid, number):
    """What an open file is: terminal, fifo, pipe, socket, or its path."""
    target = link_at("/proc/%d/fd/%d" % (pid, number))
    if not target:
        return "?"
    standard = "stdin " if number == 0 else ""
    for prefix in ("pipe:", "socket:"):
        if target.startswith(prefix):
            return standard + prefix[:-1]
    return (standard + target)[:200]


def status_number(pid, name, unknown=0):
    """A number that /proc/PID/status has: of ``Threads``, of ``TracerPid``, which is 0 without a debugger."""
    match = re.search(r"^%s:\s*([0-9]+)" % name, read_text("/proc/%d/task/%d/status" % (pid, pid)), re.M)
    return int(match.group(1)) if match else unknown


def running_threads(pid):
    """The first threads of a process, but for its main one, that are on a CPU or wait for one."""
    threads = thread_times(pid, MOST_LISTED).items()
    return [thread for thread, (_, _, state, _) in threads if thread != pid and state == "R"][:MOST_RUNNING]


def process_times(pid, first=11):
    """Seconds that all threads of a process ran; ``first`` 13: that its children ran which have ended."""
    fields = stat_fields(pid)[first : first + 2]
    return sum(map(int, fields)) / float(os.sysconf("SC_CLK_TCK")) if len(fields) == 2 else -1.0


def process_name(pid):
    """Its number and its program's name."""
    return "pid %d (%s)" % (pid, read_text("/proc/%d/comm" % pid, 64).strip()[:40])


def process_tree(pid):
    """A process and those that any of its threads has started, and these in turn."""
    pids = [pid]
    for process in pids:
        pids += child_pids(process, names_in("/proc/%d/task" % process, MOST_TASKS))[: MOST_PROCESSES - len(pids)]
    return pids


def descendants_ran(pid):
    """Seconds that the processes below one have run, those that have ended included, or waited for a CPU."""
    total = process_times(pid, 13)
    for child in process_tree(pid)[1:]:
        total += max(process_times(child), 0.0) + max(process_times(child, 13), 0.0)
        total += (cpu_times(child, False) or (0.0, 0.0))[1]
    return total


def transferred(pid):
    """Bytes that a process has read and written, of files, pipes and sockets alike; -1 where that is not told."""
    numbers = re.findall(r"^[rw]char:\s*([0-9]+)", read_text("/proc/%d/io" % pid, 1024), re.M)
    return sum(map(int, numbers)) if numbers else -1


def look(pid, by_socket=()):
    """One look at a process; None when it is gone. ``by_socket``: bytes that TCP connections have carried, by inode."""
    status = process_status(pid)
    if not status or status[0] in "ZX":
        return None
    kind, file = system_call(pid)
    times = cpu_times(pid, False)
    holders = [pid, mutex_holder(pid, pid)]
    while holders[-1] and holders[-1] not in holders[:-1]:
        holders.append(mutex_holder(pid, holders[-1]))
    awaited = [by_socket[link[8:-1]] for link in awaited_links(pid) if link[8:-1] in by_socket]
    return {
        "state": status[0],
        "wchan": read_text("/proc/%d/task/%d/wchan" % (pid, pid), 64).strip("0\n"),
        "call": kind,
        "file": file,
        "ran": times[0] if times else -1.0,
        "switches": status_number(pid, "voluntary_ctxt_switches", -1),
        "all_ran": process_times(pid),
        "bytes": transferred(pid),
        "awaited": sum(awaited) if awaited else -1,
        "holder": holders[1],
        "deadlocked": bool(holders[-1]),
    }


def ptrace_scope():
    """The kernel's limit on looking into other processes (Yama): 0 to 3; -1 where there is none.

    Source: Linux, Documentation/admin-guide/LSM/Yama.rst. From 1 on, a user's process may read the system call, the
    kernel stack and the memory only of its own children; 3 binds root too.
    """
    text = read_text("/proc/sys/kernel/yama/ptrace_scope", 16).strip()
    return int(text) if text in ("0", "1", "2", "3") else -1


def children_of(pid):
    """[pid, state, call, file] of the processes below one, its loader workers among them."""
    rows = []
    for child in process_tree(pid)[1:]:
        status = process_status(child)
        if status:
            kind, file = system_call(child)
            rows.append([child, status[0], kind, file])
    return rows
