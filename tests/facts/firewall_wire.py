"""Two network namespaces with a wire between them, to ask the real kernel what a rule set lets through.

Each end is a process of its own in its own namespace, which does what it is told over a pipe; both go when the
process that made them does. The one named `host` gets the rules, `peer` is the other host of the fleet.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import select
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.facts.firewall_random import HOST, PEERS

ROOT = Path(__file__).parents[2]
EPHEMERAL = (40001, 59999)
local = itertools.cycle(range(EPHEMERAL[0], EPHEMERAL[1] + 1))
Wish = tuple[str, str, int]
"""A connection: from this address, to that one, to this port."""


class End:
    """One end of the wire, as the test sees it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [
                "unshare",
                "--net",
                "--mount",
                sys.executable,
                "-c",
                "from tests.facts.firewall_wire import serve; serve()",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.ask("sh", "mount -t tmpfs none /run; ip link set lo up")

    def ask(self, verb: str, *arguments: Any) -> Any:
        self.send(verb, *arguments)
        return self.hear()

    def send(self, verb: str, *arguments: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps([verb, *arguments]) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def end(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Wire:
    """Both ends, connected."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.host, self.peer = End(), End()
        self.host.ask("sh", f"ip link add eth0 type veth peer name eth0 netns {self.peer.process.pid}")
        first, last = EPHEMERAL
        for end, addresses in ((self.host, (HOST,)), (self.peer, PEERS)):
            lines = "".join(f"ip addr add {address}/16 dev eth0\n" for address in addresses)
            end.ask("sh", f"{lines}ip link set eth0 up; sysctl -qw net.ipv4.ip_local_port_range='{first} {last}'")
            end.ask("listen", list(ports))

    def end(self) -> None:
        self.host.end()
        self.peer.end()

    def passes(self, wishes: Iterable[Wish], patience: float = 0.12) -> dict[Wish, bool]:
        """Which connections are made, and carry a byte."""
        wishes, ends = list(wishes), (self.host, self.peer)
        for end in ends:
            end.ask("empty")
        for end in ends:
            end.send("connect", [wish for wish in wishes if (wish[0] == HOST) == (end is self.host)], patience)
        return {(source, target, port): created for end in ends for source, target, port, created in end.hear()}


# ---- the other side of the pipe


def serve() -> None:
    listeners: list[socket.socket] = []
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        try:
            value = VERBS[verb](listeners, *arguments)
            print(json.dumps({"value": value}), flush=True)
        except Exception as error:  # noqa: BLE001 - the test gets it
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


def shell(listeners: list[socket.socket], script: str) -> str:
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{script[-2000:]}\n{done.stderr}")
    return done.stdout


def listen(listeners: list[socket.socket], ports: list[int]) -> None:
    listeners += [
        socket.create_server(("::", port), family=socket.AF_INET6, backlog=256, dualstack_ipv6=True) for port in ports
    ]
    for listener in listeners:
        listener.setblocking(False)


def empty(listeners: list[socket.socket]) -> None:
    """Takes what was connected off the queues, lest they fill."""
    for listener in listeners:
        with contextlib.suppress(BlockingIOError):
            while True:
                listener.accept()[0].close()


def connect(listeners: list[socket.socket], wishes: list[Wish], patience: float) -> list[tuple[str, str, int, bool]]:
    """Both halves of each handshake, and the way of a byte, are the kernel's work alone: no program need be quick."""
    created: dict[Wish, bool] = {}
    for source, target, port in wishes:  # lists, out of JSON
        created[source, target, port] = False
    waiting, connected = {}, {}
    poll = select.poll()
    for wish in created:
        sock = socket.socket(socket.AF_INET6 if ":" in wish[0] else socket.AF_INET)
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Never the same ports twice: what a rule kept from closing would still be there.
        sock.bind((wish[0], next(local)))
        if sock.connect_ex((wish[1], wish[2])) in (0, 115):
            waiting[sock.fileno()] = (wish, sock)
            poll.register(sock, select.POLLOUT)
    end = time.monotonic() + patience
    while waiting and time.monotonic() < end:
        for fd, _ in poll.poll(max(0, (end - time.monotonic()) * 1000)):
            poll.unregister(fd)
            wish, sock = waiting.pop(fd)
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                sock.send(b"x")
                connected[wish] = sock
                end = time.monotonic() + patience
    while not all(created[wish] for wish in connected) and time.monotonic() < end:
        for wish, sock in connected.items():
            created[wish] = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"    "))[0] == 0
        poll.poll(2)  # nothing tells when a byte is acknowledged
    for _, sock in (*waiting.values(), *connected.items()):
        sock.close()
    return [(source, target, port, done) for (source, target, port), done in created.items()]


def rules(listeners: list[socket.socket]) -> Any:
    from doctor.facts.firewall.host_rules import list_rules

    return list_rules({})


VERBS: dict[str, Callable[..., Any]] = {
    "sh": shell,
    "listen": listen,
    "connect": connect,
    "rules": rules,
    "empty": empty,
}
