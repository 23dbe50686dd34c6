"""The file that a process is held up by: its path, its mount, since when, and who else hangs there."""

import os
import platform
import re

from doctor.remote.runtime.kernel_waits import kernel_wait
from doctor.remote.runtime.reading import link_at, names_in, read_text
from doctor.smoke.programs.agent.procfs import process_status, stat_fields
from doctor.smoke.programs.agent.system_calls import PAGE, memory_at, memory_maps, thread_call

# Number of a system call -> which of its arguments points to a path. x86_64; aarch64.
PATH_X86 = {2: 0, 4: 0, 6: 0, 21: 0, 82: 0, 83: 0, 87: 0, 257: 1, 258: 1, 262: 1, 263: 1, 269: 1, 332: 1, 137: 0}
PATH_ARM = {56: 1, 34: 1, 79: 1, 35: 1, 48: 1, 291: 1, 43: 0}
FILE_X86 = {0, 1, 17, 18, 19, 20, 5, 73, 72, 74, 75, 77, 138, 217, 285, 295, 296}
FILE_ARM = {63, 64, 67, 68, 65, 66, 80, 32, 25, 82, 83, 46, 44, 61, 47, 69, 70}
AT_FDCWD = 0xFFFFFF9C
MOST_BESIDE = 16
MOST_MOUNTS = 4096
MOST_MAPPED = 512
MOST_WAITING_THREADS = 512
OF_THE_KERNEL = ("overlay", "tmpfs", "ramfs", "rootfs", "hugetlbfs", "zfs", "proc", "sysfs", "devtmpfs", "aufs")
NO_FILE = re.compile(r"^(?:pipe|socket|anon_inode|net|memfd)[:\[]|^/memfd:|^/dev/|^/proc/|^/sys/")


def awaited_path(pid):
    """The path that the main thread's system call is about; empty where it is about none, or may not be read."""
    kind, number, arguments = thread_call(pid, pid)
    if kind == PAGE:
        return mapped_path(pid)
    if len(arguments) < 3:
        return ""
    arm = platform.machine() == "aarch64"
    if number in (FILE_ARM if arm else FILE_X86):
        return link_target(pid, "fd/%d" % (arguments[0] & 0xFFFFFFFF))
    place = (PATH_ARM if arm else PATH_X86).get(number)
    if place is None:
        return ""
    path = text_at(pid, arguments[place])
    if path and not path.startswith("/"):
        relative = place == 1 and arguments[0] & 0xFFFFFFFF != AT_FDCWD
        folder = link_target(pid, "fd/%d" % (arguments[0] & 0xFFFFFFFF) if relative else "cwd")
        path = os.path.join(folder, path) if folder else path
    return path


def mapped_path(pid):
    """The file that a process has mapped from a file system of elsewhere; of several, their mount. Empty: none, or
    several mounts. The kernel does not show at which address a page was missing.
    """
    paths = set(re.findall(r"^\S+ ..-. \S+ \S+ [1-9]\d* +(/[^\n]*)$", memory_maps(pid), re.M))
    paths = set(path for path in paths if ".so" not in path)
    mounts = dict((path, mount_of(pid, path)) for path in sorted(paths)[:MOST_MAPPED] if not NO_FILE.search(path))
    far = dict((path, mount[0]) for path, mount in mounts.items() if mount and is_elsewhere(*mount))
    if len(far) == 1:
        return next(iter(far))
    return far.popitem()[1] if len(set(far.values())) == 1 else ""


def is_elsewhere(_, kind, source):
    """Whether a mount is served by a program or another host, and not by this kernel from a device or memory."""
    return not source.startswith("/dev/") and kind not in OF_THE_KERNEL


def link_target(pid, name):
    """Where a link of a process leads that is a file of a file system; empty for pipes, sockets and devices."""
    target = link_at("/proc/%d/%s" % (pid, name))
    return "" if NO_FILE.search(target) else target


def text_at(pid, address):
    """A path in the memory of a process; empty where it cannot be read. It may stand at the end of a mapping."""
    for size in (4096, 4096 - address % 4096):
        text, end, _ = memory_at(pid, address, size).partition(b"\0")
        if end:
            return text.decode("utf-8", "replace")
    return ""


def mount_of(pid, path):
    """[mount point, type, source] of the file system that a path of a process lies on; None where it is not known."""
    best = None
    for line in read_text("/proc/%d/mountinfo" % pid, 4 << 20).splitlines()[:MOST_MOUNTS]:
        before, dash, right = line.partition(" - ")
        fields, kind = before.split(), right.split()
        if not dash or len(fields) < 5 or len(kind) < 2:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best[0])):
            best = [point[:200], kind[0][:40], kind[1][:200]]
    return best


def seconds_off_cpu(pid):
    """Seconds since a thread last ran; -1 where the kernel does not tell."""
    last, now = last_ran(pid), scheduler_clock(pid)
    return max(0.0, now - last) if last is not None and now is not None else -1.0


def last_ran(pid):
    """When a thread last ran, in seconds of its CPU's scheduler clock; None where the kernel does not tell.

    The kernel writes 0 for one that it has moved to another CPU and that has not run there yet.
    """
    text = read_text("/proc/%d/task/%d/sched" % (pid, pid))
    match = re.search(r"^se\.exec_start\s*:\s*([0-9]+)", text, re.M)
    return int(match.group(1)) / 1000.0 or None if match else None


def scheduler_clock(pid):
    """Now, by the scheduler clock of the CPU that a thread last ran on; None where this process may not run there.

    Each CPU has its own: it leaves out what interrupts and other guests took, which differs by minutes between CPUs.
    """
    fields = stat_fields(pid)
    if len(fields) < 37:
        return None
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, [int(fields[36])])
        return last_ran(os.getpid())
    except (OSError, ValueError):
        return None
    finally:
        os.sched_setaffinity(0, allowed)


def file_wait(pid):
    """What a process waits for in a file system, as a dictionary; None where it is in no such call.

    No file is opened: who touches a mount that hangs hangs with it.
    """
    path = awaited_path(pid)
    mount = mount_of(pid, path) if path.startswith("/") else None
    if not path:
        return None
    return {
        "path": path[:300], "mount": mount or [], "seconds": seconds_off_cpu(pid), "beside": [],
        "call": thread_call(pid, pid)[0], "function": wait_function(pid),
    }  # fmt: skip


def wait_function(pid):
    """The function of the kernel that a process or thread sleeps in."""
    return read_text("/proc/%s/wchan" % pid, 64).strip("0\n")


def held_up_beside(waits):
    """Adds to each wait who else on the host hangs in the same mount: [pid, name], in an uninterruptible sleep."""
    points = dict((wait["mount"][0], []) for wait in waits.values() if wait["mount"])
    for name in os.listdir("/proc") if points else ():
        if name.isdigit() and int(name) not in waits and is_held_up(int(name)):
            path = awaited_path(int(name))
            mount = mount_of(int(name), path) if path.startswith("/") else None
            if mount and len(points.get(mount[0], [0] * MOST_BESIDE)) < MOST_BESIDE:
                points[mount[0]].append([int(name), read_text("/proc/%s/comm" % name, 64).strip()[:40]])
    for wait in waits.values():
        if wait["mount"]:
            wait["beside"] = points[wait["mount"][0]]


def lasting_file_waits(owners):
    """By owner, what the first of its processes, or of their threads, has waited for in a file system for a second.

    `owners`: owner -> its processes. A thread or a loader worker keeps the rank waiting that waits for it.
    """
    waits = {}
    for owner, pids in sorted(owners.items()):
        threads = [int(name) for pid in pids for name in names_in("/proc/%d/task" % pid, MOST_WAITING_THREADS)]
        for thread in list(pids) + [thread for thread in threads if thread not in pids]:
            wait = file_wait(thread) if is_held_up(thread) else None
            if wait and owner not in waits and (wait["seconds"] >= 1 or wait["seconds"] < 0):
                waits[owner] = dict(wait, of=thread)
    held_up_beside(dict((wait.pop("of"), wait) for wait in waits.values()))
    return waits


def is_held_up(pid):
    """Whether a process or thread sleeps so that no signal wakes it, or for a file system that may not answer."""
    wait = kernel_wait(wait_function(pid))
    return (process_status(pid) or "?")[0] == "D" or (wait is not None and wait[0].startswith("file."))
