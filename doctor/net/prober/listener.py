"""Temporary listeners on the job's ports, which speak to the run's own hosts alone."""

import errno
import os
import socket
import threading
import time

from doctor.net.prober.handshake import BULK, CALL_SIZE, CHALLENGE_SIZE, ECHO, PING, SINK
from doctor.net.prober.socket_loop import READ, WRITE, close_now
from doctor.net.prober.transfer import serve_transfer
from doctor.remote.runtime.host_texts import filled
from doctor.remote.runtime.reading import read_text
from doctor.smoke.programs.agent.network import listen_on, start_listening

UNPROVEN_SECONDS = 8.0  # for a caller to prove that it belongs to the run
MAX_CALLS = 2048  # that wait for a proof at the same time; fewer where few files may be open
MAX_BULK = 1 << 18
MAX_NOTED = 4096
FIRST_PORT = 1024
IN_UPPER_HALF = -1  # for a port's number: one that the kernel gives, of the upper half of its range
NOT_TRIED = "not tried"  # the problem of a listener that this user might open, and that is not opened
PRIVILEGED = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
BIND_SERVICE = 10  # the bit of CAP_NET_BIND_SERVICE
PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def open_listener(address, port):
    """A socket that listens on an address, or on all where it is empty. Port 0: one that the kernel gives.

    Raises: OSError.
    """
    if port == IN_UPPER_HALF:
        return _open_in_upper_half(address)
    if 0 < port < FIRST_PORT:
        raise OSError(errno.EACCES, _refusal(port) or NOT_TRIED)
    if not address:
        return listen_on(port)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return start_listening(server, address, port)


def _refusal(port):
    """Why this user may not listen on a low port; empty where it may."""
    first = int(read_text(PRIVILEGED, 16).strip() or FIRST_PORT)
    status = dict(line.split(":", 1) for line in read_text("/proc/self/status", 1 << 16).splitlines() if ":" in line)
    if port >= first or int(status.get("CapEff", "0"), 16) >> BIND_SERVICE & 1:
        return ""
    return filled("only root, or a process with CAP_NET_BIND_SERVICE, may listen on a port below {0}", first)


def _open_in_upper_half(address):
    """A socket that listens on a port of the upper half of those that the kernel gives. Raises: OSError.

    It gives the lower half first to sockets that may reuse an address, as those of Gloo and NCCL do; to others, such as
    those of MPI libraries, it gives all.
    """
    try:
        with open(PORT_RANGE) as file:
            middle = sum(map(int, file.read().split())) // 2
    except (OSError, ValueError):
        middle = 0
    for _ in range(64):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as trial:
            trial.bind((address, 0))
            port = trial.getsockname()[1]
        if port > middle:
            try:
                return open_listener(address, port)
            except OSError as why:  # another program was quicker
                if why.errno != errno.EADDRINUSE:
                    raise
    return open_listener(address, 0)


class UnprovenCalls:
    """The calls of all listeners that have not proved themselves yet; the oldest makes room for a new one.

    So strangers, however many, hold no place that a host of the run needs, and never all descriptors.
    """

    def __init__(self, descriptors):
        self.limit, self.calls = max(16, min(MAX_CALLS, descriptors // 4)), {}
        self.given_up = []  # [port, caller's port] of those that were closed on timeout or overload

    def add(self, call):
        if len(self.calls) >= self.limit:
            self.close_oldest()
        self.calls[call] = True  # a dictionary keeps the order

    def discard(self, call):
        self.calls.pop(call, None)

    def give_up(self, call):
        """Closes it. That says nothing of the network, which the caller cannot know."""
        if call in self.calls and len(self.given_up) < MAX_NOTED:
            self.given_up.append([call.listener.port, call.source_port])
        call.close()

    def close_oldest(self):
        """Whether there was one."""
        for call in self.calls:
            self.give_up(call)
            return True
        return False


class Listener:
    """One listening socket. `calls`: the `UnprovenCalls` of all listeners."""

    deadline = float("inf")

    def __init__(self, loop, server, member, calls):
        self.loop, self.server, self.member, self.calls = loop, server, member, calls
        self.port = server.getsockname()[1]
        server.setblocking(False)
        loop.add(server, self, READ)

    def on_event(self, _):
        for _ in range(64):
            try:
                link, address = self.server.accept()
            except OSError as error:  # none waits any more, or no descriptor is free
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self.calls.close_oldest():
                    return
            else:
                IncomingCall(self, link, address[1])

    def close(self):
        self.loop.remove(self.server)
        self.server.close()


class IncomingCall:
    """One accepted connection: it is sent a random challenge, and nothing more before it has proved itself."""

    def __init__(self, listener, link, source_port):
        self.listener, self.link, self.source_port = listener, link, source_port
        self.challenge, self.received, self.to_send = os.urandom(CHALLENGE_SIZE), bytearray(), bytearray()
        self.expected, self.bulk = 0, 0
        self.deadline = time.monotonic() + UNPROVEN_SECONDS
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.loop.add(link, self, READ)
        listener.calls.add(self)
        self.to_send += self.challenge
        self.push()

    def on_timeout(self):
        self.listener.calls.give_up(self)

    def on_event(self, mask):
        try:
            if mask & WRITE:
                self.push()
            elif not self.pull():
                self.close()
        except OSError:
            self.close()

    def push(self):
        try:
            while self.to_send:
                del self.to_send[: self.link.send(self.to_send)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        self.listener.loop.wait_for(self.link, WRITE if self.to_send else READ)

    def pull(self):
        """False when the connection is over."""
        if self.expected:  # the bytes of a bulk transfer
            piece = self.link.recv(min(self.expected, 65536))
            self.expected -= len(piece)
            if piece and not self.expected:
                self.link.send(b"k")  # in a small packet of its own
                self.to_send += bytes(self.bulk)
                self.push()
            return bool(piece)
        piece = self.link.recv(CALL_SIZE - len(self.received))
        self.received += piece
        if len(self.received) < CALL_SIZE:
            return bool(piece)
        return self.answer()

    def answer(self):
        """Replies to a caller that has proved itself; False for a stranger and for a caller that is done."""
        call, self.received = self.listener.member.read_call(self.challenge, self.received), bytearray()
        if call is None:
            return False
        self.listener.calls.discard(self)
        nonce, caller, wish, size = call
        self.to_send += self.listener.member.make_reply(caller, self.challenge, nonce, self.listener.port)
        self.deadline = time.monotonic() + 2 * UNPROVEN_SECONDS
        if wish == BULK and size <= MAX_BULK:
            self.expected = self.bulk = size
        self.push()
        if wish in (SINK, ECHO):
            self.leave()
            threading.Thread(target=serve_transfer, args=(self.link, wish, size), daemon=True).start()
            return True
        return wish in (PING, BULK)

    def leave(self):
        self.listener.loop.remove(self.link)
        self.listener.calls.discard(self)

    def close(self):
        self.leave()
        close_now(self.link)
