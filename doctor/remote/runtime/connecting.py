"""TCP connections to many hosts, begun at once: what became of each."""

import _socket as socket
import errno
import os
import select
import time

from doctor.remote.runtime.netlink import neighbour_table

NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ENONET)
REFUSED_HERE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENETDOWN)
"""What `connect` itself returns, before any packet: a route that is missing, prohibits or is a black hole."""
NO_ANSWER = (None, errno.EHOSTUNREACH, errno.ETIMEDOUT)
"""What becomes of a connection that waits for a neighbour, or for this kernel's room for one."""
POLL_SECONDS = 0.25


def begin_connecting(name, port):
    """A socket that connects, or None, and the error's number or the error."""
    link = None
    try:
        info = socket.getaddrinfo(name, port, 0, socket.SOCK_STREAM)[0]
        link = socket.socket(info[0], socket.SOCK_STREAM)
        link.setblocking(False)
        return link, link.connect_ex(info[4])
    except (OSError, UnicodeError, OverflowError) as error:  # also for a name or a port that cannot be
        return link, error


def connect_all(targets, seconds):
    """What becomes of connections to `targets`, [address or name, port] each, and the longest time between two looks.

    Of each, in their order: (target, outcome, seconds, at_once). `outcome`: the kernel's error number, 0 where it
    connected; None where nothing answered in time; the error that kept it from being tried, such as ENOBUFS where this
    kernel had no room for a neighbour meanwhile. `at_once`: this kernel said so before any packet was sent. However
    late this program is itself, it looks once more after the time is over.
    """
    _, without_room = neighbour_table()
    began, poll, waiting, results, longest = time.monotonic(), select.poll(), {}, {}, 0.0
    for index, target in enumerate(targets):
        link, code = begin_connecting(*target)
        if code == errno.EINPROGRESS:
            waiting[link.fileno()] = index, target, link
            poll.register(link.fileno(), select.POLLOUT)
        else:
            results[index] = target, code, time.monotonic() - began, True
            if link:
                link.close()
    turn, is_over = time.monotonic(), False
    while waiting and not is_over:
        remaining = began + seconds - turn
        is_over = remaining <= 0
        for number, _ in poll.poll(max(0, int(1000 * min(POLL_SECONDS, remaining)))):
            index, target, link = waiting.pop(number)
            poll.unregister(number)
            code = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            results[index] = target, code, time.monotonic() - began, False
            link.close()
        longest, turn = max(longest, time.monotonic() - turn), time.monotonic()
    for index, target, link in waiting.values():
        results[index] = target, None, time.monotonic() - began, False
        link.close()
    lost = [index for index, result in results.items() if result[1] in NO_ANSWER and not result[3]]
    if lost and neighbour_table()[1] > without_room:
        untried = OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        results.update((index, (results[index][0], untried, results[index][2], True)) for index in lost)
    return [results[index] for index in range(len(targets))], longest
