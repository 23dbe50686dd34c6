"""Event loop: many sockets, one thread, deadlines; and whether this host lets the loop run.

What was late here says nothing of the network.
"""

import os
import resource
import select
import socket
import struct
import time

from doctor.smoke.programs.agent.procfs import cpu_ticks, cpu_times


class SocketLoop:
    """Calls `on_event(mask)` of the owner of each socket that is ready, and `on_timeout()` behind its `deadline`."""

    def __init__(self, poll):
        self.poll, self.owners = poll, {}

    def add(self, link, owner, mask):
        self.owners[link.fileno()] = owner
        self.poll.register(link.fileno(), mask)

    def wait_for(self, link, mask):
        self.poll.modify(link.fileno(), mask)

    def remove(self, link):
        if self.owners.pop(link.fileno(), None) is not None:
            self.poll.unregister(link.fileno())

    def handle(self, fd, mask):
        owner = self.owners.get(fd)
        if owner is not None:
            owner.on_event(mask)

    def expire(self):
        """What has come while this program could not run is not late."""
        now = time.monotonic()
        late = [owner for owner in self.owners.values() if owner.deadline < now]
        for fd, mask in self.poll.poll(0) if late else ():
            self.handle(fd, mask)
        for owner in late:
            if owner.deadline < now:
                owner.on_timeout()


READ, WRITE = select.POLLIN, select.POLLOUT


def close_now(link):
    """Closes with a reset: no TIME_WAIT that would keep the job from its port."""
    try:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    link.close()


def tcp_figures(link):
    """(segments sent again, path MTU, segment size) of a connection, by the kernel; zeros where it does not tell."""
    try:
        info = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    except (OSError, AttributeError):
        return 0, 0, 0
    if len(info) < 104:
        return 0, 0, 0
    segment, mtu, again = (struct.unpack_from("=I", info, offset)[0] for offset in (16, 60, 100))
    return again, mtu, segment


def printable_start(data):
    """The beginning of what somebody sent, safe to print."""
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in bytearray(data[:40]))


class Pace:
    """Measures since `restart`. `turn` is called once in every turn of the prober's loop."""

    def __init__(self):
        self.last = time.monotonic()
        self.restart()

    def restart(self):
        self.began, self.longest = self.last, 0.0
        self.waited, self.ticks = waited_for_cpu(), cpu_ticks()

    def turn(self):
        now = time.monotonic()
        self.longest, self.last = max(self.longest, now - self.last), now

    def report(self):
        """Seconds in all, of the longest turn, of waiting for a CPU; the share that the hypervisor took."""
        stolen, _, every = cpu_ticks()
        stolen, every = stolen - self.ticks[0], every - self.ticks[1]
        return {
            "seconds": round(self.last - self.began, 3),
            "longest": round(self.longest, 3),
            "waited": round(max(0.0, waited_for_cpu() - self.waited), 3),
            "stolen": round(stolen / every, 3) if 0 < stolen <= every else 0.0,
        }


def waited_for_cpu():
    """Seconds that this process could have run and did not; 0 where the kernel does not count them."""
    times = cpu_times(os.getpid(), False)
    return times[1] if times else 0.0


def raise_file_limit():
    """Files that may be open, as many as the limit allows and 8192 at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
            soft = enough
        except (OSError, ValueError):
            pass
    return 8192 if soft == resource.RLIM_INFINITY else soft
