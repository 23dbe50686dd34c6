"""What computes for a rank while it waits: its children, a server beside it, the writer of the file it looks for.

A process at the other end of the socket, pipe or FIFO that the rank's call is about is known by that end, with any
parent. A rank that asks again and again whether something is there, such as a file, does not show the process: it may
be any process of its user that is no rank and has something in common with it.
"""

import os
import re
import stat

from doctor.remote.runtime.reading import link_at, names_in, read_text
from doctor.smoke.programs.agent.file_wait import seconds_off_cpu
from doctor.smoke.programs.agent.network import LISTENS
from doctor.smoke.programs.agent.procfs import all_processes, cpu_times, open_files
from doctor.watch.attach.inspector.connected import link_text, tcp_ends, unix_pairs, user_of
from doctor.watch.attach.inspector.rank_finder import job_of, read_environ
from doctor.watch.attach.inspector.rank_state import (
    awaited_links,
    descendants_ran,
    process_name,
    process_times,
    process_tree,
)

JOB_OR_POD = re.compile("/(job_[0-9]+|(?:[a-z-]+-)?pod[0-9a-f_-]{32,40})")
"""Control groups within which each step, task or container has one of its own (Slurm, Documentation of cgroup/v2;
Kubernetes, the kubelet's cgroup drivers)."""
MOST_OPEN = 1024
MOST_SEARCHED = 4096
MOST_NAMED = 4


def beside(ranks):
    """Processes of the ranks' users that are neither ranks nor started by one, nor those that started them or this."""
    table = all_processes()
    above, users = set(), set(map(user_of, ranks))
    for pid in [os.getpid(), *ranks]:
        while pid in table and pid not in above:
            above.add(pid)
            pid = table[pid][1]
    below = set(ranks)
    for pid in sorted(table):  # a child's number is mostly the higher one
        if table[pid][1] in below:
            below.add(pid)
    return [pid for pid in table if pid not in above | below and user_of(pid) in users][:MOST_SEARCHED]


def shared_ties(pid, table):
    """What a process shares with others of its job: session, folder, variables, control groups, or those of job or pod.

    None where they cannot be read.
    """
    groups = read_text("/proc/%d/cgroup" % pid, 1 << 16)
    folder = link_at("/proc/%d/cwd" % pid)
    if pid not in table or not groups or not folder:
        return None
    ties = set([("folder", folder), ("session", table[pid][2]), ("groups", groups)])
    ties |= set(("groups", name) for name in JOB_OR_POD.findall(groups))
    ties.discard(("folder", "/"))
    return ties | set(job_of(read_environ(pid)).items())


def related(rank, others):
    """Those of other processes that may belong to the job of a rank: all but those that are known to share nothing.

    One that shares the session of a process above the rank, or has a file open in its working folder, belongs to it.
    """
    table = all_processes()
    rank_ties, pid = shared_ties(rank, table), rank
    if rank_ties is None:
        return others
    folders = [value.rstrip("/") + "/" for kind, value in rank_ties if kind == "folder"]
    while pid in table:
        rank_ties.add(("session", table[pid][2]))
        pid = table[pid][1]
    processes = []
    for other in others:
        ties = shared_ties(other, table)
        if (
            ties is None
            or rank_ties & ties
            or any(file.startswith(tuple(folders)) for file in open_files(other, MOST_OPEN))
        ):
            processes.append(other)
    return processes


def has_run(pids):
    """By pid: the seconds that each of these processes and its children ran, or waited for a CPU."""
    return {
        pid: max(process_times(pid), 0.0) + (cpu_times(pid, False) or (0.0, 0.0))[1] + descendants_ran(pid)
        for pid in pids
    }


def files_of(others):
    """By pid: what these processes have open."""
    return dict((other, open_files(other, MOST_OPEN)) for other in others)


def other_ends(pid, links=None):
    """Of what the main thread of a rank waits for, the ends on this host that others have: sockets, pipes, FIFOs.

    ``links``: of what another of its threads waits for, instead.
    """
    links = awaited_links(pid) if links is None else links
    ends_here = set(link for link in links if link.startswith("pipe:") or is_fifo(link))
    sockets = set(link[8:-1] for link in links if link.startswith("socket:"))
    if sockets:
        ends = tcp_ends(pid)
        peers = set(ends[inode][::-1] for inode in sockets if inode in ends)
        ports = set(local[1] for local, _ in peers)
        inodes = set(inode for inode, both in ends.items() if both in peers)
        # A connection that its server has not accepted yet has no process: the listener stands for it.
        inodes |= set(inode for inode, both in tcp_ends(pid, LISTENS).items() if both[0][1] in ports)
        for inode, other in unix_pairs():
            inodes |= set([other] if inode in sockets else [])
        ends_here |= set("socket:[%s]" % inode for inode in inodes)
    return ends_here


def holders(ends, find_files):
    """The processes that have one of these ends. ``find_files``: all that may be meant, with their files (`files_of`);
    it is called where there are ends.
    """
    return [other for other, files in find_files().items() if not ends.isdisjoint(files)] if ends else []


def lock_holders(pid):
    """The processes of this host that hold the lock of a file which a process waits for in the kernel."""
    locks = re.findall(r"^(\d+): (-> )?\w+ +\w+ +\w+ +(\d+) ", read_text("/proc/locks", 1 << 20), re.M)
    awaited = set(number for number, waits, waiter in locks if waits and int(waiter) == pid)
    return [int(holder) for number, waits, holder in locks if number in awaited and not waits]


def lock_owners(pid):
    """The processes that keep a file locked for themselves which a process has open, as one that tries again does."""
    locks = re.findall(
        r"^\d+: \w+ +\w+ +WRITE +(\d+) [0-9a-f]+:[0-9a-f]+:(\d+) ", read_text("/proc/locks", 1 << 20), re.M
    )
    owners = dict((inode, int(owner)) for owner, inode in locks if int(owner) not in (0, pid))
    pids = set()
    for number in names_in("/proc/%d/fd" % pid, MOST_OPEN) if owners else ():
        inode = re.search(r"^ino:\s*(\d+)", read_text("/proc/%d/fdinfo/%s" % (pid, number), 512), re.M)
        owner = owners.get(inode.group(1)) if inode else None
        if owner and link_at("/proc/%d/fd/%s" % (pid, number)) in open_files(owner, MOST_OPEN):
            pids.add(owner)
    return sorted(pids)


def far_end(pid, thread=0):
    """The TCP connection that a thread waits for, as `find_groups` writes links, and since when it has not run; None
    where it waits for none. Of several the first to another host.
    """
    sockets = set(awaited_links(pid, thread))
    ends = tcp_ends(pid) if any(link.startswith("socket:") for link in sockets) else {}
    awaited = [both for inode, both in ends.items() if "socket:[%s]" % inode in sockets]
    far = [both for both in awaited if both[0][0] != both[1][0]] or (awaited if len(sockets) == 1 else [])
    return (link_text(*far[0]), seconds_off_cpu(thread or pid)) if far else None


def is_fifo(path):
    """Whether processes exchange bytes at this path."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


class Helpers:
    """The processes beside some ranks, and how much they have run since they were first looked at.

    Ranks of another job are such, too: a step of the same allocation, a server with ranks of its own.
    """

    def __init__(self, jobs):
        """``jobs``: by pid of each rank, what it has in common with others of its job (`job_of`)."""
        self.jobs = jobs
        self.others = beside(list(jobs)) + list(jobs) if jobs else []
        self.before = has_run(self.others)
        self.files = None
        self.answering = dict(
            (pid, self.of_others(pid, holders(other_ends(pid), self.find_files) + lock_holders(pid))) for pid in jobs
        )

    def of_others(self, pid, pids):
        """Those of these processes that are no ranks of its job."""
        return [other for other in pids if self.jobs.get(other) != self.jobs[pid]]

    def names(self, pid):
        """[process, whether it is stopped] of those at the other end of what a rank waits for, its children, too."""
        pids, table = self.answering[pid], all_processes()
        pids = pids or holders(other_ends(pid), lambda: files_of(process_tree(pid)[1:]))
        return [[process_name(other), table[other][0] in "Tt"] for other in pids if other in table][:MOST_NAMED]

    def awaited(self, pid):
        """The processes that a rank may wait for; of those below it all, where nothing says which."""
        below, ends = process_tree(pid)[1:], other_ends(pid)
        return self.answering[pid] + (holders(ends, lambda: files_of(below)) if ends else below)

    def find_files(self):
        """`files_of` the processes, read once for all ranks."""
        if self.files is None:
            self.files = files_of(self.others)
        return self.files

    def ran(self, pid, call):
        """Seconds that the busiest of those ran that a rank may wait for. ``call``: what it is in."""
        pids = related(pid, self.of_others(pid, self.others)) if call == "sleep" else self.answering[pid]
        now = has_run(pids)
        return max([now[other] - self.before.get(other, now[other]) for other in pids] or [0.0])  # a child has its own
