"""What the kernel does to ranks: control groups that freeze them, and the end of those that take too much memory."""

import errno
import os
import re

from doctor.smoke.programs.agent.procfs import read_text


def cgroup_folders(pid):
    """The folder by controller: "freezer", "memory", or "" for the unified tree."""
    folders = {}
    for line in read_text("/proc/%d/cgroup" % pid).splitlines():
        _, names, path = (line.split(":", 2) + ["", ""])[:3]
        for name in names.split(","):
            if name in ("memory", "freezer"):
                folders[name] = "/sys/fs/cgroup/%s%s" % (name, path)
        if not names:
            for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                if os.path.isdir(root + path) and os.path.exists(root + "/cgroup.controllers"):
                    folders[""] = root + path
    return folders


def oom_kills(folders):
    """How often the kernel killed for memory in these control groups."""
    total = 0
    for name, file in (("", "memory.events"), ("memory", "memory.oom_control")):
        if name in folders:
            match = re.search(r"^oom_kill (\d+)", read_text(folders[name] + "/" + file), re.M)
            total += int(match.group(1)) if match else 0
    return total


def is_frozen(pid, state):
    """Whether a cgroup freezer holds a process of this state."""
    if state not in "DS":
        return False
    function = read_text("/proc/%d/wchan" % pid)
    if "refrigerator" in function or "freezer" in function:
        return True
    folders = cgroup_folders(pid)
    if "freezer" in folders and read_text(folders["freezer"] + "/freezer.state").strip() == "FROZEN":
        return True
    return bool("" in folders and re.search(r"^frozen 1$", read_text(folders[""] + "/cgroup.events"), re.M))


class KernelLog:
    """The kernel's messages from now on, where we may read them."""

    def __init__(self):
        self.lines = []
        try:
            self.file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self.file, 0, os.SEEK_END)
        except OSError:
            self.file = None

    def oom_line(self, pid):
        """The line that says that this process was killed for memory, or nothing."""
        for _ in range(10000 if self.file is not None else 0):
            try:
                self.lines.append(os.read(self.file, 8192).decode("ascii", "replace"))
            except OSError as error:
                if error.errno != errno.EPIPE:  # EPIPE: lines were lost, the next one is there
                    break
        del self.lines[:-2000]
        for line in self.lines:
            if re.search(r"\bKilled process %d\b" % pid, line):
                return line.partition(";")[2].splitlines()[0][:300]
        return ""
