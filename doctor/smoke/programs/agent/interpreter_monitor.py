"""An interpreter that starts: what it does until it has imported what its ranks need."""

from doctor.smoke.programs.agent.kernel import is_frozen
from doctor.smoke.programs.agent.procfs import child_pids, read_text

IDLE = 0.5  # seconds without any work after which an interpreter is reported
UNOBSERVED = 1.0  # seconds between two observations from which on the agent was held back
MOST_PROCESSES = 64


class InterpreterMonitor:
    """One interpreter, with the processes that a wrapper of it starts.

    `rank` is -1 for the process that all ranks come from. `state` is "R" where it works, "T" stopped, "t" traced,
    "F" frozen, else the letter of /proc. `idle` are the seconds in which none of its processes ran, could run, or read
    anything.
    """

    def __init__(self, pid, rank):
        self.pid, self.rank = pid, rank
        self.state, self.waits_for = "R", ""
        self.work, self.worked_at, self.idle = None, 0.0, 0.0
        self.observed_at = 0.0

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
        """For the controller's `starting`."""
        return [self.rank, self.state, round(self.idle, 2), self.waits_for]


class StartingInterpreters:
    """Interpreters that have not imported everything yet, by their process number."""

    def __init__(self):
        self.by_pid = {}

    def add(self, pid, rank):
        self.by_pid[pid] = InterpreterMonitor(pid, rank)

    def remove(self, pid):
        """Whether it was one of them."""
        return self.by_pid.pop(pid, None) is not None

    def has_imported(self, rank):
        """The interpreter of this rank is through; -1 for that of all ranks."""
        self.by_pid = dict((pid, monitor) for pid, monitor in self.by_pid.items() if monitor.rank != rank)

    def report(self, clock):
        """What the controller is told of those that do nothing; empty where none is idle."""
        for monitor in self.by_pid.values():
            monitor.observe(clock)
        idle = [monitor.report() for monitor in self.by_pid.values() if monitor.idle > IDLE]
        return {"starting": idle} if idle else {}
