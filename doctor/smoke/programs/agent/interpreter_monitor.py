"""An interpreter that starts: what it does until it has imported what its ranks need."""

import os

from doctor.remote.runtime.reading import read_text
from doctor.smoke.programs.agent.kernel import is_frozen
from doctor.smoke.programs.agent.procfs import child_pids

IDLE = 0.5  # seconds without any work after which an interpreter is reported
BUSY = 10.0  # seconds of CPU from which on it is reported, too
TICKS = os.sysconf("SC_CLK_TCK")
UNOBSERVED = 1.0  # seconds between two observations from which on the agent was held back
MOST_PROCESSES = 64


class InterpreterMonitor:
    """One interpreter, with the processes that a wrapper of it starts.

    `rank` is -1 for the process that all ranks come from. `state` is "R" where it works, "T" stopped, "t" traced,
    "F" frozen, else the letter of /proc. `idle` are the seconds in which none of its processes ran, could run, or read
    anything. `cpu` are the seconds that they, and their children that have ended, ran.
    """

    def __init__(self, pid, rank):
        self.pid, self.rank = pid, rank
        self.state, self.waits_for = "R", ""
        self.work, self.worked_at, self.idle = None, 0.0, 0.0
        self.observed_at = self.cpu = 0.0

    def observe(self, clock):
        if self.work:  # of a time in which the agent itself did not run nothing is known
            self.worked_at += max(0.0, clock - self.observed_at - UNOBSERVED)
        self.observed_at = clock
        pids = self.processes()
        stats = [read_text("/proc/%d/stat" % pid) for pid in pids]
        fields = [stat[stat.rfind(")") + 2 :].split() or ["X"] for stat in stats]
        states = [row[0] for row in fields]
        work = [row[11:13] for row in fields], [read_text("/proc/%d/io" % pid) for pid in pids]
        if work != self.work or "R" in states:
            self.work, self.worked_at = work, clock
        self.idle = clock - self.worked_at
        self.cpu = sum(int(ticks) for row in fields for ticks in row[11:15]) / TICKS
        self.state, self.waits_for = "R", ""
        if self.idle > IDLE:
            stopped = [state for state in states if state in "Tt"]
            frozen = ["F" for number, pid in enumerate(pids) if is_frozen(pid, states[number])]
            self.state = (frozen + stopped + states[-1:])[0]
            self.waits_for = read_text("/proc/%d/wchan" % pids[-1], 64).strip("0")

    def processes(self):
        """Its own number and those of all that come from it, the last started last."""
        pids = [self.pid]
        for pid in pids:
            if len(pids) < MOST_PROCESSES:
                pids += child_pids(pid)
        return pids

    def report(self):
        return [self.rank, self.state, round(self.idle, 2), self.waits_for, round(self.cpu, 1)]


class StartingInterpreters:
    """Interpreters that have not imported everything yet, by their process number."""

    def __init__(self):
        self.by_pid = {}

    def add(self, pid, rank):
        self.by_pid[pid] = InterpreterMonitor(pid, rank)

    def remove(self, pid):
        return self.by_pid.pop(pid, None) is not None

    def has_imported(self, rank):
        self.by_pid = dict((pid, monitor) for pid, monitor in self.by_pid.items() if monitor.rank != rank)

    def report(self, clock):
        """The report to the controller on those that do nothing, or much; empty where there is none."""
        for monitor in self.by_pid.values():
            monitor.observe(clock)
        reports = [each.report() for each in self.by_pid.values() if each.idle > IDLE or each.cpu > BUSY]
        return {"starting": reports} if reports else {}
