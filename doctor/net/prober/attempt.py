"""Attempts to connect to another host: what became of one, and the largest packet that passes."""

import errno
import os
import socket
import time

from doctor.net.prober.handshake import BULK, CHALLENGE_SIZE, PING, REPLY_SIZE
from doctor.net.prober.socket_loop import READ, WRITE, close_now, printable_start, tcp_figures
from doctor.remote.runtime.connecting import REFUSED_HERE

MAX_BULK_BYTES = 1 << 17
_ICMP = ("ENETUNREACH", "EHOSTUNREACH", "EACCES", "EHOSTDOWN", "ENONET", "ENOPROTOOPT", "EPROTO", "EOPNOTSUPP")
OUTCOMES = {
    **{getattr(errno, name): "unreachable" for name in _ICMP},
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "dropped",
    errno.ECONNRESET: "cut",
    errno.EPIPE: "cut",
    errno.EPERM: "no-route",
    errno.ENETDOWN: "no-route",
}
"""By the error number that comes after a packet was sent. Those of `_ICMP` are messages of a router, of a firewall on
either host, or of a neighbour without an answer, as Linux translates them in icmp_err_convert (net/ipv4/icmp.c) and
tab_unreach (net/ipv6/icmp.c)."""


class ConnectionAttempt:
    """Connects, proves itself, verifies who answers, and, with `bulk`, sends and fetches more than a full packet.

    `outcome` is empty until it is over: open; refused; dropped (no answer in time); no-route; unreachable;
    stranger (answered, and not by a host of the run); other-host (by another host of it, `detail` is its
    number, its port and what proves it);
    other-port; silent (accepted, and nothing was said); cut (closed by the other side); sends-stall, receives-stall
    (small packets pass, full-size ones do not); local (this host could not even try, `detail` says why);
    untried (the prober's own word: no time for it, or, with a detail, no room for a neighbour in this kernel).

    `source_port`: the port that it comes from; 0 lets the kernel choose, as a job does.
    """

    def __init__(self, loop, member, peer, address, port, seconds, bulk=False, segment=0, on_end=None, source_port=0):
        self.loop, self.member, self.peer = loop, member, peer
        self.address, self.port, self.seconds, self.bulk, self.segment = address, port, seconds, bulk, segment
        self.on_end, self.source_port = on_end, source_port
        self.link, self.outcome, self.detail, self.again, self.mtu = None, "", "", 0, 0
        self.step, self.data, self.to_send = self.connected, bytearray(), memoryview(b"")
        self.nonce, self.challenge, self.size, self.took = os.urandom(16), b"", 0, 0.0

    def start(self):
        self.began = time.monotonic()
        self.deadline = self.began + self.seconds
        try:
            info = socket.getaddrinfo(
                self.address, self.port, 0, socket.SOCK_STREAM, socket.IPPROTO_TCP, socket.AI_NUMERICHOST
            )[0]
            self.link = socket.socket(info[0], socket.SOCK_STREAM)
            self.link.setblocking(False)
            self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.segment:
                self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, self.segment)
            if self.source_port:
                self.link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self.link.bind(("::" if info[0] == socket.AF_INET6 else "", self.source_port))
            code = self.link.connect_ex(info[4])
            self.source_port = self.link.getsockname()[1]
        except OSError as error:
            self.finish("local", error.strerror or str(error))
            return
        if code in (0, errno.EINPROGRESS):
            self.loop.add(self.link, self, WRITE)
        elif code in REFUSED_HERE:
            self.finish("no-route", errno.errorcode[code])
        else:
            self.fail(code)

    def fail(self, code):
        """Ends with the word for an error number that came after a packet was sent."""
        word = OUTCOMES.get(code, "local")
        if word == "dropped" and self.step != self.connected:
            word = self.stalled_word()
        self.finish(word, errno.errorcode.get(code, str(code)))

    def stalled_word(self):
        """What a connection without an answer has come to, by the step that it waited in."""
        if self.step == self.connected:
            return "dropped"
        if self.step in (self.pushed_bulk, self.received_bulk):  # the first byte back says that all of ours arrived
            return "receives-stall" if self.data else "sends-stall"
        return "silent"

    def on_timeout(self):
        self.finish(self.stalled_word())

    def on_event(self, mask):
        try:
            self.step()
        except BlockingIOError:
            pass
        except OSError as error:
            self.fail(error.errno)

    def finish(self, outcome, detail=""):
        if self.outcome:
            return
        self.outcome, self.detail, self.took = outcome, detail, time.monotonic() - self.began
        if self.link is not None:
            self.again, self.mtu, _ = tcp_figures(self.link)
            self.loop.remove(self.link)
            close_now(self.link)
        if self.on_end:
            self.on_end(self)

    # -- the steps: each is called when the socket is ready for it

    def connected(self):
        code = self.link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self.fail(code)
            return
        self.deadline = time.monotonic() + self.seconds
        self.step = self.challenged
        self.loop.wait_for(self.link, READ)

    def pull(self, size):
        """Whether so many bytes have come; ends the attempt where the other side has closed."""
        piece = self.link.recv(size - len(self.data))
        self.data += piece
        if not piece:
            self.finish("stranger" if self.data else "cut", printable_start(self.data))
        return len(self.data) >= size

    def challenged(self):
        if not self.pull(CHALLENGE_SIZE):
            return
        self.challenge, self.data = bytes(self.data), bytearray()
        segment = tcp_figures(self.link)[2] or 1460
        self.size = min(3 * segment + 100, MAX_BULK_BYTES) if self.bulk else 0
        wish = BULK if self.bulk else PING
        self.link.send(self.member.make_call(self.challenge, self.nonce, wish, self.size))
        self.step = self.replied

    def replied(self):
        if not self.pull(REPLY_SIZE):
            return
        answer = self.member.read_reply(self.peer, self.challenge, self.nonce, self.data)
        if answer is None:
            self.finish("stranger", printable_start(self.challenge + bytes(self.data)))
        elif answer[0] != self.peer:
            self.finish("other-host", "%d %d %s" % (answer[0], answer[1], answer[2].hex()))
        elif answer[1] != self.port:
            self.finish("other-port", str(answer[1]))
        elif not self.bulk:
            self.finish("open")
        else:
            self.data, self.to_send = bytearray(), memoryview(bytes(self.size))
            self.deadline = time.monotonic() + self.seconds
            self.step = self.pushed_bulk
            self.loop.wait_for(self.link, WRITE)

    def pushed_bulk(self):
        self.to_send = self.to_send[self.link.send(self.to_send) :]
        if not self.to_send:
            self.deadline = time.monotonic() + self.seconds
            self.step = self.received_bulk
            self.loop.wait_for(self.link, READ)

    def received_bulk(self):
        if self.pull(1 + self.size):
            self.finish("open")


STEP = 8  # bytes to which the size is found
SMALLEST = 552  # bytes; every link carries a packet of this size


class PacketSizeSearch:
    """Halves the range between a size that passes and one that does not, one attempt at a time.

    `on_end` is given the largest size in bytes, headers included, that passed; 0 where none did.
    """

    def __init__(self, failed, on_end):
        self.failed, self.on_end = failed, on_end
        self.headers = 60 if ":" in failed.address else 40
        self.passed, self.too_large = 0, max(failed.mtu or 1500, SMALLEST + STEP)
        self.size = SMALLEST

    def start(self):
        failed = self.failed
        attempt = ConnectionAttempt(
            failed.loop, failed.member, failed.peer, failed.address, failed.port, 1.5,
            True, self.size - self.headers, self.on_attempt,
        )  # fmt: skip
        attempt.start()

    def on_attempt(self, attempt):
        if attempt.outcome == "open":
            self.passed = self.size
        else:
            self.too_large = self.size
        if not self.passed or self.too_large - self.passed <= STEP:
            self.on_end(self.failed, self.passed)
            return
        self.size = (self.passed + self.too_large) // 2
        self.start()
