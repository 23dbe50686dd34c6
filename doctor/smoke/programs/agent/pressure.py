"""What keeps ranks from running: CPU quotas of their control groups, other tasks, the hypervisor, memory and disks."""

import re

from doctor.smoke.programs.agent.procfs import cpu_ticks, read_text
from doctor.smoke.programs.cpu_quota import quota_folders, throttling


def stalls():
    """By resource: percent of the last 10 s in which some task waited for it (PSI); empty where the kernel has none."""
    shares = {}
    for name in ("cpu", "memory", "io"):
        match = re.match(r"some avg10=([0-9.]{1,8})", read_text("/proc/pressure/" + name))
        if match:
            shares[name] = float(match.group(1))
    return shares


class Pressure:
    """Compares with what was read when a rank, or the host, was first observed."""

    def __init__(self):
        self.ticks = cpu_ticks()
        self.before = {}  # rank -> folder -> throttling

    def observe(self, rank, pid):
        """Remembers the control groups that a rank is in, once for each."""
        if not self.before:
            self.ticks = cpu_ticks()
        before = self.before.setdefault(rank, {})
        for folder in quota_folders(pid):
            if folder not in before:
                before[folder] = throttling(folder)

    def report(self, pids):
        """For the controller's `pressure`: by rank what its quota and other tasks took, and what the host lacked."""
        ranks = {}
        for rank, pid in pids.items():
            worst = (0, 0, 0.0)
            for folder, first in self.before.get(rank, {}).items():
                now = throttling(folder)
                since = tuple(max(0, now[i] - first[i]) for i in range(3))
                worst = max(worst, since, key=lambda some: some[2])
            fields = read_text("/proc/%d/schedstat" % pid).split()
            ran, waited = (int(fields[0]) / 1e9, int(fields[1]) / 1e9) if len(fields) > 1 else (0.0, 0.0)
            ranks[str(rank)] = [worst[0], worst[1], round(worst[2], 3), round(ran, 3), round(waited, 3)]
        now = cpu_ticks()
        stolen, idle, ticks = (now[i] - self.ticks[i] for i in range(3))
        steal, idle = (round(part / ticks, 4) if ticks > 0 else 0.0 for part in (stolen, idle))
        return {"ranks": ranks, "steal": steal, "idle": idle if self.before else 0.0, "stalls": stalls()}
