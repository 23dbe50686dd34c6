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


VISIBLE = {"npu": "ASCEND_RT_VISIBLE_DEVICES", "gpu": "CUDA_VISIBLE_DEVICES"}
"""The variable that shows a program some of the host's accelerators."""


def accelerators(environ=None):
    """By kind: the numbers of the accelerators that this host shows, and this environment (none: all of them).

    In the order of their ordinals: a library numbers what it sees from 0 on, in this order.
    """
    numbers = {}
    for kind, prefix in (("npu", "davinci"), ("gpu", "nvidia")):
        matches = (re.match(prefix + r"(\d+)$", name) for name in os.listdir("/dev"))
        devices = sorted(int(match.group(1)) for match in matches if match)
        text = None if environ is None else environ.get(VISIBLE[kind])
        numbers[kind] = devices if text is None else visible_devices(text, devices, kind)
    return numbers


def visible_devices(text, devices, kind):
    """Those of the devices which a variable of `VISIBLE` lets a program see; its numbers count them, from 0.

    Both libraries take what stands before the first entry that is no device: CANN, "Environment Variables",
    ASCEND_RT_VISIBLE_DEVICES (commas alone, ascending, or there are none); CUDA C++ Programming Guide, "CUDA
    Environment Variables", CUDA_VISIBLE_DEVICES, which may name a device by its UUID as well: which one that is does
    not show here, and it stands as the next that no other entry names.
    """
    entries, visible = text.split(","), []
    if kind == "gpu" and entries[0].strip().startswith(("GPU-", "MIG-")):
        return devices[: len(entries)]
    for entry in entries:
        entry = entry.strip() if kind == "gpu" else entry
        if not re.match(r"[0-9]{1,4}$", entry) or int(entry) >= len(devices) or devices[int(entry)] in visible:
            break
        visible.append(devices[int(entry)])
    return [] if kind == "npu" and visible != sorted(visible) else visible


def npu_model():
    """PCI device id of this host's NPUs (vendor 19e5, a processing accelerator), such as "d801"; "" without any."""
    folder = "/sys/bus/pci/devices"
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ""
    for name in names:
        vendor, kind, model = (
            read_text("%s/%s/%s" % (folder, name, part)).strip() for part in ("vendor", "class", "device")
        )
        if vendor == "0x19e5" and kind.startswith("0x1200"):
            return model[2:6]
    return ""
