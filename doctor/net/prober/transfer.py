"""Latency and throughput of one pair of hosts, in threads: the kernel copies while no Python runs."""

import os
import socket
import threading
import time

from doctor.net.prober.handshake import (
    CHALLENGE_SIZE,
    ECHO,
    REPLY_SIZE,
    SINK,
    make_call,
    read_reply,
)
from doctor.net.prober.socket_loop import close_now, tcp_figures

CHUNK = 1 << 18
PATIENCE_OF_TRANSFER = 5.0  # seconds without a byte


def serve_transfer(link, wish, limit):
    """The listener's part: takes in what comes, or sends back each byte. `limit`: bytes, or echoes."""
    link.setblocking(True)
    link.settimeout(PATIENCE_OF_TRANSFER)
    buffer = bytearray(CHUNK)
    count = 0
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while count < limit:
            received = link.recv_into(buffer, 1 if wish == ECHO else CHUNK)
            if not received:
                break
            count += received
            if wish == ECHO:
                link.sendall(b"e")
        if wish == SINK:
            link.sendall(count.to_bytes(8, "big"))
            link.recv(1)  # until the caller has read it
    except OSError:
        pass
    finally:
        close_now(link)


def read_exactly(link, size):
    """So many bytes. Raises: OSError where the other side closes before."""
    data = b""
    while len(data) < size:
        piece = link.recv(size - len(data))
        if not piece:
            raise OSError("closed")
        data += piece
    return data


def call_for(token, me, target, wish, size):
    """A connection to (address, port) whose listener is the host of that number. Raises: OSError."""
    (address, port, peer), nonce = target, os.urandom(16)
    link = socket.create_connection((address, port), PATIENCE_OF_TRANSFER)
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        challenge = read_exactly(link, CHALLENGE_SIZE)
        link.sendall(make_call(token, challenge, nonce, me, wish, size))
        if read_reply(token, challenge, nonce, read_exactly(link, REPLY_SIZE)) != (peer, port):
            raise OSError("answered by another host")
        return link
    except OSError:
        close_now(link)
        raise


def measure_latency(link, count, seconds):
    """Seconds of each round trip of one byte, one after the other."""
    times, end = [], time.monotonic() + seconds
    while len(times) < count:
        began = time.monotonic()
        if began > end:
            break
        link.sendall(b"e")
        if not link.recv(1):
            raise OSError("closed")
        times.append(time.monotonic() - began)
    return times


class SendingStream(threading.Thread):
    """Sends to one listener for a bounded time and number of bytes."""

    def __init__(self, link, seconds, limit):
        super().__init__(daemon=True)
        self.link, self.seconds, self.limit = link, seconds, limit
        self.sent, self.took, self.again, self.problem = 0, 0.0, 0, ""

    def run(self):
        data, began = memoryview(bytes(CHUNK)), time.monotonic()
        try:
            while self.sent < self.limit and time.monotonic() < began + self.seconds:
                self.sent += self.link.send(data[: self.limit - self.sent])
            self.link.shutdown(socket.SHUT_WR)
            received = int.from_bytes(read_exactly(self.link, 8), "big")
            self.took = time.monotonic() - began  # until the last byte had arrived
            self.again = tcp_figures(self.link)[0]
            self.problem = "" if received == self.sent else "%d of %d bytes arrived" % (received, self.sent)
        except OSError as error:
            self.problem = error.strerror or str(error) or type(error).__name__
        finally:
            close_now(self.link)


def measure_streams(links, seconds, limit):
    """{"bytes", "seconds", "again", "problem"} of streams that send at the same time; `limit`: bytes of them all."""
    streams = [SendingStream(link, seconds, limit // len(links)) for link in links]
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.join(seconds + 2 * PATIENCE_OF_TRANSFER)
    return {
        "bytes": sum(stream.sent for stream in streams),
        "seconds": round(max(stream.took for stream in streams), 6),
        "again": sum(stream.again for stream in streams),
        "problem": next((stream.problem for stream in streams if stream.problem), ""),
    }
