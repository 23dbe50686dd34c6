"""CPU quotas of control groups: which hold a process, and for how long they have held it back.

Part of both programs. Python 3.6: the agent runs by the host's own interpreter.
"""

import os
import re
from typing import List, Tuple

MAX_PARENTS = 8  # folders above a control group that may have a quota


def small_file(path: str) -> str:
    """The text of a small file of the kernel; empty when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(65536).decode("ascii", "replace")
    except OSError:
        return ""


def quota_folders(pid: int) -> List[str]:
    """The control groups with a CPU controller that hold a process, and those above them."""
    folders = []  # type: List[str]
    for line in small_file("/proc/" + str(pid) + "/cgroup").splitlines():
        _, names, path = [*line.split(":", 2), "", ""][:3]
        roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] if not names else []
        roots += ["/sys/fs/cgroup/" + name for name in ("cpu", names)] if "cpu" in names.split(",") else []
        for root in roots:
            parts = [part for part in path.split("/") if part]
            for depth in range(len(parts), max(0, len(parts) - MAX_PARENTS) - 1, -1):
                folder = "/".join([root, *parts[:depth]])
                if folder not in folders and os.path.exists(folder + "/cpu.stat"):
                    folders.append(folder)
    return folders


def has_quota(folder: str) -> bool:
    """Whether a control group is given less than all of the CPUs' time."""
    fields = (small_file(folder + "/cpu.max") or small_file(folder + "/cpu.cfs_quota_us")).split()
    return bool(fields) and fields[0].isdigit()


def throttling(folder: str) -> Tuple[int, int, float]:
    """(periods, periods in which the quota was used up, seconds held back) of a control group so far."""
    text = small_file(folder + "/cpu.stat")
    values = dict(re.findall(r"^(\w+) (\d+)$", text, re.M))
    seconds = int(values.get("throttled_usec", 0)) / 1e6 or int(values.get("throttled_time", 0)) / 1e9
    return int(values.get("nr_periods", 0)), int(values.get("nr_throttled", 0)), seconds
