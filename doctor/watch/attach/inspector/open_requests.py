"""Requests that a server has taken and that it neither answers nor works for: behind a router, a proxy or a client.

The last bytes of such a connection came from its client, or wait unread in the kernel, and no thread of the server
waits at it any more. One that waits for events has given the request to others, and is not meant.

Source: Linux, include/uapi/linux/tcp.h, struct tcp_info, tcpi_last_data_sent and tcpi_last_data_recv (milliseconds
since); Documentation/networking/proc_net_tcp.rst, rx_queue, which of a listener counts connections not accepted.
"""

import socket
import struct

from doctor.remote.runtime.netlink import diagnosed_tcp
from doctor.remote.runtime.reading import link_at, names_in
from doctor.smoke.programs.agent.kernel import is_frozen
from doctor.smoke.programs.agent.network import ESTABLISHED, LISTENS, socket_inodes, tcp_table
from doctor.smoke.programs.agent.procfs import ancestors, process_status
from doctor.smoke.programs.agent.system_calls import thread_call
from doctor.watch.attach.inspector.rank_state import (
    MOST_AWAITED,
    MOST_TASKS,
    SINGLE,
    polled_files,
    process_name,
    process_tree,
)

MOST_FILES, MOST_PROCESSES_ASKED = 4096, 8192
MOST_REQUESTS = 4
IO_URING = "call 426"  # io_uring_enter: which files are meant, no other process can see
NOT_KNOWN = -1.0


def asked_times():
    """By inode of each connection of this network over which nothing was sent since the last bytes came: the seconds
    since these.
    """
    times = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        for inode, values, _ in diagnosed_tcp(family, 2, 1 << 1, 0.2):
            info = values.get(2, b"")  # INET_DIAG_INFO
            if len(info) < 160 or not struct.unpack_from("=Q", info, 128)[0]:  # tcpi_bytes_received
                continue
            sent, _, received = struct.unpack_from("=III", info, 44)
            has_answered = struct.unpack_from("=I", info, 156)[0]  # tcpi_data_segs_out, Linux 4.6
            if received < sent or (received == sent and not has_answered):
                times[inode] = received / 1000.0
    return times


def waits_at(pid, thread, numbers):
    """Whether a thread waits at one of these open files, or for something that cannot be read."""
    kind, number, arguments = thread_call(pid, thread)
    if kind in ("", "?", IO_URING):
        return True
    if kind in SINGLE:
        return arguments[0] & 0xFFFFFFFF in numbers
    polled = polled_files(pid, number, arguments[0], arguments[1], MOST_FILES) if kind == "poll" else ()
    return -1 in polled or not numbers.isdisjoint(polled)


def is_attended(pid, inode):
    """Whether a thread of a process waits at a socket of it. One that is stopped or frozen waits at none."""
    state = (process_status(pid) or "?")[0]
    if state in "Tt" or is_frozen(pid, state):
        return False
    names = names_in("/proc/%d/fd" % pid, MOST_FILES)
    numbers = set(int(name) for name in names if link_at("/proc/%d/fd/%s" % (pid, name)) == "socket:[%s]" % inode)
    threads = names_in("/proc/%d/task" % pid, MOST_TASKS)
    return not threads or len(threads) >= MOST_TASKS or any(waits_at(pid, int(name), numbers) for name in threads)


def left_requests(pid, times):
    """By its own socket, what a process was asked over the ports at which it listens and does not attend to.

    Each as [other end or None, seconds since it came]. A connection that is not accepted stands with its listener.
    ``times``: as `asked_times` returns.
    """
    inodes = socket_inodes(pid)
    queued = dict(
        (inode, (local[1], int(row[4].split(":")[1], 16)))
        for inode, _, local, _, row in tcp_table(pid, (LISTENS,))
        if inode in inodes
    )
    if not queued:
        return {}
    ports, unattended = set(port for port, _ in queued.values()), {}
    above = set().union(*map(socket_inodes, ancestors(pid)))  # what a fork has handed on is theirs
    below = set().union(*map(socket_inodes, process_tree(pid)[1:]))
    for inode, _, local, peer, row in tcp_table(pid, (ESTABLISHED,)):
        if local[1] not in ports or len(unattended) >= MOST_REQUESTS:
            continue
        is_open = inode in times or int(row[4].split(":")[1], 16)
        if inode in inodes - above and is_open and not is_attended(pid, inode):
            unattended[inode] = [(peer, local), times.get(inode, NOT_KNOWN)]
    for inode, (_, count) in queued.items():
        if count and inode not in above | below and not is_attended(pid, inode):
            unattended[inode] = [None, NOT_KNOWN]
    return unattended


def lasting_requests(pid, before, times):
    """[who asks, seconds since] of the requests that a process left before and leaves still, the oldest first."""
    unattended = left_requests(pid, times) if before else {}
    rows = [unattended[inode] for inode in unattended if inode in before]
    return [[asker(pid, ends), seconds] for ends, seconds in sorted(rows, key=lambda row: -row[1])][:MOST_REQUESTS]


def takes_requests(pid):
    """Whether a thread of a process still waits for connections: what one of them asks does not hold up the others."""
    inodes = socket_inodes(pid)
    listeners = [row[0] for row in tcp_table(pid, (LISTENS,)) if row[0] in inodes]
    return any(is_attended(pid, inode) for inode in listeners[:MOST_AWAITED])


def accepting_ports(pid):
    """The ports at which the main thread of a process waits for connections."""
    if thread_call(pid, pid)[0] not in ("poll", "accept"):
        return set()
    inodes = socket_inodes(pid)
    listeners = [(inode, local[1]) for inode, _, local, _, _ in tcp_table(pid, (LISTENS,)) if inode in inodes]
    files = names_in("/proc/%d/fd" % pid, MOST_FILES) if listeners else ()
    numbers = dict((link_at("/proc/%d/fd/%s" % (pid, name)), int(name)) for name in files)
    return set(port for inode, port in listeners if waits_at(pid, pid, set([numbers.get("socket:[%s]" % inode, -1)])))


def owes_no_answer(pid, ports, times):
    """Whether no answer is due over the connections that a process has taken at these ports.

    ``times``: as `asked_times` returns.
    """
    inodes = socket_inodes(pid)
    taken = [row for row in tcp_table(pid, (ESTABLISHED,)) if row[2][1] in ports and row[0] in inodes]
    return not any(row[0] in times or int(row[4][4].split(":")[1], 16) for row in taken)


def asker(pid, ends):
    """Who is at this end of a connection: a process of this host, or its address; empty where it is not known."""
    if ends is None:
        return ""
    inodes = set(inode for inode, _, local, peer, _ in tcp_table(pid, (ESTABLISHED,)) if (local, peer) == ends)
    for name in names_in("/proc", MOST_PROCESSES_ASKED) if inodes else ():
        if name.isdigit() and not inodes.isdisjoint(socket_inodes(int(name))):
            return process_name(int(name))
    return "%s:%d" % ends[0]
