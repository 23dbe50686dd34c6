"""One rank, watched from outside."""

import os
import signal
import time

from doctor.remote.runtime.host_texts import filled
from doctor.remote.runtime.reading import read_text
from doctor.smoke.programs.agent.flight_recorder import COLLECTIVE, INPUT, FlightRecorder
from doctor.smoke.programs.agent.kernel import (
    Limits,
    cgroup_folders,
    is_exiting,
    is_frozen,
    oom_kills,
    oom_kills_of_host,
)
from doctor.smoke.programs.agent.procfs import (
    child_pids,
    cpu_times,
    gloo_threads,
    is_descendant,
    process_status,
    thread_states,
    thread_times,
)

SEND = 0.05  # seconds between two lines about the ranks, at least
OOM_SECONDS = 5.0  # from the kernel's choice of a process to its end, on a busy host
DISK_SECONDS = 10.0  # that a disk may keep a rank waiting before the wait counts as the rank's own
MUCH_OUTPUT = 65536  # bytes printed within a call: a rank that waits prints a line now and then at most
ASKS = 2000  # turns of a loader worker within one batch, each of `LITTLE` seconds at most: it asks for what never comes
LITTLE = 0.0002
HEADLESS = 2.0  # seconds after which threads without a main one are no end that is under way
STUCK = 0.1  # a rank that has not moved for so long is looked at through /proc


def helper_times(pid, with_loaders):
    """By thread of a rank's loader workers, and of the rank beside its main one: what `thread_times` has of it."""
    threads = dict(((pid, thread), times) for thread, times in thread_times(pid).items() if thread != pid)
    for child in child_pids(pid) if with_loaders else ():
        threads.update(((child, thread), times) for thread, times in thread_times(child).items())
    return threads


def rank_processes(monitors, starting):
    """By rank, -1 for the process that all come from: its processes, loader workers and what a wrapper started."""
    alive = [monitor for monitor in monitors if monitor.pid and not monitor.ended]
    by_rank = dict((monitor.rank, monitor.processes()) for monitor in starting)
    by_rank.update((monitor.rank, [monitor.pid] + child_pids(monitor.pid)) for monitor in alive)
    return by_rank


class RankMonitor:
    """A rank's flight recorder and what /proc shows of its process.

    Seconds: `effective` is the time without progress, less the rank's waiting for a CPU or a disk; `cpu` what it ran
    of it.
    `state` is the process's state letter, "F" frozen and "X" ended. `dead`, `error`, `secondary`, `oom`, `waits_for`,
    `cpu` and `effective` are fields of the controller's Snapshot.
    """

    def __init__(self, rank, memory, offset):
        self.rank, self.recorder = rank, FlightRecorder(memory, offset)
        self.pid = 0
        self.base = self.base_stamp = None  # CPU times at the first observation since a stamp
        self.unobserved = 0.0  # seconds between the stamp and that observation
        self.cpu_times, self.moved = None, 0.0  # what it ran and waited, and when that last changed
        self.disk_delay = 0.0  # in uninterruptible sleep since the stamp
        self.helper_times, self.helper_delay = {}, 0.0  # of the last observation; since the stamp
        self.helper_base = {}  # as `helper_times`, of before
        self.worker_ran, self.asks = 0.0, False  # since then: CPU seconds of one worker; whether one `ASKS`
        self.gloo, self.gloo_read_at = set(), 0.0  # its threads of gloo, while it moved
        self.reported = (-1, "")
        self.state, self.waits_for = "R", ""
        self.observed_at, self.helpers_read_at = 0.0, 0.0
        self.effective = self.cpu = 0.0
        # A rank begins in the agent's control groups, and may be killed for memory before it is first observed.
        self.cgroups, self.cgroups_read_at = cgroup_folders(os.getpid()), 0.0
        self.oom_count, self.oom_at = oom_kills(self.cgroups), -OOM_SECONDS
        self.begun_in, self.killed_before = self.cgroups, self.oom_count
        self.killed_on_host, self.oom = oom_kills_of_host(), None
        self.limits = None
        self.dead = self.error = ""
        self.ended = self.secondary = False
        self.carried, self.carried_stamp, self.carried_at = None, None, 0.0
        self.printed, self.printed_stamp, self.printed_at = 0, None, 0.0
        self.tail = b""

    def read_recorder(self):
        if not self.pid and not self.ended:
            pid = self.recorder.writer()
            if pid is None:
                return
            self.pid = pid if is_descendant(pid) else 0
        if self.recorder.read():
            self.effective = self.cpu = 0.0
            if self.state != "X":
                self.state, self.waits_for = "R", ""

    def age(self, clock):
        return self.recorder.age(clock)

    def waits_in_collective(self):
        latest = self.recorder.latest
        return bool(latest) and latest.state == COLLECTIVE

    def note_traffic(self, carried, clock):
        """`carried`: bytes that the rank's connections have carried so far; None where that is not known."""
        stamp = self.recorder.stamp
        if carried is None:
            self.carried = None
        elif self.carried_stamp != stamp or carried != self.carried:
            self.carried, self.carried_stamp, self.carried_at = carried, stamp, clock

    def note_output(self, count, clock):
        """The rank has printed `count` bytes: one that prints much within a call is at work there."""
        if self.printed_stamp != self.recorder.stamp:
            self.printed_stamp, self.printed, self.printed_at = self.recorder.stamp, 0, 0.0
        self.printed += count
        if self.printed >= MUCH_OUTPUT:
            self.printed, self.printed_at = 0, clock

    def observe(self, clock):
        """What /proc shows of a rank that does not move; at most every `SEND` seconds."""
        if self.ended or not self.recorder.latest or not self.pid:
            return
        if clock - self.cgroups_read_at > 1.0:
            self.cgroups_read_at = clock
            self.note_oom_kills(clock)
            self.current_limits()
        age = self.age(clock)
        if clock - self.gloo_read_at > STUCK:
            self.gloo_read_at = clock
            self.note_lost_threads(age)
        if age < STUCK / 2 or clock - self.observed_at < SEND:
            self.effective = age if age < STUCK / 2 else self.effective
            return
        begun, since, self.observed_at = time.monotonic(), clock - self.observed_at, clock
        self.read_state(age)
        self.read_cpu_times(clock, age, since, begun)

    def note_lost_threads(self, age):
        """A thread of gloo that ends alone, within a collective, takes what it carries with it."""
        now = gloo_threads(self.pid)
        if age < STUCK:
            self.gloo = now
        elif age > HEADLESS and self.waits_in_collective() and self.gloo - now and not is_exiting(self.pid):
            self.dead = "its thread of gloo ended, and other threads of it go on"

    def current_limits(self):
        """The limits of the rank, of the control group that it is in now."""
        if self.limits is None or (self.cgroups and self.limits.folders != self.cgroups):
            first, self.limits = self.limits is None, Limits(self.pid or os.getpid())
            if first and self.limits.folders == self.begun_in:
                self.limits.killed = self.killed_before  # it may be over already
        return self.limits

    def read_state(self, age):
        status = process_status(self.pid)
        self.state = status[0] if status and status[0] != "Z" else "X"
        if self.state == "X" and age > HEADLESS and set(thread_states(self.pid)) - {"Z", "X"}:
            self.dead = "its main thread ended, and other threads of it go on"
        if age > STUCK and is_frozen(self.pid, self.state):
            self.state = "F"
        elif self.state not in "TtX" and age > STUCK:
            # A debugger may hold one thread, such as that of gloo which all data goes through.
            self.state = next((state for state in thread_states(self.pid) if state in "Tt"), self.state)
        self.waits_for = read_text("/proc/%d/wchan" % self.pid, 64).strip("0")

    def read_cpu_times(self, clock, age, since, begun):
        """Sets `cpu` and `effective`; `since`: seconds since the last observation; `begun`: the system's `clock`.

        This program may itself wait for a CPU before and between its reads, for seconds on a busy host.
        """
        waiting = self.waits_in_collective()
        times = cpu_times(self.pid, waiting)
        first, self.base_stamp = self.base_stamp != self.recorder.stamp, self.recorder.stamp
        if first:
            # How long the rank waited for a CPU before this first observation is not known.
            self.base, self.unobserved = times, max(0.0, age + time.monotonic() - begun - STUCK)
        if not times or not self.base:
            # The kernel does not show who waited for a CPU: only half of the time is held against the rank.
            self.effective = age / 2
            return
        self.cpu = times[0] - self.base[0]
        delay = times[2] - self.base[2] if waiting else times[1] - self.base[1]
        states = self.state
        loads = self.recorder.latest.state == INPUT
        if not waiting:
            spent = sum(times[:2]) - sum((self.cpu_times or times)[:2])
            spent = since if self.state == "R" and times == self.cpu_times else spent
            waited = self.read_helper_delay(first, clock - begun, loads, spent)
            delay += 0.0 if self.asks else waited
            states += "".join(state for _, _, state, _ in self.helper_times.values()) if loads else ""
        # Also one that is short of memory, and waits for its pages, sleeps as one that waits for a file.
        self.disk_delay = 0.0 if first else self.disk_delay + (since if "D" in states else 0.0)
        delay += min(self.disk_delay, DISK_SECONDS)
        if first or times != self.cpu_times or self.state != "R":
            self.cpu_times, self.moved = times, clock
        # A wait for a CPU is booked when it ends; one that goes on is a rank that could run and does not.
        own = age - self.unobserved - delay - (clock - self.moved)
        self.effective = max(0.0, own, self.worker_ran if loads else 0.0)

    def read_helper_delay(self, first, offset, loads, spent=0.0):
        """Seconds since the stamp in which its threads beside the main one, and loader workers, waited for a CPU.

        They wait for each other by turns, to hand over a batch or to end, and the rank for all of them: time in which
        any of them waited counts, and counts once; none that the main thread `spent` running or waiting for a CPU
        itself. `offset`: of this agent's clock to the system's. `loads`: with the
        workers. The threads that share a computation are the rank's own work: of them, its main thread waits for all.
        Also sets `worker_ran`: where more of them compute than there are CPUs, one always waits, and all the same the
        rank waits for what the busiest worker computes. And `asks`: one that wakes up for next to nothing waits for no
        CPU, but for its own condition.
        """
        times = helper_times(self.pid, loads)
        read_at = time.monotonic() + offset
        since, self.helpers_read_at = read_at - self.helpers_read_at, read_at
        waited = since if self.helper_times.keys() - times.keys() else 0.0  # of one that ended, it is not known
        for thread, (ran, delay, state, _) in times.items():
            last = self.helper_times.get(thread, (0.0, 0.0, "", 0))
            # A wait that goes on is booked when it ends, and was counted by then; it may last for seconds where the
            # priority is low. Who could run now has waited for as long as it did not run, or has slept before.
            stood = max(0.0, since - (ran - last[0]))
            waited += stood if state == "R" else min(stood, delay - last[1])
        self.helper_times = times
        workers = [name for name in times if name[0] != self.pid]
        if first:
            self.helper_base, self.worker_ran = times, 0.0
        bases = [(name, self.helper_base.get(name, (0.0, 0.0, "", 0))) for name in workers]
        since_base = [(times[name][0] - base[0], times[name][3] - base[3]) for name, base in bases]
        self.worker_ran = max([self.worker_ran] + [computed for computed, _ in since_base])
        # One that waits for a disk or a page does so in turns as short.
        self.asks = not self.disk_delay and any(turns > max(ASKS, computed / LITTLE) for computed, turns in since_base)
        # A main thread that sleeps for another one is in a futex, where the kernel shows it.
        if loads or self.state != "S" or not self.waits_for or self.waits_for.startswith("futex"):
            self.helper_delay += min(since, waited, max(0.0, since - spent))
        self.helper_delay = 0.0 if first else self.helper_delay
        return self.helper_delay

    def note_oom_kills(self, clock):
        """A process that is killed for memory may be observed for a while until it is gone."""
        folders = cgroup_folders(self.pid)
        if not folders or is_exiting(self.pid):  # what it shows may be no group of its own any more
            if self.killed_for_memory(clock):
                self.oom_at = clock
            return
        count = oom_kills(folders)
        if folders == self.cgroups and count > self.oom_count:
            self.oom_at = clock
        self.cgroups, self.oom_count = folders, count

    def killed_for_memory(self, clock):
        """Whether the kernel has just killed somebody in the rank's control groups."""
        return oom_kills(self.cgroups) > self.oom_count or clock - self.oom_at < OOM_SECONDS

    def snapshot(self, clock):
        """What is new, as the controller's Snapshot; None when nothing is. Defaults are left out."""
        recorder = self.recorder
        if not recorder.latest and not self.ended:
            return None
        fields = {"rank": self.rank, "stamp": recorder.stamp, "state": "start", "stage": "start"}
        age = 0.0
        if recorder.latest:
            age = self.age(clock)
            fields.update(recorder.fields())
        news = (recorder.stamp, self.dead or str(self.ended))
        if news == self.reported and not recorder.new_calls and (age < STUCK or self.ended):
            return None
        self.reported = news
        fields.update(age=round(age, 4), effective=round(min(self.effective, age), 4))
        for name in ("cpu", "waits_for", "dead", "error", "secondary", "oom"):
            value = getattr(self, name)
            if value or (name == "oom" and value is False):
                fields[name] = round(value, 4) if name == "cpu" else value
        if self.state != "R":
            fields["process"] = self.state
        if self.carried is not None and self.carried_stamp == recorder.stamp and self.waits_in_collective():
            fields["idle"] = round(clock - self.carried_at, 4)
        if self.printed_at and self.printed_stamp == recorder.stamp and self.waits_in_collective():
            quiet = round(clock - self.printed_at, 4)
            fields["idle"] = min(quiet, fields.get("idle", quiet))
        if recorder.new_calls:
            fields["calls"], recorder.new_calls = recorder.new_calls, []
            fields["entered"] = dict((str(call[0]), recorder.entered[call[0]]) for call in fields["calls"])
        return fields

    def end(self, status, oom_line):
        """The rank's process has ended, with this wait status."""
        self.read_recorder()
        self.ended, self.state = True, "X"
        if os.WIFSIGNALED(status):
            self.dead = filled("signal {0}", os.WTERMSIG(status))
            if os.WTERMSIG(status) == signal.SIGKILL:
                spared = False if self.killed_on_host and oom_kills_of_host() == self.killed_on_host else None
                self.oom = bool(oom_line) or self.killed_for_memory(time.monotonic()) or spared
        else:
            self.dead = filled("exit status {0}", os.WEXITSTATUS(status))
