"""The Python stacks of ranks and of their loader workers, which write them into files on SIGUSR1."""

import os
import signal
import time

from doctor.remote.runtime.reading import read_text
from doctor.smoke.programs.agent.procfs import all_processes, catches, process_status

MOST_CHILDREN = 4  # of a rank, whose stacks are dumped


def dump_stacks(monitors, files, due):
    """By rank: what was written into its file. Every rank is asked, and its loader workers one after the other.

    `due` gets the ranks that could run since they were asked and have got no CPU, with the size of their files then:
    whoever asks again gets what they write meanwhile.
    """
    before = dict((rank, due.pop(rank, os.fstat(fd).st_size)) for rank, fd in files.items())
    deadline = time.monotonic() + 0.4
    for turn, pids in enumerate(dump_turns(monitors)):
        sizes = {}
        for rank, pid in sorted(pids.items()):
            if turn:
                heading = "\nloader worker %d, in %s:\n" % (pid, read_text("/proc/%d/wchan" % pid) or "?")
                os.write(files[rank], heading.encode("ascii", "replace"))
            if catches(pid):
                sizes[rank] = os.fstat(files[rank]).st_size
                os.kill(pid, signal.SIGUSR1)
        wait_for_stacks(files, sizes, min(deadline, time.monotonic() + 0.25))
        late = [rank for rank in sizes if not turn and os.fstat(files[rank]).st_size <= before[rank]]
        due.update((rank, before[rank]) for rank in late if (process_status(pids[rank]) or "-")[0] == "R")
    return dict((str(rank), os.pread(fd, 16384, before[rank]).decode("utf-8", "replace")) for rank, fd in files.items())


def dump_turns(monitors):
    """The pid by rank, turn by turn: the ranks themselves, then the first of their children, the second, and so on."""
    children = {}
    for pid, (_, parent, _) in sorted(all_processes().items()):
        children.setdefault(parent, []).append(pid)
    alive = [monitor for monitor in monitors if monitor.pid and not monitor.ended and monitor.state not in "TtF"]
    turns = [dict((monitor.rank, monitor.pid) for monitor in alive)]
    for number in range(MOST_CHILDREN):
        parents = [monitor for monitor in alive if number < len(children.get(monitor.pid, ()))]
        turns.append(dict((monitor.rank, children[monitor.pid][number]) for monitor in parents))
    return [pids for pids in turns if pids]


def wait_for_stacks(files, before, deadline):
    """Waits until all ranks of `before`, which has the sizes of their files, have begun to write, and have ended."""
    last, unchanged = None, 0
    while before and time.monotonic() < deadline and unchanged < 2:
        time.sleep(0.008)
        sizes = dict((rank, os.fstat(files[rank]).st_size) for rank in before)
        begun = all(sizes[rank] > size for rank, size in before.items())
        unchanged = unchanged + 1 if begun and sizes == last else 0
        last = sizes
