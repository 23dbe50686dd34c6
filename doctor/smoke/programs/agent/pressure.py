"""What keeps ranks from running: CPU quotas of their control groups, other tasks, the hypervisor, memory and disks."""

import re
import time

from doctor.remote.runtime.netlink import neighbour_table
from doctor.remote.runtime.reading import read_text
from doctor.smoke.programs.agent.procfs import cpu_ticks
from doctor.smoke.programs.cpu_quota import quota_folders, throttling

PRESSURE_PAUSE, PRESSURE_SHARE = 0.4, 20  # least seconds between two readings; how many times as long as one
MOST_SPINS, MOST_ENDS = 8, 32  # of a rank, and of the moments at which one of its loops went on


def stalls():
    """By resource: percent of the last 10 s in which some task waited for it (PSI); empty where the kernel has none."""
    shares = {}
    for name in ("cpu", "memory", "io"):
        match = re.match(r"some avg10=([0-9.]{1,8})", read_text("/proc/pressure/" + name))
        if match:
            shares[name] = float(match.group(1))
    return shares


class Pressure:
    """Compares with what was read when a rank, or the host, was first observed. Ranks that have ended count as well."""

    def __init__(self):
        self.ticks = self.latest_ticks = cpu_ticks()
        self.before = {}  # rank -> folder -> throttling
        self.latest = {}  # rank -> what `report` says of it, as of its last observation
        self.waits = {}  # rank -> [seconds that it waited for a CPU while observed, of them beside idle CPUs, mark]
        self.spins = {}  # rank -> what it emitted of loops without a call
        self.next_reading = 0.0
        self.neighbours = neighbour_table()

    def note_spin(self, rank, event):
        """A loop of a rank: the seconds that it ran, and was to run, and when it went on."""
        numbers = [event.get(name) for name in ("ran", "seconds")]
        ends, spins = event.get("ends"), self.spins.setdefault(rank, [])
        fit = isinstance(ends, list) and all(isinstance(value, (int, float)) for value in numbers + ends[:MOST_ENDS])
        if fit and len(spins) < MOST_SPINS:
            spins.append(numbers + [ends[:MOST_ENDS]])

    def watch(self, monitors, clock):
        """Observes ranks as they begin, and all of them now and then: a rank may be moved to another control group."""
        started, due = time.process_time(), clock >= self.next_reading
        if due:
            self.latest_ticks = cpu_ticks()
        for monitor in monitors:
            if monitor.pid and not monitor.ended and (due or monitor.rank not in self.before):
                self.observe(monitor.rank, monitor.pid)
        if due:
            self.next_reading = clock + max(PRESSURE_PAUSE, PRESSURE_SHARE * (time.process_time() - started))

    def observe(self, rank, pid, schedstat=""):
        """Reads what a rank ran and waited; the control groups that it is in are remembered, once for each.

        `schedstat`: the text of the kernel's file, where the process is gone by now.
        """
        if not self.before:
            self.ticks = self.latest_ticks = cpu_ticks()
        before = self.before.setdefault(rank, {})
        for folder in quota_folders(pid) if pid else ():
            if folder not in before:
                before[folder] = throttling(folder)
        worst = (0, 0, 0.0)
        for folder, first in before.items():
            now = throttling(folder)
            since = tuple(max(0, now[i] - first[i]) for i in range(3))
            worst = max(worst, since, key=lambda some: some[2])
        fields = (schedstat or (read_text("/proc/%d/schedstat" % pid) if pid else "")).split()
        ran, waited = self.latest.get(rank, [0, 0, 0.0, 0.0, 0.0])[3:]
        if len(fields) > 1 and fields[0].isdigit() and fields[1].isdigit():
            ran, waited = int(fields[0]) / 1e9, int(fields[1]) / 1e9
        self.latest[rank] = [worst[0], worst[1], round(worst[2], 3), round(ran, 3), round(waited, 3)]
        self.note_wait(rank, waited)

    def note_wait(self, rank, waited):
        """Whether CPUs of the host were idle while a rank waited for one, and not at another time.

        `waited`: seconds, so far. What it waited before it was first observed counts for nothing.
        """
        sums = self.waits.setdefault(rank, [0.0, 0.0, waited, self.latest_ticks])
        _, idle, ticks = (self.latest_ticks[i] - sums[3][i] for i in range(3))
        if ticks > 0:
            more = max(0.0, waited - sums[2])
            self.waits[rank] = [sums[0] + more, sums[1] + more * idle / ticks, waited, self.latest_ticks]

    def report(self, pids):
        """For the controller's `pressure`: by rank what its quota and other tasks took, and what the host lacked.

        `pids`: of the ranks that have not ended.
        """
        self.latest_ticks = cpu_ticks()
        for rank, pid in pids.items():
            self.observe(rank, pid)
        stolen, _, ticks = (self.latest_ticks[i] - self.ticks[i] for i in range(3))
        beside = dict((str(rank), round(sums[1] / sums[0], 4)) for rank, sums in self.waits.items() if sums[0] > 0)
        ranks = dict((str(rank), figures) for rank, figures in self.latest.items())
        most, without_room = neighbour_table()
        return {
            "ranks": ranks,
            "neighbours": [most, max(0, without_room - self.neighbours[1])],
            "steal": round(stolen / ticks, 4) if ticks > 0 else 0.0,
            "idle": beside,
            "stalls": stalls(),
            "spins": dict((str(rank), spins) for rank, spins in self.spins.items()),
        }
