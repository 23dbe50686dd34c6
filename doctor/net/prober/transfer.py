"""Latency and throughput of one pair of hosts, in threads: the kernel copies while no Python runs.

A program that waits for a CPU sends and receives less than the network carries. So the listener's kernel notes when
packets arrive (SO_TIMESTAMPNS), and the rate at which they do, while they do, is reported as well: what a slow link
carries arrives slowly, and what a busy program sends arrives fast, seldom.
"""

import os
import socket
import struct
import threading
import time

from doctor.net.prober.handshake import CHALLENGE_SIZE, REPLY_SIZE, SINK
from doctor.net.prober.socket_loop import close_now, tcp_figures
from doctor.remote.runtime.host_texts import filled
from doctor.remote.runtime.reading import thread_schedule

CHUNK = 1 << 18
PATIENCE_OF_TRANSFER = 5.0  # seconds without a byte
SO_TIMESTAMPNS = 35  # <asm-generic/socket.h>; this Python has no name for it
TCP_NOTSENT_LOWAT = 25  # <linux/tcp.h>; Python 3.6 has no name for it
MOST_UNSENT = 1 << 20  # bytes that wait in the sender's kernel: a lossy way takes seconds for each MB of them
TIMESTAMP = struct.Struct("ll")  # struct timespec
ARRIVAL = struct.Struct("!QQ")  # nanoseconds, bytes until then
TOTALS = struct.Struct("!QQI")  # bytes, microseconds of waiting for a CPU, number of arrivals that follow
ARRIVAL_STEP = 1 << 17  # bytes between two arrivals that are noted
MAX_ARRIVALS = 2048
WINDOWS = ((1 << 19, 4), (1 << 17, 2))  # bytes over which a rate is taken, where there are so many such pieces


def serve_transfer(link, wish, limit):
    """The listener's part: takes in what comes, or sends back each byte. `limit`: bytes, or echoes."""
    link.setblocking(True)
    link.settimeout(PATIENCE_OF_TRANSFER)
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if wish == SINK:
            take_in(link, limit)
            return
        for _ in range(limit):
            if not link.recv(1):
                break
            link.sendall(b"e")
    except OSError:
        pass
    finally:
        close_now(link)


def take_in(link, limit):
    """Receives to the end, then says how much, and when what arrived. Raises: OSError."""
    try:
        link.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:  # then nothing is known of when it arrives
        pass
    buffer, count, arrivals, waited = [bytearray(CHUNK)], 0, [], thread_waited()
    while count < limit:
        received, notes = link.recvmsg_into(buffer, 64)[:2]
        if not received:
            break
        count += received
        stamp = notes[0][2] if notes and notes[0][0] == socket.SOL_SOCKET else b""
        if len(stamp) == TIMESTAMP.size and len(arrivals) < MAX_ARRIVALS:
            if not arrivals or count - arrivals[-1][1] >= ARRIVAL_STEP:
                seconds, rest = TIMESTAMP.unpack(stamp)
                arrivals.append((max(0, seconds * 10**9 + rest), count))
    totals = TOTALS.pack(count, max(0, thread_waited() - waited), len(arrivals))
    link.sendall(totals + b"".join(ARRIVAL.pack(*arrival) for arrival in arrivals))
    link.recv(1)  # until the caller has read it


def thread_waited():
    """Microseconds that this thread could have run and did not; 0 where the kernel does not count them."""
    times = thread_schedule("/proc/thread-self")
    return times[1] // 1000 if times else 0


def arrival_rate(streams):
    """Bytes a second at which packets arrive while they do; 0 where too few did. `streams`: each one's arrivals.

    The upper quartile of the rates over pieces of equal size: pauses of the sender are in few of them.
    """
    steps = sorted(
        (stream[at][0], stream[at][1] - stream[at - 1][1]) for stream in streams for at in range(1, len(stream))
    )
    for size, least in WINDOWS:
        rates, start, count = [], 0, 0
        for now, step in steps:
            if start:
                count += step
            if not start or count >= size:
                if start and now > start:
                    rates.append(count * 1e9 / (now - start))
                start, count = now, 0
        if len(rates) >= least:
            return sorted(rates, reverse=True)[len(rates) // 4]
    return 0.0


def receive_exactly(link, size):
    """So many bytes. Raises: OSError where the other side closes before."""
    data = b""
    while len(data) < size:
        piece = link.recv(size - len(data))
        if not piece:
            raise OSError("closed")
        data += piece
    return data


def call_for(member, target, wish, size):
    """A connection to (address, port) whose listener is the host of that number. Raises: OSError."""
    (address, port, peer), nonce = target, os.urandom(16)
    link = socket.create_connection((address, port), PATIENCE_OF_TRANSFER)
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        challenge = receive_exactly(link, CHALLENGE_SIZE)
        link.sendall(member.make_call(challenge, nonce, wish, size))
        answer = member.read_reply(peer, challenge, nonce, receive_exactly(link, REPLY_SIZE))
        if not answer or answer[:2] != (peer, port):
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
        self.waited, self.arrivals = 0.0, []

    def run(self):
        data, began, waited = memoryview(bytes(CHUNK)), time.monotonic(), thread_waited()
        try:
            try:
                self.link.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, MOST_UNSENT)
            except OSError:  # then as much waits as the kernel takes
                pass
            while self.sent < self.limit and time.monotonic() < began + self.seconds:
                self.sent += self.link.send(data[: self.limit - self.sent])
            self.link.shutdown(socket.SHUT_WR)
            received, waited_at_target, number = TOTALS.unpack(receive_exactly(self.link, TOTALS.size))
            self.took = time.monotonic() - began  # until the last byte had arrived
            noted = receive_exactly(self.link, min(number, MAX_ARRIVALS) * ARRIVAL.size)
            self.arrivals = [ARRIVAL.unpack_from(noted, at) for at in range(0, len(noted), ARRIVAL.size)]
            self.waited = max(waited_at_target, thread_waited() - waited) / 1e6
            self.problem = "" if received == self.sent else filled("{0} of {1} bytes arrived", received, self.sent)
        except OSError as error:
            self.problem = error.strerror or str(error) or type(error).__name__
        finally:
            self.again = tcp_figures(self.link)[0]  # also where what was sent did not arrive in time
            close_now(self.link)


def measure_streams(links, seconds, limit):
    """{"bytes", "seconds", "again", "problem", "waited", "arrival"} of streams that send at the same time.

    `limit`: bytes of them all. "waited": seconds that a program of either end waited for a CPU. "arrival": see
    `arrival_rate`.
    """
    streams = [SendingStream(link, seconds, limit // len(links)) for link in links]
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.join(seconds + 2 * PATIENCE_OF_TRANSFER)
    return {
        "bytes": sum(stream.sent for stream in streams),
        "seconds": round(max(stream.took for stream in streams), 6),
        "again": sum(stream.again for stream in streams),
        "waited": round(max(stream.waited for stream in streams), 6),
        "arrival": round(arrival_rate([stream.arrivals for stream in streams])),
        "problem": next((stream.problem for stream in streams if stream.problem), ""),
    }
