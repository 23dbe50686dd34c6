"""Processes, as /proc shows them."""

import os
import re
import signal


def read_text(path, limit=65536):
    """A small file's text; empty when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(fd, limit).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def read_table(path, limit):
    """Like `read_text`, for the tables of /proc that come in pieces."""
    pieces = []
    try:
        with open(path, "rb", 0) as file:
            while limit > 0:
                piece = file.read(min(limit, 1 << 16))
                if not piece:
                    break
                pieces.append(piece)
                limit -= len(piece)
    except OSError:
        pass
    return b"".join(pieces).decode("ascii", "replace")


def process_status(pid):
    """State letter, parent and session of a process; None when there is none."""
    text = read_text("/proc/%d/stat" % pid)
    fields = text[text.rfind(")") + 2 :].split()
    return (fields[0], int(fields[1]), int(fields[3])) if len(fields) > 4 else None


def thread_states(pid):
    """The state letters of all its threads."""
    try:
        names = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return []
    stats = [read_text("/proc/%d/task/%s/stat" % (pid, name)) for name in names]
    return [stat[stat.rfind(")") + 2 :][:1] for stat in stats]


def is_descendant(pid):
    """Whether a process comes from this one. A number out of another PID namespace would be a stranger's here."""
    for _ in range(50):
        status = process_status(pid) if pid > 1 else None
        if not status:
            return False
        if status[1] == os.getpid():
            return True
        pid = status[1]
    return False


def all_processes():
    """By pid: (state, parent, session) of all that can be seen."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            status = process_status(int(name))
            if status:
                table[int(name)] = status
    return table


def cpu_times(pid, all_threads):
    """Seconds that the main thread ran, that it waited for a CPU, and, if asked, that all threads waited together."""
    fields = read_text("/proc/%d/task/%d/schedstat" % (pid, pid)).split()
    if len(fields) < 2:
        return None
    ran, delay = int(fields[0]) / 1e9, int(fields[1]) / 1e9
    total_delay = delay
    if all_threads:
        try:
            names = os.listdir("/proc/%d/task" % pid)
        except OSError:
            names = ()
        for name in names:
            if name != str(pid):
                fields = read_text("/proc/%d/task/%s/schedstat" % (pid, name)).split()
                total_delay += int(fields[1]) / 1e9 if len(fields) > 1 else 0.0
    return ran, delay, total_delay


def cpu_ticks():
    """(ticks that the hypervisor took, ticks in which a CPU had nothing to do, all ticks) of this host so far."""
    fields = [int(word) for word in read_text("/proc/stat").split("\n", 1)[0].split()[1:9]]
    return (fields[7], fields[3], sum(fields)) if len(fields) == 8 else (0, 0, 0)


def child_pids(pid):
    """Processes that the main thread has forked."""
    path = "/proc/%d/task/%d/children" % (pid, pid)
    if os.path.exists(path):
        return [int(word) for word in read_text(path).split()]
    return [child for child, (_, parent, _) in all_processes().items() if parent == pid]


def can_dump_stack(pid):
    """Whether SIGUSR1 has a handler there: without one it would kill."""
    match = re.search(r"^SigCgt:\s*([0-9a-f]+)", read_text("/proc/%d/status" % pid), re.M)
    return bool(match and int(match.group(1), 16) >> (signal.SIGUSR1 - 1) & 1)


def accelerators():
    """By kind: the numbers of the accelerators that this host shows."""
    numbers = {}
    for kind, prefix in (("npu", "davinci"), ("gpu", "nvidia")):
        matches = (re.match(prefix + r"(\d+)$", name) for name in os.listdir("/dev"))
        numbers[kind] = sorted(int(match.group(1)) for match in matches if match)
    return numbers
