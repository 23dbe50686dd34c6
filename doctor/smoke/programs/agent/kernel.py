"""What the kernel does to ranks: control groups that freeze them, and the end of those that take too much memory."""

import os
import re

from doctor.remote.runtime.host_texts import filled
from doctor.remote.runtime.kernel_waits import kernel_call
from doctor.remote.runtime.reading import read_text
from doctor.remote.runtime.streams import kernel_records
from doctor.smoke.programs.agent.procfs import PF_EXITING, stat_fields


def cgroup_folders(pid):
    """The folder by controller: "freezer", "memory", "pids", or "" for the unified tree."""
    folders = {}
    for line in read_text("/proc/%d/cgroup" % pid).splitlines():
        _, names, path = (line.split(":", 2) + ["", ""])[:3]
        for name in names.split(","):
            if name in ("memory", "freezer", "pids"):
                folders[name] = "/sys/fs/cgroup/%s%s" % (name, path)
        if not names:
            for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                if os.path.isdir(root + path) and os.path.exists(root + "/cgroup.controllers"):
                    folders[""] = root + path
    return folders


def is_exiting(pid):
    """Whether the process is in its end, which takes a while where much memory is to be given back.

    In control groups v1 such a process is shown in the root group (`proc_cgroup_show` in Linux's kernel/cgroup).
    """
    fields = stat_fields(pid)
    return len(fields) <= 6 or bool(int(fields[6]) & PF_EXITING)


def oom_kills(folders):
    """How often the kernel killed for memory in these control groups."""
    return count_in_groups(folders, (("", "memory.events"), ("memory", "memory.oom_control")), "oom_kill")


def oom_kills_of_host():
    """The kernel's own count of all that it killed for memory, within and without control groups; empty: not shown."""
    return re.findall(r"^oom_kill \d+$", read_text("/proc/vmstat"), re.M)


def refused_processes(folders):
    """How often these control groups, or groups below them, refused a new process or thread."""
    return count_in_groups(folders, (("", "pids.events"), ("pids", "pids.events")), "max")


def count_in_groups(folders, files, word):
    """The sum of what stands behind a word in files of control groups."""
    texts = [read_text(folders[name] + "/" + file) for name, file in files if name in folders]
    matches = [re.search("^%s ([0-9]+)" % word, text, re.M) for text in texts]
    return sum(int(match.group(1)) for match in matches if match)


SOFT_LIMITS = ("Max open files", "Max processes", "Max address space", "Max data size")
LACKS_MEMORY = re.compile(r"annot allocate memory|Errno 12\b|bad_alloc|MemoryError|can't allocate memory")


class Limits:
    """Limits of a rank, or of the agent, that may have ended it: sentences about those that were reached since."""

    def __init__(self, pid):
        self.pid = pid
        self.folders = cgroup_folders(pid)
        self.killed, self.refused = oom_kills(self.folders), refused_processes(self.folders)
        self.soft = dict.fromkeys(SOFT_LIMITS, "unknown")
        self.set_process_limits(process_limits(pid))

    def set_process_limits(self, text):
        """What `ulimit` shows, given /proc/PID/limits; what was known before stays where that is empty."""
        for name in SOFT_LIMITS:
            self.soft[name] = soft_limit(text, name) or self.soft[name]

    def sentences(self, error=""):
        """What is known, given also the error that a rank ended with."""
        sentences = []
        files, processes, *memory = (self.soft[name] for name in SOFT_LIMITS)
        refused = refused_processes(self.folders) - self.refused
        lacks_processes = re.search(r"Resource temporarily unavailable|can't start new thread|Errno 11\b", error)
        # A thread needs memory for its stack, and where that is refused the error is the same.
        lacks_memory = lacks_processes or LACKS_MEMORY.search(error)
        if refused <= 0 and lacks_memory and re.search(r"\d", "".join(memory)):
            sentences.append(filled("The limit of a process's memory in bytes: ulimit -v is {0}, -d is {1}.", *memory))
        elif refused > 0 or lacks_processes:
            text = (
                "The limit of processes and threads: pids.max of its control group is {0} ({1} refused), "
                "ulimit -u is {2}."
            )
            group_limit = self.group_value("pids.max") or "not set"
            sentences.append(filled(text, group_limit, max(0, refused), processes))
        if re.search(r"Too many open files|Errno 24\b", error):
            sentences.append(filled("The limit of open files: ulimit -n is {0}.", files))
        killed = oom_kills(self.folders) - self.killed
        if killed > 0:
            limit = self.group_value("memory.max") or self.group_value("memory.limit_in_bytes") or "unknown"
            single = "The kernel killed a process of its control group for memory; the limit is {0} bytes."
            several = "The kernel killed {0} processes of its control group for memory; the limit is {1} bytes."
            sentences.append(filled(several, killed, limit) if killed > 1 else filled(single, limit))
        return sentences

    def group_value(self, file):
        """One setting of the control groups; the first that is there."""
        for name in ("", "pids", "memory"):
            text = read_text(self.folders[name] + "/" + file).strip() if name in self.folders else ""
            if text:
                return text[:40]
        return ""


def process_limits(pid):
    """The text of /proc/PID/limits; empty where it cannot be read."""
    return read_text("/proc/%d/limits" % pid)


def soft_limit(text, name):
    """The soft limit of this name in the text of /proc/PID/limits; empty where it is not there."""
    match = re.search(r"^%s\s+(\S+)" % name, text, re.M)
    return match.group(1) if match else ""


def is_frozen(pid, state):
    """Whether a cgroup freezer holds a process of this state.

    Since Linux 6.1 a frozen process stays in the function that it slept in, and is shown as D (`TASK_FROZEN` in
    include/linux/sched.h): that tells it also within a container that does not show its control group. The freezer of
    control groups v2 holds a process on its way to a signal (`do_freezer_trap` in kernel/signal.c), where none sleeps.
    """
    if state not in "DS":
        return False
    function = read_text("/proc/%d/wchan" % pid, 64)
    if "refrigerator" in function or "freezer" in function or function.startswith("get_signal"):
        return True
    if state == "D" and kernel_call(function):
        return True
    folders = cgroup_folders(pid)
    if "freezer" in folders and read_text(folders["freezer"] + "/freezer.state").strip() == "FROZEN":
        return True
    return bool("" in folders and re.search(r"^frozen 1$", read_text(folders[""] + "/cgroup.events"), re.M))


class KernelMessages:
    """The kernel's messages from now on, where we may read them."""

    def __init__(self):
        self.lines = []
        try:
            self.file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self.file, 0, os.SEEK_END)
        except OSError:
            self.file = None

    def close(self):
        if self.file is not None:
            os.close(self.file)
            self.file = None

    def oom_line(self, pid):
        """The line that says that this process was killed for memory, or nothing."""
        try:
            records = kernel_records(self.file, 1 << 24, 1) if self.file is not None else ()
            self.lines.extend(record.decode("ascii", "replace") for record in records)
        except OSError:
            pass
        del self.lines[:-2000]
        for line in self.lines:
            if re.search(r"\bKilled process %d\b" % pid, line):
                return line.partition(";")[2].splitlines()[0][:300]
        return ""
